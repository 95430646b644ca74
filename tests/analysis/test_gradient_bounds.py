"""The closed forms equal autograd, and the constructions of Appendix C and D keep what the proofs promise."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transnormer_lib.analysis import attention_gradients as gradients
from transnormer_lib.analysis import gradient_bounds
from transnormer_lib.analysis.kernel_maps import KERNELS, ONE_PLUS_ELU_AS_COMPUTED, ONE_PLUS_RELU, kernel
from transnormer_lib.attention import scale_rows

KERNEL_NAMES = sorted(KERNELS)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@settings(max_examples=10, deadline=None)
@given(
    # Below these sizes some derivatives vanish (LayerNorm of two features), and only rounding is left.
    n=st.integers(2, 8),
    d=st.integers(3, 8),
    eps=st.sampled_from([1e-8, 1e-2]),
    seed=st.integers(0, 2**31),
)
def test_every_closed_form_equals_autograd(n, d, eps, seed):
    errors = gradient_bounds.formula_errors(2, n, d, eps, seeded(seed))
    assert len(errors) == 12
    assert max(errors.values()) < 1e-9


@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_gradients_reaching_q_and_k_equal_autograd(name):
    generator, phi = seeded(), kernel(name)
    q = torch.randn(5, generator=generator, dtype=torch.float64).abs()
    keys = torch.randn(4, 5, generator=generator, dtype=torch.float64).abs()

    def weights(q_D, k_ND):
        return gradients.linear_weights(gradients.scores(q_D[None], k_ND[None], phi))[0]

    by_query, by_key = torch.autograd.functional.jacobian(weights, (q, keys))
    torch.testing.assert_close(gradients.weights_by_query(q[None], keys[None], phi)[0], by_query)
    torch.testing.assert_close(gradients.weights_by_key(q[None], keys[None], phi)[0], by_key)
    by_query = torch.autograd.functional.jacobian(lambda x: (keys @ x / math.sqrt(5)).softmax(-1), q)
    torch.testing.assert_close(gradients.softmax_weights_by_query(q[None], keys[None])[0], by_query)


@pytest.mark.parametrize("scale", [1e-9, 1.0], ids=["below-the-floor", "above-the-floor"])
def test_the_clamped_jacobian_equals_autograd_of_the_library(scale):
    s = scale * torch.rand(6, generator=seeded(), dtype=torch.float64)
    automatic = torch.autograd.functional.jacobian(lambda x: scale_rows(x, 1e-6), s)
    torch.testing.assert_close(gradients.jacobian_clamped(s[None], 1e-6)[0], automatic)


def test_at_a_zero_score_eq_10_is_undefined_and_the_derivative_is_not():
    found = gradient_bounds.zero_score([1.0, 0.0, 2.0])
    assert bool(found.printed.isnan().all())
    torch.testing.assert_close(found.division_free, found.automatic)
    assert float(found.automatic[1]) == pytest.approx(1 / 3)


@pytest.mark.parametrize("name", KERNEL_NAMES)
@settings(max_examples=20, deadline=None)
@given(decade=st.floats(-3, 12), n=st.integers(2, 12), d=st.integers(1, 8))
def test_proposition_3_1_every_m_is_exceeded_by_every_entry(name, decade, n, d):
    [found] = gradient_bounds.exceed(kernel(name), [10**decade], n, d)
    assert found.holds
    assert found.measured < 10 * found.threshold * n  # the construction is no larger than it must be


@pytest.mark.parametrize("name", KERNEL_NAMES)
@settings(max_examples=15, deadline=None)
@given(decade=st.floats(-12, 0), n=st.integers(1, 12), d=st.integers(1, 8))
def test_appendix_c_keeps_its_promises_and_passes_nothing_on_to_q(name, decade, n, d):
    found = gradient_bounds.appendix_c(kernel(name), 10**decade, n, d)
    assert found.keeps_promise
    # Exactly zero in real numbers: equal keys make the weights 1/n whatever q is.
    assert found.query_gradient * math.sqrt(found.epsilon) < 1e-12


def test_one_key_has_no_gradient_so_proposition_3_1_needs_two():
    assert gradient_bounds.appendix_c(kernel("1+elu"), 1e-9, 1, 3).smallest == 0
    with pytest.raises(ValueError, match="n=1"):
        gradient_bounds.exceed(kernel("1+elu"), [1.0], 1, 3)


@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_the_limit_of_eq_50_needs_values_that_differ(name):
    g = torch.ones(4, dtype=torch.float64)
    equal = torch.ones(4, 4, dtype=torch.float64)
    different = torch.randn(4, 4, generator=seeded(), dtype=torch.float64)
    for epsilon in (1e-2, 1e-6, 1e-10):
        vanishing = gradient_bounds.loss_at_appendix_c(kernel(name), epsilon, equal, g)
        exploding = gradient_bounds.loss_at_appendix_c(kernel(name), epsilon, different, g)
        assert vanishing < 1e-12 * exploding
        assert exploding > 0.01 / epsilon


@pytest.mark.parametrize("threshold", [1.0, 1e5, 1e10])
def test_scores_of_opposite_sign_exceed_any_bound_in_c3(threshold):
    found = gradient_bounds.cancelling_scores(threshold)
    assert found.holds
    assert found.measured == pytest.approx(2 * threshold * (1 + 2 * found.epsilon), rel=1e-6)


def test_softmax_passes_gradients_to_q_that_grow_with_the_keys():
    q, axis = torch.zeros(4, dtype=torch.float64), torch.eye(4, dtype=torch.float64)[0]
    for size in (1.0, 1e6):
        keys = torch.stack([size * axis, -size * axis])
        gradient = torch.autograd.functional.jacobian(lambda x, keys=keys: (keys @ x / math.sqrt(4)).softmax(-1), q)
        assert float(gradient.abs().max()) == pytest.approx(0.25 * size)


@pytest.mark.parametrize("size", [1.0, 1e3, 1e6])
def test_cancelling_values_reach_q_without_bound_in_norm_attention_and_by_a_half_with_1_plus_elu(size):
    found = gradient_bounds.cancelling_query_gradients(size, kernel("1+elu"), 1e-8)
    assert found.normalised == pytest.approx(size * 1e4, rel=1e-6)
    assert found.linear == pytest.approx(0.5, rel=1e-6)


def test_rounding_one_plus_elu_breaks_the_bound_on_the_query_gradient():
    assert gradient_bounds.rounded_query_gradient(torch.float32) > 1e3


def test_the_second_line_of_eq_53_is_no_upper_bound_and_the_last_is():
    found = gradient_bounds.eq_53_second_line([1.0, -1.0], 1e-5)
    assert found.second_line < 0 < found.derivative < found.final


def test_eq_55_needs_d_terms():
    assert gradient_bounds.eq_55_error(3, 8, 1e-5, seeded()) > 0.1
    assert gradient_bounds.eq_55_error(8, 8, 1e-5, seeded()) < 1e-12
    with pytest.raises(ValueError, match="terms=9"):
        gradient_bounds.eq_55_error(9, 8, 1e-5, seeded())


def test_the_upstream_gradient_grows_with_the_square_of_the_weights():
    values = [gradient_bounds.upstream_for_weights(weight) for weight in (0.1, 1.0, 10.0)]
    assert values[1] / values[0] == pytest.approx(100)
    assert values[2] / values[1] == pytest.approx(100)


@pytest.mark.parametrize("phi", [*KERNELS.values(), ONE_PLUS_RELU], ids=lambda phi: phi.name)
def test_a_kernel_has_the_slope_and_the_inverse_it_claims(phi):
    x = torch.linspace(-3, 3, 40, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(phi.phi(x).sum(), x)
    torch.testing.assert_close(phi.slope(x.detach()), slope)
    y = torch.logspace(0.1, 2, 40, dtype=torch.float64)
    torch.testing.assert_close(phi.phi(phi.inverse(y)), y)
    assert bool((phi.phi(x) < 0).any()) == (phi.name == "elu")


def test_one_plus_elu_has_a_slope_of_at_most_itself_unless_evaluated_as_one_plus_elu():
    x = torch.linspace(-700, 50, 5001, dtype=torch.float64)
    exact, rounded = kernel("1+elu"), ONE_PLUS_ELU_AS_COMPUTED
    assert bool((exact.slope(x) <= exact.phi(x)).all())
    torch.testing.assert_close(rounded.phi(x), exact.phi(x), rtol=0, atol=1e-15)
    assert not bool((rounded.slope(x) <= rounded.phi(x)).all())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kernel("gelu"), "phi='gelu'"),
        (lambda: gradient_bounds.zero_score([1.0, 2.0]), "needs a zero score"),
        (lambda: gradient_bounds.appendix_c(kernel("relu"), 0.0, 2, 2), "epsilon=0.0"),
        (lambda: gradient_bounds.formula_errors(0, 2, 2, 1e-8, seeded()), "trials=0"),
        (lambda: gradient_bounds.upstream_for_weights(0.0), "weight=0.0"),
        (lambda: gradient_bounds.cancelling_scores(0.5), "threshold=0.5"),
        (lambda: gradient_bounds.eq_53_second_line([1.0], 1e-8), "two features"),
    ],
    ids=["kernel", "zero-score", "epsilon", "trials", "weight", "threshold", "features"],
)
def test_a_bad_argument_is_named_with_its_rule(call, message):
    with pytest.raises(ValueError, match=message):
        call()
