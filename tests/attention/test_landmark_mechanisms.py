"""Linformer, Nyströmformer, kernelized attention, Skyformer and LARA: what is true of each of them alone."""

import itertools
import math

import pytest
import torch
from mechanism_cases import draw, holes, make, padding
from torch import Tensor

from transnormer_lib.attention import build
from transnormer_lib.attention.landmarks import schulz_inverse, segment_means, segment_sizes

each_impl = pytest.mark.parametrize("impl", ["reference", "chunked"])
masked = pytest.mark.parametrize("masked", [False, True], ids=["whole", "holes"])


def real_places(mask: Tensor | None, i: int, n: int) -> list[int]:
    return list(range(n)) if mask is None else (~mask[i]).nonzero()[:, 0].tolist()


# --- landmarks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("landmarks", [1, 3, 7, 64])
@pytest.mark.parametrize("count", [1, 2, 7, 20, 23])
def test_segments_cover_the_tokens_in_as_equal_parts_as_there_are_landmarks_or_tokens(landmarks, count):
    sizes = segment_sizes(landmarks, count)
    assert sum(sizes) == count
    assert len(sizes) == min(landmarks, count)
    assert sizes == sorted(sizes)
    assert max(sizes) - min(sizes) <= 1


def test_segments_are_of_real_tokens_by_rank():
    mask = torch.tensor([[False, True, False, False, True, False, False], [True] * 7])
    means, is_landmark, _ = segment_means(2, mask, torch.zeros(2, 1, 7, 1, dtype=torch.float64))
    assert is_landmark is not None
    assert is_landmark.flatten(1).tolist() == [[True, True], [False, False]]
    expected = torch.tensor([[1 / 2, 0, 1 / 2, 0, 0, 0, 0], [0, 0, 0, 1 / 3, 0, 1 / 3, 1 / 3]], dtype=torch.float64)
    torch.testing.assert_close(means[0, 0], expected)
    assert not means[1].any()


@pytest.mark.parametrize("iterations", [1, 6, 40])
def test_the_iterative_inverse_is_the_same_iteration_on_every_singular_value(iterations):
    a = torch.randn(2, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    bound = torch.tensor([60.0, 90.0], dtype=torch.float64)[:, None, None]
    u, sigma, vh = torch.linalg.svd(a)
    z = sigma / bound[..., 0]
    for _ in range(iterations):
        z = 0.25 * z * (13 - sigma * z * (15 - sigma * z * (7 - sigma * z)))
    torch.testing.assert_close(schulz_inverse(a, bound, iterations), vh.mT @ torch.diag_embed(z) @ u.mT)
    if iterations == 40:
        torch.testing.assert_close(schulz_inverse(a, bound, iterations), torch.linalg.inv(a))


# --- Linformer ----------------------------------------------------------------------------------------------


@each_impl
def test_linformer_that_projects_onto_every_token_is_softmax_attention(impl):
    linformer = make("linformer", projected=13, max_length=13, impl=impl)
    with torch.no_grad():
        linformer.e_NP.copy_(torch.eye(13))
        linformer.f_NP.copy_(torch.eye(13))
    x = draw("linformer", 2, 13, 0)
    torch.testing.assert_close(linformer(*x), make("softmax")(*x))


def test_linformer_refuses_what_is_longer_than_its_projections():
    with pytest.raises(ValueError, match=r"^length=65: exceeds max_length=64$"):
        make("linformer")(*draw("linformer", 1, 65, 0))


def test_linformer_with_shared_projections_has_one_matrix():
    assert [p.shape for p in make("linformer", share_kv=True).parameters()] == [(64, 5)]
    assert len(list(make("linformer").parameters())) == 2


@each_impl
def test_linformer_drops_its_softmax_and_shows_the_weights_before_that(impl):
    x = draw("linformer", 2, 11, 0)
    plain, dropped = (make("linformer", impl=impl, dropout=p) for p in (0.0, 0.5))
    assert torch.equal(plain(*x), dropped(*x))
    dropped.train()
    assert not torch.equal(plain(*x), dropped(*x))
    torch.testing.assert_close(dropped.weights(*x), plain.weights(*x))


# --- Nyströmformer ------------------------------------------------------------------------------------------


@each_impl
@masked
def test_nystromformer_with_a_landmark_for_every_token_is_softmax_attention(impl, masked):
    x, mask = draw("nystromformer", 2, 11, 0, scale=2.0), holes(2, 11, 0) if masked else None
    nystrom = make("nystromformer", impl=impl, landmarks=16, iterations=60, conv_kernel=None)
    o, expected = nystrom(*x, mask), make("softmax")(*x, mask)
    keep = ~mask[:, None, :, None] if masked else torch.tensor(True)
    torch.testing.assert_close(o * keep, expected * keep, rtol=1e-6, atol=1e-6)


@each_impl
def test_nystromformers_convolution_adds_neighbouring_values(impl):
    x, mask = draw("nystromformer", 2, 11, 0), holes(2, 11, 0)
    with_it = make("nystromformer", impl=impl)
    without = make("nystromformer", impl=impl, conv_kernel=None)
    difference, v = with_it(*x, mask) - without(*x, mask), x[2] * ~mask[:, None, :, None]
    for b, h, i in [(0, 0, 0), (0, 1, 5), (1, 0, 6), (1, 1, 10)]:
        if mask[b, i]:
            continue
        expected = sum(with_it.conv_HW[h, w] * v[b, h, i + w - 2] for w in range(5) if 0 <= i + w - 2 < 11)
        torch.testing.assert_close(difference[b, h, i], expected)


# --- kernelized attention and Skyformer ---------------------------------------------------------------------


def kernel(x: Tensor, y: Tensor) -> float:
    return math.exp(-sum((a - b) ** 2 for a, b in zip(x.tolist(), y.tolist(), strict=True)) / (2 * math.sqrt(len(x))))


@each_impl
@masked
def test_kernelized_attention_sums_the_values_by_their_gaussian_kernel(impl, masked):
    (q, k, v), mask = draw("kernelized", 2, 7, 0), holes(2, 7, 0) if masked else None
    o = make("kernelized", impl=impl)(q, k, v, mask)
    for b in range(2):
        places = real_places(mask, b, 7)
        for h in range(2):
            for i in places:
                expected = sum(kernel(q[b, h, i], k[b, h, j]) * v[b, h, j] for j in places)
                torch.testing.assert_close(o[b, h, i], expected)


@each_impl
@masked
@pytest.mark.parametrize("iterations", [1, 6, 30])
def test_skyformer_is_the_nystrom_formula_entry_by_entry(impl, masked, iterations):
    """B̄ S (Sᵀ B̄ S + γ I)⁺ Sᵀ B̄. Few iterations are those on the eigenvalues of D^{-1/2} M D^{-1/2}, in (0, 1]."""
    n, half = 19, 4
    (q, k, v), mask = draw("skyformer", 2, n, 0), holes(2, n, 0) if masked else None
    o = make("skyformer", impl=impl, landmarks=2 * half, iterations=iterations)(q, k, v, mask)
    for b in range(2):
        real = real_places(mask, b, n)
        spread = [real[i * len(real) // half] for i in range(half)]
        for h in range(2):
            x = [*q[b, h, spread], *k[b, h, spread]]
            m = torch.tensor([[kernel(y, z) + 0.1 * (y is z) for z in x] for y in x], dtype=torch.float64)
            of_q = torch.tensor([[kernel(q[b, h, i], z) for z in x] for i in real], dtype=torch.float64)
            of_k = torch.tensor([[kernel(z, k[b, h, j]) for j in real] for z in x], dtype=torch.float64)
            inverse = torch.linalg.pinv(m)
            if iterations < 30:
                d = torch.diag(m.sum(1) ** -0.5)
                scaled = d @ m @ d
                lam, u = torch.linalg.eigh(scaled)
                assert lam.min() > 0
                assert lam.max() <= 1 + 1e-12
                z = lam / scaled.sum(0).max()
                for _ in range(iterations):
                    z = 0.25 * z * (13 - lam * z * (15 - lam * z * (7 - lam * z)))
                inverse = d @ u @ torch.diag(z) @ u.mT @ d
            torch.testing.assert_close(o[b, h, real], of_q @ inverse @ of_k @ v[b, h, real])


@each_impl
@masked
def test_skyformer_with_every_token_a_landmark_is_kernelized_attention(impl, masked):
    x, mask = draw("skyformer", 2, 11, 0, scale=2.0), holes(2, 11, 0) if masked else None
    skyformer = make("skyformer", impl=impl, landmarks=22, iterations=60, ridge=1e-12)
    keep = ~mask[:, None, :, None] if masked else torch.tensor(True)
    torch.testing.assert_close(skyformer(*x, mask) * keep, make("kernelized")(*x, mask) * keep, rtol=1e-6, atol=1e-6)


def test_skyformer_draws_other_landmarks_in_every_training_pass_real_and_each_once():
    skyformer, x, mask = make("skyformer").train(), draw("skyformer", 3, 20, 0), holes(3, 20, 0)
    mask[2] = padding(1, 20, 5)[0]  # fewer tokens than landmarks
    drawn = []
    for _ in range(3):
        places, is_landmark = skyformer.places(mask, x[0])
        assert is_landmark.sum(1).tolist() == [7, 7, 5]
        for b in range(3):
            for kind in range(2):
                chosen = places[b, kind, is_landmark[b]].tolist()
                assert len(set(chosen)) == len(chosen)
                assert not mask[b, chosen].any()
        drawn.append(places)
    assert not torch.equal(drawn[0], drawn[1])
    assert not torch.equal(skyformer(*x, mask), skyformer(*x, mask))
    skyformer.eval()
    assert torch.equal(skyformer.places(mask, x[0])[0], skyformer.places(mask, x[0])[0])


@pytest.mark.parametrize("name", ["nystromformer", "skyformer"])
@each_impl
def test_the_norms_of_a_batch_of_one_head_are_those_of_its_matrix(name, impl):
    x = draw(name, 1, 23, 0)
    one = [t[:, :1] for t in x]
    matrix, batch = (make(name, impl=impl, heads=1, norms_of=of) for of in ("matrix", "batch"))
    torch.testing.assert_close(matrix(*one), batch(*one))
    # After one iteration, since both find the same inverse in the end.
    matrix, batch = (make(name, impl=impl, iterations=1, norms_of=of) for of in ("matrix", "batch"))
    assert not torch.allclose(matrix(*x), batch(*x))


@pytest.mark.parametrize("name", ["nystromformer", "skyformer"])
def test_both_forms_agree_on_the_norms_of_a_batch(name):
    x, mask = draw(name, 3, 23, 0), holes(3, 23, 0)
    options = {"norms_of": "batch", "iterations": 1}
    fast, reference = (make(name, impl=impl, **options)(*x, mask) for impl in ("chunked", "reference"))
    keep = ~mask[:, None, :, None]
    torch.testing.assert_close(fast * keep, reference * keep)


# --- LARA ---------------------------------------------------------------------------------------------------


@each_impl
@masked
@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize(
    "options",
    [{}, {"coefficient": 2.0, "noise": "unit"}, {"weighting": "balance"}, {"landmark_map": False}],
    ids=["default", "released", "balance", "plain-means"],
)
def test_lara_is_the_estimator_of_its_equations(impl, masked, training, options):
    n, landmarks, d = 10, 4, 8
    (q, k, v), mask = draw("lara", 2, n, 0), holes(2, n, 0) if masked else None
    lara = make("lara", impl=impl, landmarks=landmarks, **options).train(training)
    std = 0.0 if not training else 1.0 if options.get("noise") == "unit" else d**0.25
    with torch.random.fork_rng():
        torch.manual_seed(5)
        o = lara(q, k, v, mask)
        torch.manual_seed(5)
        noise = std * torch.randn(2, 2, landmarks, d, dtype=torch.float64)
    for b in range(2):
        real = real_places(mask, b, n)
        for h in range(2):
            expected = lara_by_loops(lara, q[b, h, real], k[b, h, real], v[b, h, real], noise[b, h])
            torch.testing.assert_close(o[b, h, real], expected, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def lara_by_loops(lara, q: Tensor, k: Tensor, v: Tensor, noise: Tensor) -> Tensor:
    """o [L, D] of one sequence of at least as many tokens as landmarks, densities and all."""
    (n, d), landmarks, sigma2 = q.shape, lara.config.landmarks, math.sqrt(q.shape[1])

    def xi(x: Tensor, omega: Tensor) -> float:
        return math.exp(float(x @ omega) / sigma2 - float(x @ x) / (2 * sigma2))

    def normal(omega: Tensor, mu: Tensor | float) -> float:
        square = float((omega - mu).square().sum())
        return math.exp(-square / (2 * sigma2)) / (2 * math.pi * sigma2) ** (d / 2)

    starts = [0]
    for size in segment_sizes(landmarks, n):
        starts.append(starts[-1] + size)
    segments = [slice(a, b) for a, b in itertools.pairwise(starts)]
    q_c = [lara.map_q(q)[s].mean(0) for s in segments]
    mu = [a + lara.map_k(k)[s].mean(0) for a, s in zip(q_c, segments, strict=True)]
    omega = [m + e for m, e in zip(mu, noise, strict=True)]
    f = []
    for w in omega:
        weights = [xi(k[j], w) for j in range(n)]
        f.append(sum(weights[j] * v[j] for j in range(n)) / sum(weights))
    t = []  # [C][N]
    for c in range(landmarks):
        similar = [math.exp(float(q[i] @ q_c[c]) / sigma2) for i in range(n)]
        t.append([s / sum(similar) for s in similar])
    result = []
    for i in range(n):
        w_i = []
        for c in range(landmarks):
            own = normal(omega[c], mu[c])
            alpha = own / sum(normal(omega[c], m) for m in mu)
            if lara.config.weighting == "optimal":
                mean_t = sum(t[e][i] for e in range(landmarks)) / landmarks
                alpha = max(alpha + lara.config.coefficient * (t[c][i] - mean_t), 1e-8)
            p = normal(omega[c], 0.0) * xi(q[i], omega[c]) * sum(xi(k[j], omega[c]) for j in range(n))
            w_i.append(alpha * p / own)
        result.append(sum(w * f_c for w, f_c in zip(w_i, f, strict=True)) / sum(w_i))
    return torch.stack(result)


def test_laras_weights_are_averages_of_values():
    x, mask = draw("lara", 2, 23, 0), holes(2, 23, 0)
    w = make("lara").weights(*x, mask)
    assert (w >= 0).all()
    rows = w.sum(-1).transpose(1, 2)[~mask]
    torch.testing.assert_close(rows, torch.ones_like(rows))


def test_lara_with_many_samples_is_softmax_attention_where_they_come_from_its_proposals():
    """A sequence repeated 300 times has the same attention, and LARA 300 samples of each token's proposal.

    With noise of variance 1, as released, the samples are not those that the weights speak of.
    """
    n, repeats, d = 4, 300, 16
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 1, n, d, generator=generator, dtype=torch.float64) for _ in range(3))
    options = {"heads": 1, "head_dim": d, "landmarks": n * repeats, "weighting": "balance", "landmark_map": False}
    expected = build("softmax", {"heads": 1, "head_dim": d})(q, k, v)
    error = {}
    for noise in ("proposal", "unit"):
        lara = build("lara", {**options, "noise": noise}).double().train()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            o = sum(lara(*(x.repeat(1, 1, repeats, 1) for x in (q, k, v)))[:, :, :n] for _ in range(4)) / 4
        error[noise] = float((o - expected).norm() / expected.norm())
    assert error["proposal"] < 0.05
    assert error["unit"] > 3 * error["proposal"]


@pytest.mark.parametrize(
    ("name", "field", "value"), [("nystromformer", "conv_kernel", 4), ("skyformer", "landmarks", 7)]
)
def test_a_setting_of_the_wrong_parity_is_named(name, field, value):
    with pytest.raises(ValueError, match=f"^{field}={value!r}: ") as caught:
        make(name, **{field: value})
    assert "\n" not in str(caught.value)
