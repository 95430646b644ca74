"""Kernels run on a GPU where there is one, else under Triton's interpreter, to be asked for before the import."""

import os
import sys

import pytest
import torch

if not torch.cuda.is_available():
    assert "triton" not in sys.modules, "something imported triton before TRITON_INTERPRET could be set"
    os.environ["TRITON_INTERPRET"] = "1"

pytest.importorskip("triton", reason="triton has no build for this platform")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
