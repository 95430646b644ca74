"""Properties of the locally accumulated attention score (Section 3.2, Appendix F)."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transnormer_lib.analysis import dilution
from transnormer_lib.analysis.dilution import DoesNotEnd, appendix_f, area_under_curve, neighbourhood_sizes


def random_weights(n: int, m: int, seed: int, *, causal: bool = False, sharpness: float = 3.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    scores = sharpness * torch.randn(n, m, generator=generator, dtype=torch.float64)
    if causal:
        scores = scores.masked_fill(torch.ones(n, m).triu(1).bool(), -torch.inf)
    return scores.softmax(-1)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 14), st.integers(0, 10_000), st.booleans(), st.sampled_from([0.0, 1.0, 5.0, 30.0]))
def test_vectorised_form_equals_the_repaired_pseudocode(n: int, seed: int, causal: bool, sharpness: float) -> None:
    w = random_weights(n, n, seed, causal=causal, sharpness=sharpness)
    assert torch.equal(neighbourhood_sizes(w), appendix_f(w, repaired=True))


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 9), st.integers(2, 9), st.integers(0, 10_000))
def test_forms_agree_on_rectangular_maps(n: int, m: int, seed: int) -> None:
    w = random_weights(n, m, seed)
    assert torch.equal(neighbourhood_sizes(w), appendix_f(w, repaired=True))


@pytest.mark.parametrize("n", [4, 8, 16])
def test_pseudocode_as_printed_does_not_end_on_uniform_attention(n: int) -> None:
    with pytest.raises(DoesNotEnd):
        appendix_f(dilution.uniform_weights(n, causal=False), repaired=False)


def test_attention_to_oneself_needs_one_token_at_every_level() -> None:
    sizes = neighbourhood_sizes(torch.eye(10))
    assert torch.allclose(sizes[1:], torch.full((99,), 0.1, dtype=torch.float64))
    assert sizes[0] == 0


def test_uniform_attention_needs_the_fraction_that_it_holds() -> None:
    n, levels = 400, 11
    sizes = neighbourhood_sizes(dilution.uniform_weights(n, causal=False), levels)
    # A window of k of n tokens holds k/n: the curve is the diagonal up to one token.
    assert (sizes - torch.linspace(0, 1, levels, dtype=torch.float64)).abs().max() <= 1.0 / n + 1e-12


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 20), st.integers(0, 1000), st.integers(0, 19))
def test_moving_mass_to_the_own_token_never_lowers_the_area(n: int, seed: int, row: int) -> None:
    w = random_weights(n, n, seed)
    moved = w.clone()
    moved[row % n] *= 0.5
    moved[row % n, row % n] += 0.5
    assert area_under_curve(neighbourhood_sizes(moved)) >= area_under_curve(neighbourhood_sizes(w)) - 1e-12


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 20), st.integers(0, 1000))
def test_sizes_are_monotone_in_the_level_and_within_the_sequence(n: int, seed: int) -> None:
    sizes = neighbourhood_sizes(random_weights(n, n, seed))
    assert bool((sizes.diff() >= 0).all())
    assert 0 <= float(sizes.min()) <= float(sizes.max()) <= 1


def test_leading_dimensions_are_measured_alone() -> None:
    stack = torch.stack([random_weights(7, 7, seed) for seed in range(6)]).reshape(2, 3, 7, 7)
    together = neighbourhood_sizes(stack)
    for b, h in np.ndindex(2, 3):
        assert torch.equal(together[b, h], neighbourhood_sizes(stack[b, h]))


def test_half_of_the_window_definition_agrees_with_a_direct_count() -> None:
    """l(i, r, N) of Section 3.2 computed from its definition: the level is first reached at that window."""
    w = random_weights(9, 9, 3)
    sizes = neighbourhood_sizes(w[4:5].expand(1, 9).contiguous(), 5)  # row 0 of a 1 x 9 map: centre 0
    mass = w[4].cumsum(0)
    expected = [0.0] + [(int((mass < level).sum()) + 1) / 9 for level in (0.25, 0.5, 0.75, 1.0)]
    assert np.allclose(sizes.numpy(), np.minimum(expected, 1.0))


@pytest.mark.parametrize(
    ("w", "message"),
    [(torch.ones(3), "two dimensions"), (-torch.ones(2, 2), "must not be negative")],
    ids=["vector", "negative"],
)
def test_bad_weights_are_refused_with_their_rule(w: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        neighbourhood_sizes(w)
