"""Tests of the kernels need triton, and those marked ``gpu`` a CUDA device."""

import pytest
import torch

pytest.importorskip("triton", reason="triton has no build for this platform")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
