"""Inputs that do not fit are refused in one line; the package's own example runs."""

import re
import textwrap

import pytest
import torch

import transnormer_lib.attention
from transnormer_lib.attention import build

GOOD = (2, 3, 5, 4)


def x(*shape, dtype=torch.float32, device="cpu"):
    return torch.zeros(*(shape or GOOD), dtype=dtype, device=device)


@pytest.mark.parametrize(
    ("q", "k", "v", "mask", "error", "message"),
    [
        (x(2, 5, 12), x(), x(), None, ValueError, "q.shape=(2, 5, 12): must be [B, 3, N, 4], N at least 1"),
        (x(2, 5, 3, 4), x(), x(), None, ValueError, "q.shape=(2, 5, 3, 4): must be [B, 3, N, 4]"),
        (x(), x(2, 3, 5, 6), x(), None, ValueError, "k.shape=(2, 3, 5, 6): must be [B, 3, N, 4]"),
        (x(), x(), x(2, 3, 6, 4), None, ValueError, "v.shape=(2, 3, 6, 4): must equal q.shape=(2, 3, 5, 4)"),
        (x(2, 3, 0, 4), x(), x(), None, ValueError, "q.shape=(2, 3, 0, 4): must be [B, 3, N, 4], N at least 1"),
        (x(dtype=torch.long), x(), x(), None, TypeError, "q.dtype=torch.int64: must be a floating-point dtype"),
        (x(), x(), x(dtype=torch.half), None, TypeError, "v.dtype=torch.float16: must equal q.dtype=torch.float32"),
        (x(), x(device="meta"), x(), None, ValueError, "k.device=meta: must equal q.device=cpu"),
        (x(), x(), x(), x(2, 5), TypeError, "key_padding_mask.dtype=torch.float32: must be torch.bool"),
        (
            x(),
            x(),
            x(),
            x(5, 2, dtype=torch.bool),
            ValueError,
            "key_padding_mask.shape=(5, 2): must be [B, N] = (2, 5)",
        ),
        (
            x(),
            x(),
            x(),
            x(2, 5, dtype=torch.bool, device="meta"),
            ValueError,
            "key_padding_mask.device=meta: must equal",
        ),
    ],
    ids=[
        "q-dims",
        "q-heads",
        "k-head-dim",
        "v-length",
        "empty",
        "integers",
        "mixed",
        "device",
        "mask-dtype",
        "mask-shape",
        "mask-device",
    ],
)
def test_inputs_that_do_not_fit_are_refused_in_one_line(q, k, v, mask, error, message):
    attention = build("norm", {"heads": 3, "head_dim": 4})
    with pytest.raises(error, match=re.escape(message)) as caught:
        attention(q, k, v, mask)
    assert "\n" not in str(caught.value)


def test_the_example_in_the_package_docstring_runs():
    _, parallel, recurrent = (transnormer_lib.attention.__doc__ or "").split("::\n")
    parallel, _, _ = parallel.partition("\nand the same")
    scope: dict[str, object] = {}
    exec(textwrap.dedent(parallel), scope)
    exec(textwrap.dedent(recurrent), scope)
    assert isinstance(scope["y"], torch.Tensor)
    assert scope["y"].shape == (2, 100, 512)
