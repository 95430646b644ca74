"""LSH attention against transformers' LSHSelfAttention and reformer-pytorch's LSHAttention, the same rotations copied.

transformers is our ``chunking="across"``, ``duplicates="each"``: chunks of the whole sorted order, in which a query
sees the keys of other buckets too, and a key that two rounds find counts twice. Two differences: it lays its rounds end
to end, so that a round's first chunk looks back at the last chunk of the round before, where ours looks at the last of
its own; the test makes its ``_look_adjacent`` see one round at a time. And its padding takes part in that look back,
ours does not: the two agree where padding fills no chunk of its own.

reformer-pytorch, with ``allow_duplicate_attention=False`` and ``attend_across_buckets=False``, is our
``chunking="sorted"`` with ``duplicates="once"``, the paper's form, but for the look back of a round's first chunk,
which goes to the round before; another bucket's keys are hidden there, so this matters only to a bucket in both a
round's first and its last chunk, which these cases do not have. Its scores are divided by one more sqrt(D)
(``scaled``), its keys have length 1 exactly (``eps`` next to nothing). It takes the logarithm of whole numbers in the
default dtype, made float64 for it, and adds 1e-9 to them before: the tolerance is that.
"""

import pytest
import torch

from transnormer_lib.attention import build

H, D = 2, 8
each_causal = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
each_impl = pytest.mark.parametrize("impl", ["reference", "chunked"])


def ours(q, v, rotations_HRDb, mask=None, **fields):
    attention = build("reformer", {"heads": q.shape[1], "head_dim": q.shape[3], **fields}).double().eval()
    attention.rotations_HRDb.copy_(rotations_HRDb)
    return attention(q, torch.zeros_like(q), v, mask)


def heads(x, weight):
    return (x @ weight.T).unflatten(-1, (H, D)).transpose(1, 2)


@each_causal
@each_impl
@pytest.mark.parametrize(("n", "real", "hashes"), [(48, 48, 1), (48, 48, 3), (48, 43, 2), (8, 8, 2)])
def test_the_released_chunks_are_transformers_lsh_self_attention(causal, impl, n, real, hashes):
    reformer = pytest.importorskip("transformers.models.reformer.modeling_reformer")
    config = reformer.ReformerConfig(
        attention_head_size=D,
        num_attention_heads=H,
        hidden_size=H * D,
        lsh_attn_chunk_length=8,
        num_hashes=hashes,
        num_buckets=6,
        hash_seed=5,
        is_decoder=causal,
        attn_layers=["lsh"],
        lsh_attention_probs_dropout_prob=0.0,
    )

    class RoundByRound(reformer.LSHSelfAttention):
        def _look_adjacent(self, vectors, before, after):
            rounds = vectors.unflatten(2, (hashes, -1)).flatten(1, 2)
            return super()._look_adjacent(rounds, before, after).unflatten(1, (H, hashes)).flatten(2, 3)

    theirs = RoundByRound(config, layer_idx=0).double().eval()
    generator = torch.Generator().manual_seed(n + hashes)
    with torch.no_grad():
        for linear in (theirs.query_key, theirs.value):
            linear.weight.copy_(torch.randn(H * D, H * D, generator=generator) / 4)
    x = torch.randn(2, n, H * D, generator=generator, dtype=torch.float64)
    padding = (torch.arange(n) >= real).expand(2, -1)
    expected = theirs(x, attention_mask=None if real == n else (~padding).long()).hidden_states
    torch.manual_seed(5)
    rotations_HDRb = torch.randn(H, D, hashes, 3, dtype=torch.float64)
    actual = ours(
        heads(x, theirs.query_key.weight),
        heads(x, theirs.value.weight),
        rotations_HDRb.transpose(1, 2),
        None if real == n else padding,
        causal=causal,
        impl=impl,
        chunk_size=8,
        hashes=hashes,
        buckets=6,
        chunking="across",
        duplicates="each",
    )
    actual = actual.transpose(1, 2).flatten(2)
    torch.testing.assert_close(actual[:, :real], expected[:, :real], rtol=1e-9, atol=1e-9)


def of_reformer_pytorch(n, bucket_size, hashes, causal, seed=0):
    """(q, v, the output of reformer-pytorch's LSHAttention, its rotations)."""
    package = pytest.importorskip("reformer_pytorch.reformer_pytorch")
    theirs = package.LSHAttention(
        bucket_size=bucket_size,
        n_hashes=hashes,
        causal=causal,
        allow_duplicate_attention=False,
        attend_across_buckets=False,
    ).eval()
    generator = torch.Generator().manual_seed(seed)
    q, v = (2 * torch.randn(3, n, D, generator=generator, dtype=torch.float64) for _ in range(2))
    torch.manual_seed(seed)
    torch.set_default_dtype(torch.float64)
    try:
        expected, _, _ = theirs(q, v)
    finally:
        torch.set_default_dtype(torch.float32)
    torch.manual_seed(seed)
    rotations_DRb = torch.randn(1, D, hashes, n // bucket_size // 2, dtype=torch.float64)[0]
    return q[:, None], v[:, None], expected[:, None], rotations_DRb.transpose(0, 1)[None]


@each_causal
@each_impl
@pytest.mark.parametrize("hashes", [1, 2, 4])
def test_the_papers_chunks_are_reformer_pytorchs(causal, impl, hashes):
    q, v, expected, rotations = of_reformer_pytorch(64, 8, hashes, causal)
    fields = {"chunk_size": 8, "buckets": 8, "hashes": hashes, "chunking": "sorted"}
    actual = ours(q, v, rotations, causal=causal, impl=impl, scaled=True, eps=1e-30, **fields)
    torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-8)


@each_causal
@each_impl
def test_whole_buckets_are_reformer_pytorchs(causal, impl):
    """Two chunks that look at each other see all of a bucket, as ours does where a chunk may hold the sequence."""
    q, v, expected, rotations = of_reformer_pytorch(32, 16, 1, causal)
    fields = {"chunk_size": 32, "buckets": 2, "hashes": 1}
    actual = ours(q, v, rotations, causal=causal, impl=impl, scaled=True, eps=1e-30, **fields)
    torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-8)
