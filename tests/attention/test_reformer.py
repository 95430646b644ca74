"""LSH attention: the equations of the paper, what its chunks let through, its rotations."""

import math

import pytest
import torch
from mechanism_cases import draw, holes

from transnormer_lib.attention import build

H, D = 2, 8


def make(**fields):
    attention = build("reformer", {"heads": H, "head_dim": D, "chunk_size": 3, "buckets": 4, **fields})
    attention.reset_parameters(torch.Generator().manual_seed(0))
    return attention.double().eval()


def transcription(attention, q, v, padding):
    """Eq. 4 to 11 for one head, q and v [N, D] of it and its rotations, in loops over tokens and rounds."""
    config, rotations_RDb = attention.config, attention.rotations_HRDb[0]
    n, m, real = len(q), config.chunk_size, [i for i in range(len(q)) if not padding[i]]
    hashed, chunk, last = [], [], []
    for rotation_Db in rotations_RDb:
        projected = [torch.cat([x @ rotation_Db, -(x @ rotation_Db)]) for x in q]
        hashed.append([int(x.argmax()) for x in projected])
        h = hashed[-1]
        if config.chunking == "bucket":
            chunk.append({i: sum(h[j] == h[i] for j in real if j < i) // m for i in real})
        else:
            order = sorted(real, key=lambda i: (h[i], i))
            chunk.append({i: order.index(i) // m for i in real})
        last.append(max(chunk[-1].values()))
    found = [[set() for _ in range(n)] for _ in hashed]
    for r, h in enumerate(hashed):
        for i in real:
            back = chunk[r][i] - 1
            if config.chunking != "bucket" and back < 0:
                back = last[r]
            for j in real:
                near = chunk[r][j] in (chunk[r][i], back) and not (config.causal and j > i)
                if near and (h[i] == h[j] or config.chunking == "across"):
                    found[r][i].add(j)
    outputs = torch.zeros_like(v)
    for i in real:
        logits, rounds = [], []
        for r in range(len(hashed)):
            terms = {}
            for j in found[r][i]:
                times = sum(j in other[i] for other in found) if config.duplicates == "once" else 1
                key = q[j] / (q[j].square().mean() + config.eps).sqrt() / math.sqrt(D)
                terms[j] = torch.tensor(-1e5, dtype=q.dtype) if i == j else q[i] @ key - math.log(times)
            z = torch.stack(list(terms.values())).logsumexp(0)
            logits.append(z)
            rounds.append(sum((s - z).exp() * v[j] for j, s in terms.items()))
        shares = torch.stack(logits).softmax(0)
        outputs[i] = sum(share * o for share, o in zip(shares, rounds, strict=True))
    return outputs


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("impl", ["reference", "chunked"])
@pytest.mark.parametrize("duplicates", ["once", "each"])
@pytest.mark.parametrize("chunking", ["bucket", "sorted", "across"])
def test_it_computes_the_papers_equations(causal, impl, duplicates, chunking):
    attention = make(causal=causal, impl=impl, duplicates=duplicates, chunking=chunking, hashes=3)
    q, k, v = draw("reformer", 2, 29, 1, scale=2.0)
    mask = holes(2, 29, 1)
    o = attention(q, k, v, mask)
    for b in range(2):
        expected = transcription(attention, q[b, 0], v[b, 0], mask[b])
        keep = ~mask[b]
        torch.testing.assert_close(o[b, 0, keep], expected[keep], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("chunking", ["sorted", "across"])
def test_chunks_of_the_whole_order_let_the_future_through_and_those_of_a_bucket_do_not(chunking):
    x = draw("reformer", 1, 40, 3)
    for form, leaks in ((chunking, True), ("bucket", False)):
        attention = make(causal=True, chunking=form)
        whole, prefix = attention(*x)[..., :25, :], attention(*(t[..., :25, :] for t in x))
        assert torch.allclose(whole, prefix) != leaks


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_a_token_attends_to_itself_only_where_it_has_nothing_else(causal):
    w = make(causal=causal).weights(*draw("reformer", 8, 7, 4))
    own = w.diagonal(dim1=-2, dim2=-1)
    assert set(own.unique().tolist()) == {0.0, 1.0}
    torch.testing.assert_close(w.sum(-1), torch.ones_like(own))


def test_keys_are_not_used_and_get_a_gradient_of_zero():
    q, k, v = (x.requires_grad_() for x in draw("reformer", 2, 20, 5))
    attention = make()
    o = attention(q, k, v)
    o.sum().backward()
    assert torch.equal(o, attention(q, 7 * k, v))
    assert not k.grad.any()


def test_training_draws_rotations_and_evaluation_keeps_them():
    attention, x = make().train(), draw("reformer", 1, 40, 6)
    kept = attention.rotations_HRDb.clone()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        one, two = attention(*x), attention(*x)
        torch.manual_seed(0)
        again = attention(*x)
    assert torch.equal(one, again)
    assert not torch.equal(one, two)
    assert torch.equal(attention.rotations_HRDb, kept)


@pytest.mark.parametrize(("max_length", "buckets"), [(4096, 128), (1024, 32), (1000, 16), (40, 2)])
def test_the_number_of_buckets_is_the_released_one_of_the_longest_length(max_length, buckets):
    attention = build("reformer", {"heads": 1, "head_dim": 4, "max_length": max_length})
    assert 2 * attention.rotations_HRDb.shape[-1] == buckets
    with pytest.raises(ValueError, match=rf"^length={max_length + 1}: exceeds max_length={max_length}$"):
        attention(*torch.zeros(3, 1, 1, max_length + 1, 4))


def test_an_odd_number_of_buckets_is_refused():
    with pytest.raises(ValueError, match=r"^buckets=5: must be even"):
        make(buckets=5)
