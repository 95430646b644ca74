"""Longformer, BigBird and Transformer-LS: what each computes, beside what holds for every mechanism."""

import math

import pytest
import torch
import torch.nn.functional as F
from mechanism_cases import HEADS, draw, make

from transnormer_lib.attention import build


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


# --- Longformer -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
def test_longformer_whose_window_covers_the_sequence_is_softmax_attention(causal):
    q, k, v = draw("longformer", 2, 17, 0)
    longformer = make("longformer", causal=causal, window=34, global_tokens=0)
    close(longformer(q, k, v), F.scaled_dot_product_attention(q, k, v, is_causal=causal))


def test_longformer_starts_with_global_projections_that_are_copies_of_the_local_ones():
    q, k, v = draw("longformer", 2, 17, 0)
    fields = {"heads": HEADS, "head_dim": q.shape[-1], "window": 4, "global_tokens": 2}
    with_, without = (build("longformer", {**fields, "global_projections": x}).double() for x in (True, False))
    close(with_(q, k, v), without(q, k, v))


def test_longformer_sees_half_a_window_on_either_side_and_the_global_tokens():
    w = make("longformer", window=6, global_tokens=2).weights(*draw("longformer", 1, 20, 0))
    assert w[0, 0, 10].nonzero().flatten().tolist() == [0, 1, *range(7, 14)]
    assert w[0, 0, 1].all()
    w = make("longformer", window=6, causal=True, global_tokens=None).weights(*draw("longformer", 1, 20, 0))
    assert w[0, 0, 10].nonzero().flatten().tolist() == [*range(5, 11)]


def test_longformer_steps_without_global_tokens_as_it_reads():
    x = draw("longformer", 2, 25, 0)
    longformer = make("longformer", causal=True, window=6, global_tokens=0)
    expected = longformer(*x)
    _, state = longformer.prefill(*(t[:, :, :3] for t in x))
    for i in range(3, 25):
        o, state = longformer.step(*(t[:, :, i] for t in x), state)
        close(o, expected[:, :, i])


# --- BigBird ----------------------------------------------------------------------------------------------


def test_bigbird_on_a_short_sequence_is_softmax_attention():
    q, k, v = draw("bigbird", 2, 28, 0)
    close(make("bigbird", block_size=4, random_blocks=1)(q, k, v), F.scaled_dot_product_attention(q, k, v))


def test_random_blocks_are_distinct_and_new_to_their_row():
    bigbird, lengths = make("bigbird", random_blocks=3, block_size=4), torch.tensor([12, 17, 40])
    plan = bigbird.plan(lengths, 40)
    for count, of_sequence in zip(lengths.tolist(), plan.tolist(), strict=True):
        for head in of_sequence:
            for row in range(1, count - 1):
                drawn = head[row]
                assert len(set(drawn)) == 3
                assert not {0, count - 1, row - 1, row, row + 1} & set(drawn)
                assert all(0 < block < count - 1 for block in drawn)
    assert plan[2, 0].tolist() != plan[2, 1].tolist()  # heads differ
    assert plan.tolist() != make("bigbird", seed=1, random_blocks=3, block_size=4).plan(lengths, 40).tolist()


def test_random_blocks_are_uniform():
    counts = torch.zeros(20)
    for seed in range(400):
        drawn = make("bigbird", seed=seed, random_blocks=3, block_size=4).plan(torch.tensor([20]), 20)[0, :, 9]
        counts += torch.bincount(drawn.flatten(), minlength=20)
    legal = [b for b in range(1, 19) if b not in (8, 9, 10)]
    expected = 400 * HEADS * 3 / len(legal)
    assert counts.sum() == counts[legal].sum()
    chi_squared = float(((counts[legal] - expected) ** 2 / expected).sum())
    assert chi_squared < 36.1  # 99.9% of 14 degrees of freedom


def test_bigbird_sees_its_window_both_ends_and_its_random_blocks():
    bigbird = make("bigbird", block_size=2, random_blocks=1)
    w = bigbird.weights(*draw("bigbird", 1, 39, 0))  # 20 blocks, the last of a single token
    drawn = int(bigbird.plan(torch.tensor([20]), 20)[0, 1, 7, 0])
    expected = sorted({t for block in (0, 6, 7, 8, 19, drawn) for t in (2 * block, 2 * block + 1) if t < 39})
    assert w[0, 1, 15].nonzero().flatten().tolist() == expected
    assert w[0, 1, 38].all()


# --- Transformer-LS ---------------------------------------------------------------------------------------


def normed(norm, heads):
    """A LayerNorm over the numbers of all heads of one token, given as a list of vectors."""
    together = torch.cat(list(heads))
    centred = together - together.mean()
    return (centred / (centred.square().mean() + 1e-5).sqrt() * norm.gain + norm.bias).view(len(heads), -1)


def transcribed(m, q, k, v):
    """Eq. 3 and 6 of Zhu et al. over one sequence q, k, v [H, N, D], token by token."""
    c, (h, n, d) = m.config, q.shape
    w, r, size = c.near, c.columns, c.segment_size if c.causal else n
    weight, bias = m.to_columns.weight.view(h, r, h * d), m.to_columns.bias.view(h, r)
    local_k, local_v = ([normed(m.local_norm, x[:, j]) for j in range(n)] for x in (k, v))
    logit_of = [torch.cat(list(k[:, j])) for j in range(n)]  # of the keys as they came, in either order
    if c.normalise_first:
        k, v = torch.stack(local_k, 1), torch.stack(local_v, 1)
    far = []  # (segment, keys [H, D], values [H, D])
    for start in range(0, n, size):
        tokens = range(start, min(start + size, n))
        for column in range(r):
            key, value = [], []
            for a in range(h):
                logits = torch.stack([weight[a, column] @ logit_of[j] + bias[a, column] for j in tokens])
                p = logits.exp() / logits.exp().sum()
                key.append(sum(p[i] * k[a, j] for i, j in enumerate(tokens)))
                value.append(sum(p[i] * v[a, j] for i, j in enumerate(tokens)))
            far.append((start // size, normed(m.global_norm, key), normed(m.global_norm, value)))

    def wave(distance):
        angles = [distance / 10_000 ** (2 * i / (h * d)) for i in range(h * d // 2)]
        return torch.tensor([math.sin(x) for x in angles] + [math.cos(x) for x in angles], dtype=q.dtype)

    o = torch.zeros_like(q)
    for i in range(n):
        own = i // size
        if c.causal:
            near = [j for j in range(n) if 0 <= i - j < w]
            seen = [s for s, (segment, _, _) in enumerate(far) if own - c.memory // size <= segment < own]
        else:
            segment = range(i // w * w, i // w * w + w)
            near = [j for j in range(n) if segment[0] - w // 2 <= j <= segment[-1] + w // 2]
            seen = list(range(len(far)))
        for a in range(h):
            query, scores, values = q[a, i] / d**0.5, [], []
            for s in seen:
                score = query @ far[s][1][a]
                if m.relative is not None:
                    back = own * r - 1 - s
                    score = score + query @ (m.relative.far_weight @ wave(back) + m.relative.far_bias).view(h, d)[a]
                scores.append(score)
                values.append(far[s][2][a])
            for j in near:
                score = query @ local_k[j][a]
                if m.relative is not None:
                    rotated = (m.relative.near_weight @ wave(i - j)).view(h, d)[a]
                    u, u_position = m.relative.content_bias[a], m.relative.position_bias[a]
                    score = (query + u) @ local_k[j][a] + (query + u_position) @ rotated
                scores.append(score)
                values.append(local_v[j][a])
            p = torch.stack(scores).exp()
            o[a, i] = (p / p.sum()) @ torch.stack(values)
    return o


@pytest.mark.parametrize(("causal", "normalise_first"), [(False, False), (False, True), (True, False)])
@pytest.mark.parametrize("impl", ["reference", "chunked"])
def test_transformer_ls_is_equation_6_token_by_token(impl, causal, normalise_first):
    q, k, v = draw("transformer-ls", 1, 23, 0)
    mechanism = make("transformer-ls", impl=impl, causal=causal, normalise_first=normalise_first, rank=2)
    with torch.no_grad():
        close(mechanism(q, k, v)[0], transcribed(mechanism, q[0], k[0], v[0]))


def test_a_compressed_segment_is_seen_from_the_next_segment_on_and_no_longer_than_the_memory():
    mechanism = make("transformer-ls", causal=True, window=1, rank=1, segment_size=4, memory=8)
    w = mechanism.weights(*draw("transformer-ls", 1, 20, 0))
    assert w[0, 0, 7].nonzero().flatten().tolist() == [0, 1, 2, 3, 7]
    assert w[0, 0, 17].nonzero().flatten().tolist() == [*range(8, 16), 17]


def test_the_bias_of_the_dynamic_projection_cancels():
    mechanism, x = make("transformer-ls"), draw("transformer-ls", 1, 20, 0)
    before = mechanism(*x)
    with torch.no_grad():
        mechanism.to_columns.bias += 3.0
    close(mechanism(*x), before)


# --- configs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "fields", "match"),
    [
        ("longformer", {"window": 5}, "window=5: must be even"),
        ("longformer", {"global_tokens": -1}, "global_tokens=-1: must be a whole number of at least 0"),
        ("transformer-ls", {"memory": 10, "segment_size": 4}, "memory=10: must be a multiple"),
        ("transformer-ls", {"causal": True, "reach": 2}, "reach=2: is of the bidirectional form"),
        ("transformer-ls", {"causal": True, "normalise_first": True}, "normalise_first=True: is of the bidirectional"),
        ("transformer-ls", {"relative_positions": True}, "relative_positions=True: only the causal form"),
    ],
)
def test_a_setting_that_does_not_fit_is_refused_in_one_line(name, fields, match):
    with pytest.raises(ValueError, match=match) as caught:
        make(name, **fields)
    assert "\n" not in str(caught.value)
