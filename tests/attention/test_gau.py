"""GAU against its equations token by token, and what each normaliser makes of the rows."""

import math
from typing import get_args

import pytest
import torch
import torch.nn.functional as F
from mechanism_cases import HEAD_DIM, HEADS, draw, holes, make
from test_flash import close, rotate
from torch import Tensor

from transnormer_lib.attention import GAU
from transnormer_lib.attention.gau import Normaliser

DIM, S = HEADS * HEAD_DIM, 16
each_normaliser = pytest.mark.parametrize("normaliser", get_args(Normaliser))
both = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])


def by_the_equations(block: GAU, x: Tensor, mask: Tensor) -> Tensor:
    """One sequence [N, D], token by token: Sections 2.3 and 3 of Liu (2022), Tables 1 and 2."""
    config = block.config
    t = [F.silu(block.in_proj.weight @ token) for token in x]
    first = 2 * DIM if config.gate else 0  # where v begins

    def image(h: int, i: int) -> Tensor:
        y = block.gamma[h] * t[i][first + 2 * DIM :]
        y = y if block.beta is None else y + block.beta[h]
        return rotate(y, i) if config.rope else y

    rows = []
    for i in range(len(x)):
        keys = [j for j in range(len(x)) if not mask[j] and (j <= i or not config.causal)]
        n = len(keys)
        a = torch.stack([image(0, i) @ image(1, j) for j in keys]) / (math.sqrt(S) if config.scale else 1.0)
        squares = a.relu() ** 2
        weights = {
            "softmax_plus": lambda a=a, n=n: (a * math.log(max(n, config.min_keys), 512)).softmax(0),
            "softmax": lambda a=a: a.softmax(0),
            "relu2-n2": lambda a=squares, n=n: a / n**2,
            "relu2-n": lambda a=squares, n=n: a / n,
            "relu2-ns": lambda a=squares, n=n: a / (n * S),
            "relu2-s2": lambda a=squares: a / S**2,
            "relu2-scaled": lambda a=squares, n=n: a / (a.sum() * n * S) if a.any() else a,
            "relu2-rows": lambda a=squares: a / a.sum() if a.any() else a,
            "mean": lambda n=n: torch.full((n,), 1 / n, dtype=x.dtype),
        }[config.normaliser]()
        o = sum(w * t[j][first : first + 2 * DIM] for w, j in zip(weights, keys, strict=True))
        o = o / (o.square().mean() + 1e-8).sqrt() if config.norm_after else o
        rows.append(block.out_proj.weight @ (t[i][: 2 * DIM] * o if config.gate else o))
    return torch.stack(rows)


@pytest.mark.slow
@both
@each_normaliser
@pytest.mark.parametrize("impl", ["reference", "chunked"])
@pytest.mark.parametrize(
    "fields",
    [{}, {"scale": False, "offset": True, "rope": False}, {"min_keys": 16}, {"gate": False}, {"norm_after": True}],
)
def test_both_forms_compute_the_equations(normaliser, causal, impl, fields):
    n = 19
    block = make("gau", 1, causal=causal, impl=impl, normaliser=normaliser, **fields)
    (x,), mask = draw("gau", 2, n, 1), holes(2, n, 1)
    with torch.no_grad():
        actual = block(x, mask)
        for row in range(2):
            expected = by_the_equations(block, x[row].masked_fill(mask[row, :, None], 0.0), mask[row])
            close(actual[row][~mask[row]], expected[~mask[row]])


@each_normaliser
def test_steps_compute_the_parallel_form_with_every_normaliser(normaliser):
    block, (x,) = make("gau", 2, causal=True, normaliser=normaliser, token_shift=True), draw("gau", 2, 20, 2)
    first, state = block.prefill(x[:, :5])
    outputs = list(first.unbind(1))
    for i in range(5, 20):
        y, state = block.step(x[:, i], state)
        outputs.append(y)
    close(torch.stack(outputs, dim=1), block(x).detach())


@each_normaliser
def test_the_gradients_of_both_forms_agree_with_every_normaliser(normaliser):
    gradients = []
    for impl in ("reference", "chunked"):
        block, (x,) = make("gau", 3, causal=True, impl=impl, normaliser=normaliser), draw("gau", 2, 17, 3)
        block(x.requires_grad_()).square().sum().backward()
        gradients.append([x.grad, *(p.grad for p in block.parameters())])
    for reference, fast in zip(*gradients, strict=True):
        close(fast, reference)


@both
@pytest.mark.parametrize("normaliser", ["softmax_plus", "softmax", "relu2-scaled", "relu2-rows", "mean"])
def test_the_rows_sum_to_one_or_where_scaled_to_one_over_ns(normaliser, causal):
    block, (x,) = make("gau", 4, causal=causal, normaliser=normaliser), draw("gau", 1, 23, 4)
    matrix = block.weights(x)
    n = torch.arange(1.0, 24.0, dtype=torch.float64) if causal else torch.full((23,), 23.0, dtype=torch.float64)
    close(matrix.sum(-1)[0, 0], 1 / (n * S) if normaliser == "relu2-scaled" else torch.ones_like(n))


def test_softmax_plus_is_softmax_at_512_keys_and_flatter_below():
    (x,) = draw("gau", 1, 512, 5)
    plus, plain = (make("gau", 5, normaliser=name) for name in ("softmax_plus", "softmax"))
    close(plus(x), plain(x))

    def entropy(block: GAU) -> Tensor:
        matrix = block.weights(x[:, :64])
        return -(matrix * matrix.log()).sum(-1)

    assert (entropy(plus) > entropy(plain)).all()


def test_a_row_without_a_positive_score_is_zero_with_finite_gradients_where_scaled():
    block, (x,) = make("gau", 6, normaliser="relu2-scaled", offset=True, rope=False), draw("gau", 1, 9, 6)
    with torch.no_grad():
        block.gamma.zero_()
        block.beta[0], block.beta[1] = 1.0, -1.0  # every score is −s
    y = block(x.requires_grad_())
    assert not y.any()
    y.sum().backward()
    assert all(p.grad.isfinite().all() for p in (x, *block.parameters()))


@pytest.mark.parametrize("causal", [False, True])
def test_dropout_of_the_mean_leaves_out_entries_of_the_matrix(causal):
    (x,) = draw("gau", 1, 64, 7)
    spread = []
    for impl in ("reference", "chunked"):
        block = make("gau", 7, normaliser="mean", impl=impl, dropout=0.5, causal=causal).train()
        torch.manual_seed(0)
        spread.append(torch.stack([block(x) for _ in range(300)]).var(0).mean().item())
    assert spread[1] == pytest.approx(spread[0], rel=0.1)


@pytest.mark.parametrize("normaliser", ["softmax_plus", "relu2-n", "mean"])
@pytest.mark.parametrize("impl", ["reference", "chunked"])
def test_dropout_keeps_the_mean_of_the_matrix_in_training(normaliser, impl):
    (x,) = draw("gau", 1, 12, 7)
    block = make("gau", 7, normaliser=normaliser, impl=impl, dropout=0.3)
    expected = block(x)
    torch.manual_seed(0)
    samples = torch.stack([block.train()(x) for _ in range(500)])
    assert not torch.equal(samples[0], samples[1])
    error = (samples.mean(0) - expected).abs() / (samples.std(0) / 500**0.5)
    assert error.max() < 5.0
