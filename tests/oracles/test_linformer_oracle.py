"""Linformer against lucidrains' linformer, weights copied, in float64.

What differs there, and is made equal here: its layer projects to q, k and v itself, without biases, and its output; the
test takes its layers. With ``share_kv`` its values are its keys, so the test gives ours the same. It has no mask: what
it computes of an input of zeros, whose key and value are zero, is what ours computes of padding.
"""

import pytest
import torch
from torch import Tensor

linformer = pytest.importorskip("linformer")

from transnormer_lib.attention import build  # noqa: E402

HEADS, HEAD_DIM, LONGEST, PROJECTED = 2, 8, 24, 5


@pytest.mark.parametrize("impl", ["reference", "chunked"])
@pytest.mark.parametrize("share_kv", [False, True])
@pytest.mark.parametrize("n", [24, 17, 1])
@pytest.mark.parametrize("padded", [(), (2, 9, 16)], ids=["whole", "padded"])
def test_it_computes_what_the_package_computes(impl, share_kv, n, padded):
    torch.manual_seed(0)
    theirs = linformer.LinformerSelfAttention(
        HEADS * HEAD_DIM, LONGEST, k=PROJECTED, heads=HEADS, share_kv=share_kv
    ).double()
    ours = build(
        "linformer",
        {
            "heads": HEADS,
            "head_dim": HEAD_DIM,
            "max_length": LONGEST,
            "projected": PROJECTED,
            "share_kv": share_kv,
            "impl": impl,
        },
    ).double()
    with torch.no_grad():
        ours.e_NP.copy_(theirs.proj_k)
        if not share_kv:
            ours.f_NP.copy_(theirs.proj_v)
    x = torch.randn(2, n, HEADS * HEAD_DIM, dtype=torch.float64)
    mask = torch.zeros(2, n, dtype=torch.bool)
    mask[:, [place for place in padded if place < n]] = True

    def split(y: Tensor) -> Tensor:
        return y.view(2, n, HEADS, HEAD_DIM).transpose(1, 2)

    to_v = theirs.to_k if share_kv else theirs.to_v
    o = ours(split(theirs.to_q(x)), split(theirs.to_k(x)), split(to_v(x)), mask if padded else None)
    actual = theirs.to_out(o.transpose(1, 2).flatten(2))
    expected = theirs(x.masked_fill(mask[..., None], 0.0))
    torch.testing.assert_close(actual[~mask], expected[~mask], rtol=1e-12, atol=1e-12)
