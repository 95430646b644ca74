"""Sharp constants are attained and never exceeded; published bounds that break, break where they should."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transnormer_lib.analysis import bounds_attention, bounds_matrix, bounds_norm
from transnormer_lib.analysis.bound_search import Bound, size_grid
from transnormer_lib.analysis.kernel_maps import KERNELS, ONE_PLUS_RELU

POSITIVE = [KERNELS["1+elu"], KERNELS["relu"]]
ONE_PLUS_ELU = KERNELS["1+elu"]
EPS = 1e-6

# Bound, then the smallest n and d at which its constant is attained.
SHARP: list[tuple[Bound, int, int]] = [
    (bounds_attention.softmax_intervals(), 2, 1),
    (bounds_attention.softmax_jacobian(), 2, 1),
    (bounds_attention.softmax_row_norm("repaired"), 2, 1),
    (bounds_attention.softmax_score("sharp"), 2, 1),
    (bounds_attention.softmax_query(), 2, 1),
    (bounds_attention.linear_jacobian_by_sum(), 3, 1),
    (bounds_attention.linear_jacobian_clamped(1e-6), 1, 1),
    *[(bounds_attention.linear_jacobian(kernel), 2, 1) for kernel in POSITIVE],
    *[(bounds_attention.linear_jacobian_c3(kernel, "sharp"), 2, 1) for kernel in POSITIVE],
    *[(bounds_attention.linear_score(kernel, "sharp"), 2, 1) for kernel in POSITIVE],
    (bounds_attention.linear_query(ONE_PLUS_ELU, "weights"), 2, 2),
    (bounds_attention.linear_query(ONE_PLUS_ELU, "loss"), 2, 2),
    (bounds_attention.linear_key(ONE_PLUS_ELU, "weights"), 2, 1),
    (bounds_attention.linear_key(ONE_PLUS_ELU, "loss"), 2, 1),
    (bounds_norm.norm_jacobian("entry", "sharp", EPS), 1, 1),
    (bounds_norm.norm_jacobian("frobenius", "sharp", EPS), 1, 1),
    (bounds_norm.norm_jacobian("spectral", "sharp", EPS), 1, 1),
    (bounds_norm.norm_score("rms", "sharp", EPS), 1, 1),
    (bounds_norm.norm_score("rms-outside", "sharp", EPS), 1, 1),
    (bounds_norm.norm_score("layer", "sharp", EPS), 1, 2),
    (bounds_norm.norm_score("rms", "sharp", EPS, gain=True), 1, 1),
    (bounds_matrix.product_bound(), 1, 1),
    (bounds_matrix.spectral_bound(), 1, 1),
    (bounds_matrix.cross_entropy_bound("sharp"), 1, 1),
    (bounds_matrix.upstream_bound("repaired"), 1, 1),
]
HOLDING = [
    *[bound for bound, _, _ in SHARP],
    bounds_attention.softmax_score("repaired"),
    bounds_attention.linear_jacobian_away_from_zero(ONE_PLUS_RELU, 1.0),
    *[bounds_attention.linear_jacobian_c3(kernel, "published") for kernel in POSITIVE],
    bounds_norm.norm_score("rms", "published", EPS),
    bounds_norm.norm_score("layer", "published", EPS),
    bounds_matrix.cross_entropy_bound("published"),
]


def name(value: object) -> str | None:
    return value.name if isinstance(value, Bound) else None


def draw(bound: Bound, n: int, d: int, seed: int, spread: float) -> dict[str, torch.Tensor]:
    """64 random cases with its own scale per variable and case."""
    generator = torch.Generator().manual_seed(seed)
    [sizes] = size_grid([(n, d)])
    inputs = {}
    for variable, letters in bound.shapes.items():
        shape = [64, *(sizes[letter] for letter in letters)]
        exponent = spread * torch.randn(64, *[1] * len(letters), generator=generator, dtype=torch.float64)
        inputs[variable] = torch.randn(*shape, generator=generator, dtype=torch.float64) * 10**exponent
    return inputs


@pytest.mark.parametrize(("bound", "least_n", "least_d"), SHARP, ids=name)
@settings(max_examples=15, deadline=None)
@given(extra_n=st.integers(0, 40), extra_d=st.integers(0, 12))
def test_a_sharp_constant_is_attained_at_every_size(bound, least_n, least_d, extra_n, extra_d):
    [sizes] = size_grid([(least_n + extra_n, least_d + extra_d)])
    assert bound.extremal is not None
    assert bound.ratio_at(bound.extremal(sizes)) == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize("bound", HOLDING, ids=name)
@settings(max_examples=20, deadline=None)
@given(
    n=st.integers(1, 9),
    d=st.integers(1, 6),
    seed=st.integers(0, 2**31),
    spread=st.sampled_from([0.0, 1.0, 3.0]),
)
def test_a_bound_that_holds_is_never_exceeded(bound, n, d, seed, spread):
    ratio = bound.ratio(draw(bound, n, d, seed, spread))
    # Dead relu rows and zero keys give 0/0: nothing to compare there.
    assert bool((ratio[torch.isfinite(ratio)] <= 1 + 1e-9).all())


@pytest.mark.parametrize(
    ("n", "ratio"), [(2, math.sqrt(2)), (3, 2 / math.sqrt(3)), (4, 1.0), (16, 0.5)], ids=lambda x: f"{x:.3g}"
)
def test_eq_59_as_published_breaks_at_two_and_three_keys_and_is_tight_at_four(n, ratio):
    bound = bounds_attention.softmax_score("published")
    assert bound.extremal is not None
    assert bound.ratio_at(bound.extremal({"n": n, "d": 3})) == pytest.approx(ratio, rel=1e-12)


def test_the_smallest_counter_example_to_eq_59_by_autograd():
    s = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    loss = s.softmax(-1) @ torch.tensor([1.0, -1.0], dtype=torch.float64)  # c₁ = c₂ = 1
    (gradient,) = torch.autograd.grad(loss, s)
    assert float(gradient.abs().max()) == 0.5
    assert math.sqrt(2) / 4 < 0.5


@pytest.mark.parametrize("kernel", POSITIVE, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize(("n", "breaks"), [(2, True), (3, True), (4, False), (5, False)])
def test_eq_48_for_linear_attention_breaks_at_two_and_three_keys_only(kernel, n, breaks):
    bound = bounds_attention.linear_score(kernel, "published")
    assert bound.extremal is not None
    ratio = bound.ratio_at(bound.extremal({"n": n, "d": 2}))
    assert ratio == pytest.approx(8 * (n - 1) / n**2.5, rel=1e-12)
    assert (ratio > 1) == breaks


def test_the_step_of_eq_48_that_fails_is_the_row_norm():
    bound = bounds_attention.softmax_row_norm("published")
    assert bound.extremal is not None
    assert bound.ratio_at(bound.extremal({"n": 5})) == pytest.approx(math.sqrt(2), rel=1e-12)


@pytest.mark.parametrize("d", [1, 64, 512])
def test_the_published_norm_bound_has_a_margin_of_three_halves_d(d):
    published = bounds_norm.published_constant(d, EPS)
    assert published / bounds_norm.sharp_constant("rms", EPS) == pytest.approx(1.5 * d)


@pytest.mark.parametrize(("d", "breaks"), [(64, True), (512, True), (6666, True), (6667, False)])
def test_eps_outside_the_root_breaks_eq_61_below_a_width_of_6667(d, breaks):
    assert (bounds_norm.sharp_constant("rms-outside", 1e-8) > bounds_norm.published_constant(d, 1e-8)) == breaks


def test_eq_66_as_printed_breaks_where_the_first_weight_is_the_larger():
    bound = bounds_matrix.upstream_bound("published")
    assert bound.extremal is not None
    inputs = bound.extremal({"n": 2, "d": 3, "h": 4, "m": 2})
    assert bound.ratio_at(inputs) < 1
    assert bound.ratio_at({**inputs, "w1": 100 * inputs["w1"]}) > 10


@pytest.mark.parametrize("n", [2, 3, 8])
def test_scores_of_mixed_sign_leave_no_bound_in_c3(n):
    bound = bounds_attention.linear_score(KERNELS["elu"], "published")
    assert bound.ratio_at(_nearly_cancelling(n)) > 1e6


def _nearly_cancelling(n: int) -> dict[str, torch.Tensor]:
    """elu features 1 and −1/2 whose sum is nearly zero, none of them small."""
    keys = torch.full((n, 1), math.log(0.5), dtype=torch.float64)
    keys[0] = (n - 1) / 2 + 1e-9
    v = torch.ones(n, 1, dtype=torch.float64)
    v[0] = -1
    return {
        "q": torch.ones(1, dtype=torch.float64),
        "k": keys,
        "v": v,
        "g": torch.ones(1, dtype=torch.float64),
    }


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bounds_attention.softmax_score("tight"), "form='tight'"),  # type: ignore[arg-type]
        (lambda: bounds_norm.norm_score("batch", "sharp", 1e-8), "norm='batch'"),  # type: ignore[arg-type]
        (lambda: bounds_norm.norm_jacobian("entry", "sharp", 0.0), "eps=0.0"),
        (lambda: bounds_attention.linear_jacobian_away_from_zero(ONE_PLUS_RELU, 0.0), "floor=0.0"),
    ],
    ids=["form", "norm", "eps", "floor"],
)
def test_a_bad_argument_is_named_with_its_rule(call, message):
    with pytest.raises(ValueError, match=message):
        call()
