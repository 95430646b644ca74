"""ProbSparse attention: Algorithm 1 of the paper, its causal form, what the released one does."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mechanism_cases import draw, holes

from transnormer_lib.attention import build
from transnormer_lib.attention.informer import earlier_at_least

H, D = 2, 8


def make(**fields):
    attention = build("informer", {"heads": H, "head_dim": D, "chunk_size": 4, **fields})
    attention.reset_parameters(torch.Generator().manual_seed(0))
    return attention.double().eval()


def budget(c, n):
    return min(c * math.ceil(math.log(n)), n)


def transcription(attention, q, k, v, padding):
    """Algorithm 1 for one head, q, k, v [N, D], in loops over tokens; causal: once for the prefix of each token."""
    config = attention.config
    real = [i for i in range(len(q)) if not padding[i]]
    place = {i: r for r, i in enumerate(real)}

    def measured(i, keys):
        count = budget(config.sampling_factor, len(keys))
        sampled = [keys[int(attention.fractions_F[s] * len(keys))] for s in range(count)]
        scores = [float(q[i] @ k[j]) / math.sqrt(D) for j in sampled]
        divisor = count if config.mean_over == "sample" else len(keys)
        return max(scores) - sum(scores) / divisor if scores else -math.inf

    outputs = torch.zeros_like(v)
    for i in real:
        past = [j for j in real if j <= i] if config.causal else real
        among = past if config.causal and config.selection == "prefix" else real
        m = {j: measured(j, among[: place[j] + 1] if among is past and config.causal else among) for j in among}
        best = sorted(among, key=lambda j: (-m[j], j))[: budget(config.factor, len(among))]
        if i in best:
            p = torch.stack([q[i] @ k[j] / math.sqrt(D) for j in past]).softmax(0)
            outputs[i] = sum(p_j * v[j] for p_j, j in zip(p, past, strict=True))
        else:
            outputs[i] = sum(v[j] for j in past) / (len(past) if config.lazy == "mean" else 1)
    return outputs


@pytest.mark.parametrize("impl", ["reference", "chunked"])
@pytest.mark.parametrize("mean_over", ["sample", "length"])
@pytest.mark.parametrize(
    ("causal", "selection", "lazy"),
    [(False, "prefix", "mean"), (True, "prefix", "mean"), (True, "prefix", "sum"), (True, "sequence", "sum")],
)
def test_it_computes_algorithm_1(impl, mean_over, causal, selection, lazy):
    fields = {"causal": causal, "impl": impl, "mean_over": mean_over, "selection": selection, "lazy": lazy}
    attention = make(factor=1, sampling_factor=2, **fields)
    x, mask = draw("informer", 2, 31, 1), holes(2, 31, 1)
    o = attention(*x, mask)
    for b in range(2):
        expected = transcription(attention, *(t[b, 0] for t in x), mask[b])
        keep = ~mask[b]
        torch.testing.assert_close(o[b, 0, keep], expected[keep], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_where_every_query_is_selected_it_is_softmax_attention(causal):
    x, mask = draw("informer", 2, 30, 2), holes(2, 30, 2)
    softmax = build("softmax", {"heads": H, "head_dim": D, "causal": causal}).double()
    keep = ~mask[:, None, :, None]
    o, expected = (attention(*x, mask) * keep for attention in (make(causal=causal, factor=100), softmax))
    torch.testing.assert_close(o, expected)


def test_some_queries_are_selected_and_some_are_not():
    for causal in (False, True):
        w = make(causal=causal, factor=1).weights(*draw("informer", 1, 60, 3))
        seen = torch.ones(60, 60).tril().sum(-1) if causal else torch.full((60,), 60.0)
        lazy = torch.isclose(w.amax(-1), 1 / seen.double()).sum(-1)
        assert (lazy > 30).all()
        assert (lazy < 60).all()


@pytest.mark.parametrize("fields", [{"selection": "sequence"}, {"selection": "sequence", "lazy": "sum"}])
def test_the_released_selection_lets_the_future_through(fields):
    x = draw("informer", 1, 60, 4)
    attention = make(causal=True, factor=1, **fields)
    whole, prefix = attention(*x)[..., :40, :], attention(*(t[..., :40, :] for t in x))
    assert not torch.allclose(whole, prefix)


def test_a_causal_sequence_in_which_every_query_is_selected_is_served():
    """The worst case of the causal form: each query measures more than all before it."""
    n = 50
    q, k, v = draw("informer", 1, n, 5)
    q = torch.linspace(1, n, n, dtype=torch.float64)[:, None] * q[..., :1, :]
    attention = make(causal=True, factor=1)
    selected, _ = attention._selected(q, k[..., :1, :] * torch.rand(n, 1).double(), torch.ones(1, n, dtype=torch.bool))
    assert selected.sum() > n
    o = attention(q, k, v)
    torch.testing.assert_close(o, make(causal=True, factor=1, impl="reference")(q, k, v))


def test_training_samples_anew_and_evaluation_does_not():
    attention, x = make(factor=1, sampling_factor=1).train(), draw("informer", 1, 60, 6)
    kept = attention.fractions_F.clone()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        outputs = [attention(*x) for _ in range(4)]
        torch.manual_seed(0)
        assert torch.equal(attention(*x), outputs[0])
    assert not all(torch.equal(o, outputs[0]) for o in outputs)
    assert torch.equal(attention.fractions_F, kept)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=20))
def test_earlier_entries_that_are_at_least_as_large_are_counted(entries):
    expected = [sum(a >= b for a in entries[:i]) for i, b in enumerate(entries)]
    assert earlier_at_least(torch.tensor(entries, dtype=torch.float64)).tolist() == expected
