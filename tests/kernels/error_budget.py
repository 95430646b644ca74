"""How far a kernel may be from its specification: bounds that follow from the data, none of them set by hand."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


def assert_exact(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], data: Sequence[Tensor]) -> None:
    """Float64: only the order of sums may differ, so the error is at most N·H·D roundings of the largest number."""
    assert found.keys() == expected.keys()
    for name, x in found.items():
        largest = max(t.abs().max().item() for t in (expected[name], *data))
        band = torch.finfo(torch.float64).eps * data[0][0].numel() * largest
        torch.testing.assert_close(x, expected[name], atol=band, rtol=0, msg=lambda m, name=name: f"{name}: {m}")


def assert_within_budget(
    found: Mapping[str, Tensor], eager: Mapping[str, Tensor], exact: Mapping[str, Tensor], terms: int
) -> None:
    """At most twice the error of the specification in the same dtype, plus a band for roundings.

    The band is one rounding of the largest number to its dtype, and one random float32 rounding for each of the
    ``terms`` of the sums behind it.
    """
    assert found.keys() == exact.keys()
    roundings = torch.finfo(torch.float32).eps * math.sqrt(terms)
    for name, x in found.items():
        assert name in ("kv", "z") or x.dtype == eager[name].dtype, name
        error = (x.double() - exact[name]).abs().max().item()
        own = (eager[name].double() - exact[name]).abs().max().item()
        budget = 2 * own + (torch.finfo(x.dtype).eps + roundings) * exact[name].abs().max().item()
        assert error <= budget, f"{name}: error {error:.3g} over a budget of {budget:.3g}"
