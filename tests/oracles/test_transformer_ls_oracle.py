"""Transformer-LS against lucidrains' LongShortAttention, copied weights.

What differs there, and how it is met. Keys and values are one projection: k = v here. Norms run over single heads: one
head. It rotates queries, keys and values and cannot do without: its rotation gets the angle zero. A segment sees
whole segments on either side: ``reach`` is set to the window. There are no relative positions: switched off.
"""

import pytest
import torch
from torch import nn

from transnormer_lib.attention import TransformerLSAttention, TransformerLSConfig

package = pytest.importorskip("long_short_transformer")


class NoAngles(nn.Module):
    def forward(self, positions, cache_key=None):
        return torch.zeros(len(positions), 2, dtype=torch.float64)


def pair(causal, window, n, **fields):
    torch.manual_seed(0)
    dim = 8
    rank = fields["rank"]
    theirs = package.LongShortAttention(
        dim=dim,
        heads=1,
        dim_head=dim,
        causal=causal,
        window_size=window,
        segment_size=fields.get("segment_size", 16),
        r=rank,
        pos_emb=NoAngles(),
    )
    theirs = theirs.double().eval()
    ours = TransformerLSAttention(
        TransformerLSConfig(1, dim, causal=causal, window=window, relative_positions=False, **fields)
    )
    ours = ours.double().eval()
    with torch.no_grad():
        for norm in (theirs.local_norm, theirs.global_norm):
            norm.weight.normal_()
            norm.bias.normal_()
        theirs.to_dynamic_proj.weight.mul_(3)
        ours.to_columns.weight.copy_(theirs.to_dynamic_proj.weight)
        for norm, source in ((ours.local_norm, theirs.local_norm), (ours.global_norm, theirs.global_norm)):
            norm.gain.copy_(source.weight)
            norm.bias.copy_(source.bias)
    x = torch.randn(2, n, dim, dtype=torch.float64)
    q, k = theirs.to_q(x)[:, None], theirs.to_kv(x)[:, None]
    return theirs, ours, x, q, k


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("impl", ["reference", "chunked"])
def test_the_bidirectional_form_is_that_of_the_package(impl, padded):
    n = 24
    theirs, ours, x, q, k = pair(False, 4, n, rank=3, reach=4, impl=impl)
    padding = torch.zeros(2, n, dtype=torch.bool)
    padding[1, 17:] = padded
    expected = theirs(x, mask=~padding)
    actual = theirs.to_out(ours(q, k, k, padding)[:, 0])
    keep = ~padding[..., None]
    torch.testing.assert_close(actual * keep, expected * keep, rtol=1e-9, atol=1e-9)
    print(f"largest difference {((actual - expected) * keep).abs().max():.1e}")


@pytest.mark.parametrize("impl", ["reference", "chunked"])
def test_the_causal_form_is_that_of_the_package_where_both_see_the_same_tokens(impl):
    """The package's window is a segment and the one before: where it is as long as the text, both see the whole past.

    There the last token of a segment sees that segment compressed, which ours, as the authors' code, shows from the
    next token on: those tokens are left out of the comparison.
    """
    n, segment = 30, 4
    theirs, ours, x, q, k = pair(True, 32, n, rank=1, segment_size=segment, memory=32, impl=impl)
    keep = torch.arange(n) % segment != segment - 1
    expected, actual = theirs(x)[:, keep], theirs.to_out(ours(q, k, k)[:, 0])[:, keep]
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)
    print(f"largest difference {(actual - expected).abs().max():.1e}")
