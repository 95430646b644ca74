"""Performer, RFA and cosFormer: their estimators, weights and random draws, beside what every mechanism must hold."""

import itertools
import math

import pytest
import torch
from mechanism_cases import HEAD_DIM, HEADS, draw, holes, make

from transnormer_lib.attention import SoftmaxAttention, SoftmaxConfig, build
from transnormer_lib.attention.performer import projected
from transnormer_lib.attention.random_features import RandomProjection, orthogonal_rows
from transnormer_lib.attention.rfa import FEATURE_SCALE

each_form = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])


def close(actual: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def average(scores, values, floor=1e-12):
    """Σ_j s_ij v_j / max(Σ_j s_ij, floor) for one head, ``scores(i)`` the pairs (j, s_ij) of row i."""
    rows = []
    for i in range(len(values)):
        row = list(scores(i))
        t = sum((s * values[j] for j, s in row), torch.zeros_like(values[0]))
        rows.append(t / max(sum(s for _, s in row), floor))
    return torch.stack(rows)


def visible(i: int, n: int, mask: torch.Tensor, causal: bool) -> list[int]:
    return [j for j in range(i + 1 if causal else n) if not mask[j]]


def check_against_loops(mechanism, score, causal: bool, floor: float = 1e-12, n: int = 19) -> None:
    """``score(h, q_i, k_j, i, j)`` is s_ij; the comparison is at real positions."""
    q, k, v = draw("performer", 2, n, 4)
    mask = holes(2, n, 4)
    o = mechanism(q, k, v, mask).detach()
    for b, h in itertools.product(range(2), range(HEADS)):

        def row(i, b=b, h=h):
            return [(j, score(h, q[b, h, i], k[b, h, j], i, j)) for j in visible(i, n, mask[b], causal)]

        close(o[b, h, ~mask[b]], average(row, v[b, h], floor)[~mask[b]])


# --- Performer ---------------------------------------------------------------------------------------------


def test_the_mean_of_performers_estimates_is_the_softmax_kernel():
    # Lemma 2: with M independent rows the variance is K² (e^{‖x+y‖²} − 1) / M; orthogonal ones have no larger one.
    d, m, draws, generator = 8, 16, 4000, torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 12, d, generator=generator, dtype=torch.float64)
    x, y = q * d**-0.25, k * d**-0.25
    kernel = (q * k / math.sqrt(d)).sum(-1).exp()
    close((x * y).sum(-1).exp(), kernel)
    total = torch.zeros_like(kernel)
    for _ in range(draws):
        omega = orthogonal_rows(m, d, generator=generator).double()
        phi_q, phi_k = (
            (along - half_square).exp() for along, half_square in (projected(q, omega), projected(k, omega))
        )
        total += (phi_q * phi_k).mean(-1)
    deviation = kernel * ((x + y).square().sum(-1).exp() - 1).sqrt() / math.sqrt(m * draws)
    assert ((total / draws - kernel).abs() <= 5 * deviation).all()


def test_more_features_bring_performer_nearer_to_softmax_attention():
    x = [
        t * 0.4 for t in draw("performer", 1, 40, 0)
    ]  # at larger norms the estimate's tails are too heavy for averages
    expected = SoftmaxAttention(SoftmaxConfig(HEADS, HEAD_DIM))(*x)
    few, many = (
        torch.stack([(make("performer", s, features=m)(*x) - expected).norm() for s in range(10)]).mean()
        for m in (16, 1024)
    )
    assert many < few / 4  # 1/8, if it falls as the root of their number


@each_form
@pytest.mark.parametrize("impl", ["reference", "chunked"])
@pytest.mark.parametrize("kernel", ["softmax", "relu"])
def test_performer_computes_its_formula_token_by_token(causal, impl, kernel):
    n, mask = 19, holes(2, 19, 4)
    mechanism = make("performer", 1, causal=causal, impl=impl, kernel=kernel, features=12)
    omega, eps = mechanism.projection.omega, 1e-4 if kernel == "softmax" else 1e-3
    q, k, v = draw("performer", 2, n, 4)
    o = mechanism(q, k, v, mask)
    for b, h in itertools.product(range(2), range(HEADS)):

        def row(i, b=b, h=h):
            keys = {j: k[b, h, j] / HEAD_DIM**0.25 for j in visible(i, n, mask[b], causal)}
            query = q[b, h, i] / HEAD_DIM**0.25

            def phi(x, stabiliser):
                if kernel == "relu":
                    return [max(float(w @ x), 0.0) + eps for w in omega]
                return [math.exp(float(w @ x) - float(x @ x) / 2 - stabiliser) + eps for w in omega]

            phi_q = phi(query, max(float(w @ query) for w in omega))
            seen = max((float(w @ x) for w in omega for x in keys.values()), default=0.0)
            return [(j, sum(a * b for a, b in zip(phi_q, phi(x, seen), strict=True))) for j, x in keys.items()]

        close(o[b, h, ~mask[b]], average(row, v[b, h])[~mask[b]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fp32", "fp64"])
@pytest.mark.parametrize("impl", ["reference", "chunked"])
def test_performers_outputs_are_averages_of_what_was_seen_whatever_the_norms(dtype, impl):
    mechanism, (q, k, v) = make("performer", 3, dtype, causal=True, impl=impl), draw("performer", 2, 60, 3, dtype=dtype)
    norms = 10 ** torch.linspace(3, -3, 60, dtype=dtype)[:, None]  # exponents of 10^6 and of 10^−6
    for order in (norms, norms.flip(0)):
        leaves = [t.clone().requires_grad_() for t in (q * norms.flip(0), k * order, v)]
        o = mechanism(*leaves)
        o.square().sum().backward()
        assert all(t.grad.isfinite().all() for t in leaves)
        close(o[:, :, 0], v[:, :, 0], 1e-5)  # who sees one key has its value
        highest, lowest = v.cummax(2).values, v.cummin(2).values
        assert ((o <= highest + 1e-5) & (o >= lowest - 1e-5)).all()


def test_the_released_stabiliser_lets_the_future_into_the_past_and_ours_does_not():
    q, k, v = draw("performer", 1, 12, 0)
    other = torch.cat([k[:, :, :6], 6 * k[:, :, 6:]], 2)
    for stabiliser, same in (("seen", True), ("all-keys", False)):
        mechanism = make("performer", 0, causal=True, stabiliser=stabiliser)
        one, two = (mechanism(q, keys, v)[:, :, :6] for keys in (k, other))
        assert torch.allclose(one, two, rtol=1e-9, atol=1e-12) == same
    with pytest.raises(ValueError, match="stabiliser='all-keys': has no recurrent form"):
        mechanism.initial_state(1)


# --- RFA ---------------------------------------------------------------------------------------------------


@each_form
@pytest.mark.parametrize("impl", ["reference", "chunked"])
def test_rfa_computes_its_formula_token_by_token(causal, impl):
    mechanism = make("rfa", 2, causal=causal, impl=impl, features=12, denominator_floor=0.05)
    omega, sigma = mechanism.projection.omega, mechanism.sigma_HD.detach()

    def score(h, q_i, k_j, i, j):
        difference = q_i / math.sqrt(float(q_i @ q_i)) - k_j / math.sqrt(float(k_j @ k_j))
        return FEATURE_SCALE**2 * sum(math.cos(float((sigma[h] * w) @ difference)) for w in omega[h])

    check_against_loops(mechanism, score, causal, floor=0.05)


def test_the_mean_of_rfas_estimates_is_the_gaussian_kernel_of_unit_vectors():
    m = 20_000
    mechanism, (q, k, _) = (
        build("rfa", {"heads": HEADS, "head_dim": HEAD_DIM, "features": m}).double(),
        draw("rfa", 1, 6, 1),
    )
    phi_q, phi_k = mechanism.query_features(q, 0), mechanism.key_features(k, 0)
    difference = (torch.nn.functional.normalize(x, dim=-1) for x in (q, k))
    expected = (-torch.cdist(*difference).square() / 2).exp()
    estimate = phi_q @ phi_k.mT / (m * FEATURE_SCALE**2)
    # A cosine's variance is below one.
    assert ((estimate - expected).abs() <= 5 / math.sqrt(m)).all()


def test_a_denominator_of_rfa_is_never_below_its_floor():
    q, k, v = draw("rfa", 1, 9, 0)
    mechanism = make("rfa", 0, causal=True, features=2)
    with torch.no_grad():
        mechanism.sigma_HD.fill_(50.0)  # weights are then noise of either sign
    w = mechanism.weights(q, k, v)
    assert (w < 0).any()
    assert w.abs().max() <= 2 * FEATURE_SCALE**2 / mechanism.config.denominator_floor + 1e-12


# --- cosFormer ---------------------------------------------------------------------------------------------


@each_form
@pytest.mark.parametrize("impl", ["reference", "chunked"])
@pytest.mark.parametrize("weights_by", ["max_length", "length"])
def test_cosformer_computes_its_formula_token_by_token(causal, impl, weights_by):
    n = 19
    mechanism = make("cosformer", 0, causal=causal, impl=impl, weights_by=weights_by, max_length=40)
    longest = n if weights_by == "length" else 40

    def score(h, q_i, k_j, i, j):
        return float(q_i.relu() @ k_j.relu()) * math.cos(math.pi / 2 * (i - j) / longest)

    check_against_loops(mechanism, score, causal, floor=1e-6, n=n)


def test_equal_tokens_are_weighted_by_the_cosine_of_their_distance():
    n, longest = 10, 16
    ones = torch.ones(1, HEADS, n, HEAD_DIM, dtype=torch.float64)
    w = make("cosformer", max_length=longest).weights(ones, ones, ones)
    distances = torch.arange(n)[:, None] - torch.arange(n)
    cosines = (math.pi / 2 * distances.double() / longest).cos()
    close(w, (cosines / cosines.sum(-1, keepdim=True)).expand_as(w))
    assert (w > 0).all()


def test_weights_by_the_length_make_cosformers_past_depend_on_the_future():
    x = draw("cosformer", 1, 20, 0)
    for weights_by, same in (("max_length", True), ("length", False)):
        mechanism = make("cosformer", 0, causal=True, weights_by=weights_by)
        prefix = mechanism(*(t[:, :, :10] for t in x))
        assert torch.allclose(mechanism(*x)[:, :, :10], prefix, rtol=1e-9, atol=1e-12) == same
    with pytest.raises(ValueError, match="weights_by='length': has no recurrent form"):
        mechanism.prefill(*x)


@pytest.mark.parametrize("impl", ["reference", "chunked"])
def test_cosformer_refuses_what_is_longer_than_its_longest_length(impl):
    mechanism, x = make("cosformer", causal=True, impl=impl, max_length=5), draw("cosformer", 1, 6, 0)
    with pytest.raises(ValueError, match=r"^length=6: exceeds max_length=5$"):
        mechanism(*x)
    _, state = mechanism.prefill(*(t[:, :, :5] for t in x))
    with pytest.raises(ValueError, match=r"^length=6: exceeds max_length=5$"):
        mechanism.step(*(t[:, :, 5] for t in x), state)


# --- random projections ------------------------------------------------------------------------------------


@pytest.mark.parametrize("row_norms", ["chi", "sqrt"])
def test_the_rows_of_a_projection_are_orthogonal_in_blocks(row_norms):
    rows = orthogonal_rows(20, 8, row_norms, torch.Generator().manual_seed(0)).double()
    for block in rows.split(8):
        gram = block @ block.mT
        close(gram, gram.diagonal().diag(), 1e-5)
    if row_norms == "sqrt":
        close(rows.square().sum(-1), torch.full((20,), 8.0, dtype=torch.float64), 1e-5)


def test_each_orthogonal_row_is_a_standard_normal_vector():
    d, m = 4, 40_000
    rows = orthogonal_rows(m, d, "chi", torch.Generator().manual_seed(0)).double()
    # Means, second and fourth moments of N(0, 1), within five standard deviations: 1, 2 and 96 are their variances.
    for place in range(d):  # the place within a block too: QR as it comes is not uniform
        x = rows[place::d]
        for power, moment, variance in ((1, 0.0, 1.0), (2, 1.0, 2.0), (4, 3.0, 96.0)):
            assert ((x**power).mean(0) - moment).abs().max() <= 5 * math.sqrt(variance / len(x))


@pytest.mark.parametrize("name", ["performer", "rfa"])
def test_a_projection_is_drawn_anew_in_training_alone_and_after_as_many_passes(name):
    mechanism, x = make(name, 0, redraw_interval=3), draw(name, 1, 5, 0)
    seen = []
    for training in (False, False, *[True] * 7, False):
        mechanism.train(training)(*x)
        seen.append(mechanism.projection.omega.clone())
    changed = [not torch.equal(a, b) for a, b in itertools.pairwise(seen)]
    assert changed == [False, False, False, False, True, False, False, True, False]
    never = make(name, 0, redraw_interval=None).train()
    omega = never.projection.omega.clone()
    for _ in range(4):
        never(*x)
    assert torch.equal(never.projection.omega, omega)


@pytest.mark.parametrize("name", ["performer", "rfa"])
def test_a_run_resumed_from_the_state_dict_draws_as_it_would_have(name):
    one, two, x = (*(make(name, seed, redraw_interval=3).train() for seed in (0, 1)), draw(name, 1, 5, 0))
    two(*x)  # both have counted already
    for _ in range(2):
        one(*x)
    two.load_state_dict(one.state_dict())
    outputs = []
    for seed, mechanism in enumerate((one, two)):  # processes have random states of their own
        torch.manual_seed(seed)
        outputs.append([mechanism(*x) for _ in range(6)])
    for a, b in zip(*outputs, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", ["performer", "rfa"])
def test_draws_differ_from_each_other_and_between_seeds(name):
    mechanisms, x = [make(name, seed, redraw_interval=1).train() for seed in (0, 1)], draw(name, 1, 5, 0)
    seen = []
    for mechanism in mechanisms:
        for _ in range(4):
            mechanism(*x)
            seen.append(mechanism.projection.omega)
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(seen, 2))


def test_a_new_draw_leaves_the_gradient_of_an_earlier_pass_alone():
    mechanism, x = make("rfa", 0).train(), [t.requires_grad_() for t in draw("rfa", 1, 9, 0)]
    first, second = mechanism(*x), mechanism(*x)
    assert not torch.equal(first, second)
    (first.sum() + second.sum()).backward()
    assert all(t.grad.isfinite().all() for t in x)


def test_a_projection_is_made_without_memory_on_the_meta_device():
    with torch.device("meta"):
        assert RandomProjection((3, 20, 8), 1, orthogonal=True).omega.is_meta
        assert build("performer", {"heads": 2, "head_dim": 8}).projection.omega.is_meta


# --- the polynomial kernel ---------------------------------------------------------------------------------


@each_form
@pytest.mark.parametrize("impl", ["reference", "chunked"])
def test_the_polynomial_kernel_is_the_square_of_the_inner_product(causal, impl):
    mechanism = make("polynomial", 0, causal=causal, impl=impl)
    check_against_loops(mechanism, lambda h, q_i, k_j, i, j: float(q_i @ k_j) ** 2, causal, floor=1e-6)


def test_a_query_orthogonal_to_every_key_gives_zeros():
    q, k, v = draw("polynomial", 1, 5, 0)
    q[..., HEAD_DIM // 2 :], k[..., : HEAD_DIM // 2] = 0.0, 0.0
    assert (make("polynomial")(q, k, v) == 0).all()
