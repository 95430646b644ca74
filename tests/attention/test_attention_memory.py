"""The chunked forms never create anything quadratic in the length, forward or backward."""

import pytest
import torch
from attention_cases import VARIANTS, make
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

LENGTH = 4096


class LargestTensor(TorchDispatchMode):
    """Records the number of elements of the largest tensor that any operation returns."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        sizes = [x.untyped_storage().nbytes() // x.element_size() for x in tree_leaves(out) if torch.is_tensor(x)]
        self.elements = max([self.elements, *sizes])
        return out


def largest(variant: str, n: int, impl: str, causal: bool, masked: bool, rotary: str = "none") -> int:
    attention = make(variant, 1, 8, causal=causal, impl=impl, rotary=rotary).float()
    q, k, v = (torch.ones(1, 1, n, 8, requires_grad=True) for _ in range(3))
    mask = torch.arange(n)[None] >= n - 5 if masked else None
    with LargestTensor() as record:
        attention(q, k, v, mask).sum().backward()
    return record.elements


# Softmax with a causal and a padding mask needs the joint mask, which its docstring says.
CASES = [
    (variant, causal, masked)
    for variant in VARIANTS
    for causal in (False, True)
    for masked in (False, True)
    if not (variant == "softmax" and causal and masked)
]


@pytest.mark.parametrize(
    ("variant", "causal", "masked"),
    CASES,
    ids=[f"{x}-{'causal' if c else 'bidirectional'}-{'masked' if m else 'unmasked'}" for x, c, m in CASES],
)
def test_the_largest_tensor_of_the_chunked_form_grows_linearly(variant, causal, masked):
    whole = largest(variant, LENGTH, "chunked", causal, masked)
    half = largest(variant, LENGTH // 2, "chunked", causal, masked)
    assert whole <= 2 * half
    assert whole < LENGTH**2 // 16


@pytest.mark.parametrize("variant", ["softmax", "linear-1+elu", "norm-elu", "diag-softmax"])
def test_turning_by_positions_leaves_it_so(variant):
    whole, half = (largest(variant, n, "chunked", True, False, "lrpe") for n in (LENGTH, LENGTH // 2))
    assert whole <= 2 * half
    assert whole < LENGTH**2 // 16


def test_the_same_measurement_sees_the_reference_grow_quadratically():
    assert largest("norm-elu", 512, "reference", True, False) >= 512**2
