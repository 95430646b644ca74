"""The operations that a mechanism says it takes are those that PyTorch counts while it runs."""

import pytest
import torch
from attention_cases import NAMES, VARIANTS, make
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from transnormer_lib.attention import build

HEADS, HEAD_DIM, CHUNK = 3, 8, 16


def counted(attention, length: int, batch: int = 1) -> int:
    """What PyTorch counts in a forward pass; softmax unfused, because its counter does not know the CPU's kernel."""
    q, k, v = (torch.ones(batch, HEADS, length, HEAD_DIM, dtype=torch.float64) for _ in range(3))
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        attention(q, k, v)
    return counter.get_total_flops()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("rotary", ["none", "lrpe"])
@pytest.mark.parametrize("length", [1, 5, CHUNK, 3 * CHUNK, 3 * CHUNK + 7])
def test_flops_are_what_pytorch_counts(variant, causal, rotary, length):
    attention = make(variant, HEADS, HEAD_DIM, CHUNK, causal=causal, rotary=rotary)
    assert attention.flops(length) == counted(attention, length)
    assert 2 * attention.flops(length) == counted(attention, length, batch=2)


@pytest.mark.parametrize("name", NAMES)
def test_only_softmax_grows_faster_than_the_length(name):
    attention = build(name, {"heads": HEADS, "head_dim": HEAD_DIM, "causal": True})
    ratio = attention.flops(2**13) / attention.flops(2**12)
    assert ratio == (4 if name == "softmax" else 2)


@pytest.mark.parametrize("length", [0, -1, 2.0, True])
def test_a_length_that_is_none_is_refused(length):
    with pytest.raises(ValueError, match=r"length=.*: must be a whole number of at least 1"):
        build("norm", {"heads": 1, "head_dim": 2}).flops(length)
