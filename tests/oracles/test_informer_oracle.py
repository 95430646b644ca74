"""ProbSparse attention against transformers' InformerProbSparseAttention, its sampled keys injected.

It samples one set of keys for all queries, with replacement, and c·L·⌈ln(1 + L)⌉ of them, cut off at L: so always L.
Ours samples as many with a large ``sampling_factor``, the same ones with fractions that name them. It takes ⌈ln(1 + L)⌉
where Informer's own code, and ours, takes ⌈ln L⌉: the two are equal at these lengths. As a decoder it selects by the
whole sequence and sums the values, ``selection="sequence"`` and ``lazy="sum"``, in float32: the values here are
multiples of 1/64, whose sums float32 holds exactly.
"""

import math

import pytest
import torch

from transnormer_lib.attention import build

H, D = 2, 8


@pytest.mark.parametrize("causal", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize("impl", ["reference", "chunked"])
@pytest.mark.parametrize(("n", "factor"), [(30, 1), (50, 2), (90, 5), (12, 5)])
def test_the_released_form_is_transformers_prob_sparse_attention(causal, impl, n, factor):
    informer = pytest.importorskip("transformers.models.informer.modeling_informer")
    assert math.ceil(math.log(n)) == math.ceil(math.log1p(n))
    theirs = informer.InformerProbSparseAttention(H * D, H, is_decoder=causal, sampling_factor=factor, bias=False)
    theirs = theirs.double().eval()
    generator = torch.Generator().manual_seed(n)
    with torch.no_grad():
        for linear in (theirs.q_proj, theirs.k_proj):
            linear.weight.copy_(torch.randn(H * D, H * D, generator=generator) / 2)
        for linear in (theirs.v_proj, theirs.out_proj):
            linear.weight.copy_(torch.eye(H * D))
    x = torch.randint(-128, 129, (2, n, H * D), generator=generator).double() / 64
    mask = torch.full((n, n), -1e300, dtype=torch.float64).triu(1).expand(2, 1, n, n) if causal else None
    torch.manual_seed(1)
    expected, _ = theirs(x, attention_mask=mask)
    torch.manual_seed(1)
    sampled = torch.randint(0, n, (n,))

    fields = {"selection": "sequence", "lazy": "sum", "mean_over": "length"} if causal else {}
    attention = build(
        "informer",
        {"heads": H, "head_dim": D, "causal": causal, "impl": impl, "factor": factor, "sampling_factor": n, **fields},
    ).double()
    attention.eval().fractions_F[:n] = (sampled + 0.5) / n
    q, k, v = (
        (x @ linear.weight.T).unflatten(-1, (H, D)).transpose(1, 2)
        for linear in (theirs.q_proj, theirs.k_proj, theirs.v_proj)
    )
    actual = attention(q, k, v).transpose(1, 2).flatten(2)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)
