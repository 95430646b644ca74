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
def test_moving_mass_to_the_token_itself_never_lowers_the_area(n: int, seed: int, row: int) -> None:
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


def test_leading_dimensions_do_not_interact() -> None:
    stack = torch.stack([random_weights(7, 7, seed) for seed in range(6)]).reshape(2, 3, 7, 7)
    together = neighbourhood_sizes(stack)
    for b, h in np.ndindex(2, 3):
        assert torch.equal(together[b, h], neighbourhood_sizes(stack[b, h]))


@settings(deadline=None, max_examples=25)
@given(n=st.integers(2, 12), seed=st.integers(0, 1000), i=st.integers(0, 11))
def test_the_size_at_a_level_is_the_first_window_that_holds_it(n: int, seed: int, i: int) -> None:
    """l(i, r, N) of Section 3.2 summed window by window."""
    w, i = random_weights(n, n, seed), i % n
    windows, left, right = [(i, i)], i, i
    while (left, right) != (0, n - 1):  # left and right in turn, left first; an exhausted side passes
        grew_left = len(windows) == 1 or windows[-1][1] != windows[-2][1]
        if (grew_left and left > 0) or right == n - 1:
            left -= 1
        else:
            right += 1
        windows.append((left, right))
    mass = [w[i, lo : hi + 1].sum().item() for lo, hi in windows]
    # Only row i matters: the others attend only to themselves, one token at every level above zero.
    alone = torch.eye(n, dtype=torch.float64)
    alone[i] = w[i]
    sizes = neighbourhood_sizes(alone, 6)
    for level, size in zip((0.2, 0.4, 0.6, 0.8), sizes[1:5].tolist(), strict=True):
        reached = next((k for k, m in enumerate(mass, start=1) if m >= level), n)
        assert size == pytest.approx((reached + (n - 1)) / n / n)


def test_area_of_attention_to_oneself_depends_on_the_length() -> None:
    for n in (8, 64):
        area = area_under_curve(neighbourhood_sizes(torch.eye(n))).item()
        assert 1 - 1 / n < area < 1 - 1 / n + 0.01 / n


def locality(sizes: torch.Tensor) -> dilution.Locality:
    return dilution.Locality(sizes.numpy(), area_under_curve(sizes).numpy(), np.zeros((len(sizes), 2, 2)), 0.0)


def test_curves_with_equal_areas_can_differ() -> None:
    flat = torch.linspace(0, 1, 11, dtype=torch.float64).expand(2, 11)
    bent = torch.stack([flat[0] ** 2, 2 * flat[0] - flat[0] ** 2])
    one, other = locality(flat), locality(bent)
    assert one.area == pytest.approx(other.area)
    assert dilution.curve_distance(one, other) == dilution.curve_distance(other, one) > 0.1
    assert dilution.curve_distance(one, one) == 0
    assert other.half_area("early") == pytest.approx(other.areas[0])
    assert other.half_area("late") == pytest.approx(other.areas[1])


def test_a_model_is_measured_layer_by_layer_and_not_changed() -> None:
    from transnormer_lib.models.architectures import architecture
    from transnormer_lib.models.language_model import build_model

    config = architecture(
        "transnormer-t2", kind="decoder", vocab_size=9, max_length=12, dim=8, heads=2, layers=2, block_size=4
    )
    model = build_model(config, seed=0).train()
    ids = torch.randint(9, (3, 12), generator=torch.Generator().manual_seed(0))
    measured = dilution.model_locality(model, ids)
    assert model.training
    weights = model.eval().attention_weights(ids)
    expected = torch.stack([neighbourhood_sizes(w).mean(dim=(0, 1)) for w in weights])
    assert np.array_equal(measured.sizes, expected.numpy())
    assert measured.empty_rows == 0
    assert np.allclose(measured.maps[0], weights[0][0].mean(0).numpy())


def test_a_leak_between_blocks_is_found() -> None:
    from transnormer_lib.models.architectures import architecture
    from transnormer_lib.models.language_model import build_model

    config = architecture(
        "transnormer-t1", kind="encoder", vocab_size=9, max_length=12, dim=8, heads=2, layers=2, block_size=4
    )
    model = build_model(config, seed=0).eval()
    assert dilution.leak_between_blocks(model, 12) == 0.0
    mixing = model.blocks[0].attention.attention
    inside = mixing._blocks
    mixing._blocks = lambda q, k, v, mask: inside(q, k, v + v.mean(2, keepdim=True), mask)
    assert dilution.leak_between_blocks(model, 12) > 0.0


@pytest.mark.parametrize(
    ("w", "message"),
    [
        (torch.ones(3), "two dimensions"),
        (-torch.ones(2, 2), "must not be negative"),
        (torch.full((2, 2), torch.nan), "not finite"),
        (torch.ones(2, 2), "must not exceed 1"),
    ],
    ids=["vector", "negative", "nan", "too-much"],
)
def test_bad_weights_are_named_with_their_rule(w: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        neighbourhood_sizes(w)


def test_fewer_than_two_levels_are_refused() -> None:
    with pytest.raises(ValueError, match="levels=1: must be a whole number of at least 2"):
        neighbourhood_sizes(torch.eye(3), levels=1)
