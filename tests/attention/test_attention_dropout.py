"""Dropout of the attention matrix: in training mode alone, and right on average."""

import pytest
import torch
from attention_cases import draw_mask, draw_qkv, make

from transnormer_lib.attention import build, masked_softmax

each_variant = pytest.mark.parametrize("variant", ["softmax", "diag-softmax", "diag-rela-no-norm"])
each_impl = pytest.mark.parametrize("impl", ["reference", "chunked"])


@each_variant
@each_impl
def test_in_evaluation_mode_it_changes_nothing(variant, impl):
    qkv = draw_qkv(2, 2, 11, 4, seed=0)
    plain, dropped = (make(variant, 2, 4, chunk=4, causal=True, impl=impl, dropout=p).eval() for p in (0.0, 0.5))
    assert torch.equal(dropped(*qkv), plain(*qkv))
    dropped.train()
    assert not torch.equal(dropped(*qkv), plain(*qkv))


@each_variant
@pytest.mark.parametrize("rotary", ["none", "rope", "lrpe"])
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_in_evaluation_mode_masks_and_steps_see_nothing_of_it(variant, rotary, causal):
    qkv, mask = draw_qkv(2, 2, 11, 4, seed=0), draw_mask(2, 11, seed=0)
    plain, dropped = (make(variant, 2, 4, 4, causal=causal, rotary=rotary, dropout=p).eval() for p in (0.0, 0.5))
    assert torch.equal(dropped(*qkv, mask), plain(*qkv, mask))
    if not causal:
        return
    results = []
    for attention in (plain, dropped):
        _, state = attention.prefill(*qkv)
        results.append(attention.step(*(x[:, :, 3] for x in qkv), state)[0])
    assert torch.equal(*results)


@each_variant
def test_steps_drop_in_training_mode(variant):
    attention = make(variant, 1, 4, 8, causal=True, dropout=0.5).train()
    qkv = draw_qkv(1, 1, 7, 4, seed=0)
    outputs = []
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for _ in range(8):
            _, state = attention.prefill(*qkv)
            outputs.append(attention.step(*(x[:, :, 3] for x in qkv), state)[0])
    assert not all(torch.equal(o, outputs[0]) for o in outputs)


@each_variant
@each_impl
def test_without_a_probability_training_mode_changes_nothing(variant, impl):
    qkv = draw_qkv(2, 2, 11, 4, seed=0)
    attention = make(variant, 2, 4, chunk=4, impl=impl)
    assert torch.equal(attention.train()(*qkv), attention.eval()(*qkv))


@each_variant
@each_impl
@pytest.mark.parametrize("masked", [False, True], ids=["unmasked", "masked"])
def test_the_mean_of_many_draws_is_the_output_without_dropout(variant, impl, masked):
    draws, p = 4000, 0.3
    q, k, v = draw_qkv(1, 1, 6, 4, seed=1)
    mask = torch.tensor([[False, True, False, False, False, False]]).expand(draws, -1) if masked else None
    attention = make(variant, 1, 4, chunk=4, causal=True, impl=impl, dropout=p)
    many = [x.expand(draws, -1, -1, -1) for x in (q, k, v)]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        outputs = attention.train()(*many, mask)
    expected = attention.eval()(q, k, v, None if mask is None else mask[:1])[0]
    # six standard errors: beyond that a right mean falls about once in 10^9 numbers
    band = 6 * outputs.std(0) / draws**0.5
    assert outputs.std(0).max() > 0
    assert ((outputs.mean(0) - expected).abs() <= band + 1e-12).all()


@each_impl
@pytest.mark.parametrize("p", [0.25, 0.5])
def test_an_entry_is_zero_or_divided_by_what_is_kept(impl, p):
    n = 16
    q, k, _ = draw_qkv(1, 1, n, n, seed=2)
    one_hot = torch.eye(n, dtype=torch.float64)[None, None]  # with it the output is the matrix
    attention = make("softmax", 1, n, impl=impl, dropout=p).train()
    matrix = masked_softmax(q @ k.mT * n**-0.5, None)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        kept = attention(q, k, one_hot) / matrix
    assert torch.all((kept == 0) | ((kept - 1 / (1 - p)).abs() < 1e-12))
    assert abs((kept == 0).double().mean().item() - p) < 6 * (p * (1 - p) / n**2) ** 0.5


@each_variant
def test_weights_are_shown_before_dropout(variant):
    qkv = draw_qkv(1, 2, 7, 4, seed=3)
    attention = make(variant, 2, 4, chunk=4, dropout=0.5)
    assert torch.equal(attention.train().weights(*qkv), attention.eval().weights(*qkv))


@pytest.mark.parametrize("name", ["softmax", "diag"])
@pytest.mark.parametrize("value", [-0.1, 1.0, 1.5, float("nan"), True, "0.1"], ids=str)
def test_what_is_no_probability_below_one_is_refused(name, value):
    with pytest.raises(ValueError, match=r"dropout=.*: must be in \[0, 1\)"):
        build(name, {"heads": 1, "head_dim": 2, "dropout": value})


@pytest.mark.parametrize("name", ["linear", "linear-unscaled", "norm"])
def test_linear_kinds_have_no_matrix_to_drop_from(name):
    with pytest.raises(ValueError, match=r"dropout=0\.1: '.*' has no such field"):
        build(name, {"heads": 1, "head_dim": 2, "dropout": 0.1})
