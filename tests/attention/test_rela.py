"""ReLA: the formula in plain Python, its two variants, DiagAttention with one block."""

import math

import pytest
import torch
from mechanism_cases import draw, holes

from transnormer_lib.attention import build

H, D = 2, 8


def make(**fields):
    attention = build("rela", {"heads": H, "head_dim": D, "chunk_size": 4, **fields})
    attention.reset_parameters(torch.Generator().manual_seed(0))
    return attention.double().eval()


@pytest.mark.parametrize("variant", ["g", "i"])
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("impl", ["reference", "chunked"])
def test_it_computes_the_papers_formula(variant, causal, impl):
    attention = make(variant=variant, causal=causal, impl=impl)
    (q, k, v), mask, n = draw("rela", 1, 17, 1), holes(1, 17, 1), 17
    o = attention(q, k, v, mask)[0].transpose(0, 1).flatten(1)
    gain, gate = attention.norm.norm.gain, attention.norm.gate
    for i in range(n):
        if mask[0, i]:
            continue
        z = torch.zeros(H, D, dtype=torch.float64)
        for h in range(H):
            for j in range(i + 1 if causal else n):
                if not mask[0, j]:
                    z[h] += max(0.0, float(q[0, h, i] @ k[0, h, j]) / math.sqrt(D)) * v[0, h, j]
        z = z.flatten()
        expected = gain * z / math.sqrt(float(z.square().mean()) + 1e-8)
        if variant == "g":
            expected = expected / (1 + torch.exp(-gate * z))
        torch.testing.assert_close(o[i], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_without_gate_and_gain_it_is_diag_attention_with_one_block(causal):
    x, mask = draw("rela", 2, 21, 2), holes(2, 21, 2)
    fields = {"heads": H, "head_dim": D, "causal": causal}
    diag = build("diag", {**fields, "block_size": 21, "scores": "rela"}).double()
    rela = make(causal=causal, variant="i")
    torch.nn.init.ones_(rela.norm.norm.gain)
    keep = ~mask[:, None, :, None]
    torch.testing.assert_close(rela(*x, mask) * keep, diag(*x, mask) * keep)


@pytest.mark.parametrize("variant", ["g", "i"])
def test_one_of_gate_and_gain_starts_small(variant):
    norm = make(variant=variant).norm
    bound = math.sqrt(3 / (H * D))
    small = norm.gate if variant == "g" else norm.norm.gain
    assert 0 < small.abs().max() <= bound
    assert small.std() > bound / 4
    if variant == "g":
        assert torch.equal(norm.norm.gain, torch.ones_like(norm.norm.gain))


def test_dropout_in_blocks_is_the_same_in_both_passes():
    """The backward pass makes each block's matrix again: its gradient has to be that of the output it belongs to."""
    attention = make(dropout=0.5).train()
    q, k, v = (x.requires_grad_() for x in draw("rela", 1, 11, 3))

    def o(v):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return attention(q, k, v)

    assert torch.autograd.gradcheck(o, [v], fast_mode=True)


@pytest.mark.parametrize("variant", ["rows", "rms", "none"])
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("impl", ["reference", "chunked"])
def test_the_squared_variants_compute_their_formula(variant, causal, impl):
    attention = make(variant=variant, power=2, causal=causal, impl=impl)
    (q, k, v), mask, n = draw("rela", 1, 11, 1), holes(1, 11, 1), 11
    o = attention(q, k, v, mask)[0].transpose(0, 1)
    for i in (i for i in range(n) if not mask[0, i]):
        keys = [j for j in range(i + 1 if causal else n) if not mask[0, j]]
        rows = []
        for h in range(H):
            weights = [max(0.0, float(q[0, h, i] @ k[0, h, j]) / math.sqrt(D)) ** 2 for j in keys]
            whole = sum(weights) if variant == "rows" and any(weights) else 1.0
            rows.append(sum(w / whole * v[0, h, j] for w, j in zip(weights, keys, strict=True)))
        z = torch.stack(rows)
        expected = z / math.sqrt(float(z.square().mean()) + 1e-8) if variant == "rms" else z
        torch.testing.assert_close(o[i], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("variant", ["rows", "rms", "none"])
def test_steps_of_the_squared_variants_compute_the_parallel_form(variant):
    attention = make(variant=variant, power=2, causal=True)
    q, k, v = draw("rela", 2, 9, 3)
    _, state = attention.prefill(q[:, :, :4], k[:, :, :4], v[:, :, :4])
    last = []
    for i in range(4, 9):
        o, state = attention.step(q[:, :, i], k[:, :, i], v[:, :, i], state)
        last.append(o)
    torch.testing.assert_close(torch.stack(last, 2), attention(q, k, v)[:, :, 4:].detach())
