"""Entropies against scipy's, and the bounds: attained where they say so, and broken where an assumption is dropped."""

import math

import pytest
import torch
from scipy import stats

from transnormer_lib.analysis import attention_entropy as entropies
from transnormer_lib.analysis.bound_search import Budget

SMALL = Budget([[3, 1], [8, 1], [40, 1]], 20, 3, [0])


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_the_entropy_of_a_row_is_scipys() -> None:
    scores = 3 * torch.randn(5, 17, generator=seeded(), dtype=torch.float64)
    p = (0.7 * scores).softmax(-1)
    expected = torch.tensor(stats.entropy(p.numpy(), axis=-1))
    torch.testing.assert_close(entropies.entropy(p), expected)
    torch.testing.assert_close(entropies.row_entropy(scores, 0.7), expected)


def test_a_row_whose_weights_underflow_has_a_finite_entropy() -> None:
    row = torch.tensor([0.0, -1e5, -2e5], dtype=torch.float64)
    assert float(entropies.row_entropy(row)) == 0.0


def test_the_factor_is_one_at_512_keys() -> None:
    assert entropies.factor(512) == 1.0
    assert entropies.factor(64) < 1.0 < entropies.factor(4096)


@pytest.mark.parametrize(
    "bound",
    [
        entropies.at_most_log_n(),
        entropies.grows_without_the_factor(),
        entropies.bounded_with_the_factor(1.0),
        entropies.bounded_with_the_factor(2.0),
        entropies.flatter_below_the_reference(),
    ],
    ids=lambda bound: bound.name,
)
def test_every_bound_survives_a_search(bound) -> None:
    assert SMALL.attack(bound).holds


def test_without_the_factor_the_same_gap_breaks_its_bound() -> None:
    n, c = 16384, 1.5
    row = entropies.scores("gap", n, c * math.log(512), seeded())
    assert float(entropies.row_entropy(row, entropies.factor(n))) <= entropies.gap_bound(n, c) < 1.0
    assert float(entropies.row_entropy(row)) > entropies.gap_bound(n, c)


def test_with_a_gap_the_factor_keeps_the_entropy_and_without_it_the_entropy_grows() -> None:
    lengths = [64, 1024, 16384]
    plus, plain = (
        list(entropies.by_length("gap", lengths, 9.0, plus=on, rows=1, generator=seeded()).values())
        for on in (True, False)
    )
    assert plus == sorted(plus, reverse=True)
    assert plain == sorted(plain)
    assert plain[-1] > 0.3 * math.log(lengths[-1])


def test_equal_scores_have_the_entropy_log_n_with_and_without_the_factor() -> None:
    for plus in (True, False):
        found = entropies.by_length("equal", [8, 64], 0.0, plus=plus, rows=1, generator=seeded())
        assert found == pytest.approx({8: math.log(8), 64: math.log(64)})


def test_single_precision_is_read_too() -> None:
    scores = 3 * torch.randn(5, 17, generator=seeded())
    torch.testing.assert_close(entropies.row_entropy(scores), entropies.row_entropy(scores.double()).float())


def test_the_bound_of_a_lead_tends_to_zero_but_rises_first() -> None:
    at = [entropies.gap_bound(2.0**k, 1.1) for k in (4, 10, 13, 17, 100, 800)]
    assert at[0] < at[1] < at[2] > at[3] > at[4] > at[5]
    assert at[5] < 1e-20
    assert entropies.gap_bound(10, 2.0) == pytest.approx(9 * 10**-2 * (1 + 2 * math.log(10)))
