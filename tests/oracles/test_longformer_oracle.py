"""Longformer against transformers' LongformerSelfAttention, copied weights, global attention and padding."""

import pytest
import torch

from transnormer_lib.attention import LongformerAttention, LongformerConfig

modeling = pytest.importorskip("transformers.models.longformer.modeling_longformer")


@pytest.mark.parametrize("global_tokens", [0, 1, 3])
@pytest.mark.parametrize("impl", ["reference", "chunked"])
def test_longformer_is_that_of_transformers(global_tokens, impl, monkeypatch):
    """What differs, and how it is met.

    transformers' global projections read the layer's input, ours q, k and v: W_g = W' W^-1 makes them the same. It
    computes its softmax in float32 whatever its input: that request is dropped. It asks for lengths that are
    multiples of the window, and for a mask of -10000 on padding and 10000 on global tokens. Its padding is at the end,
    where ranks are positions.
    """
    softmax = torch.nn.functional.softmax
    monkeypatch.setattr(modeling.nn.functional, "softmax", lambda x, dim, dtype=None: softmax(x, dim))
    torch.manual_seed(0)
    heads, head_dim, window, n, real = 2, 6, 8, 40, 33
    dim = heads * head_dim
    config = modeling.LongformerConfig(
        hidden_size=dim, num_attention_heads=heads, attention_window=[window], attention_probs_dropout_prob=0.0
    )
    theirs = modeling.LongformerSelfAttention(config, layer_id=0).double().eval()
    ours = LongformerAttention(LongformerConfig(heads, head_dim, impl=impl, window=window, global_tokens=global_tokens))
    ours = ours.double().eval()
    pairs = ((theirs.query, theirs.query_global), (theirs.key, theirs.key_global), (theirs.value, theirs.value_global))
    if global_tokens:
        with torch.no_grad():
            for i, (local, of_global) in enumerate(pairs):
                ours.global_weight[i] = of_global.weight @ local.weight.inverse()
                ours.global_bias[i] = of_global.bias - ours.global_weight[i] @ local.bias
    x = torch.randn(2, n, dim, dtype=torch.float64)
    padding = torch.zeros(2, n, dtype=torch.bool)
    padding[1, real:] = True
    mask = torch.zeros(2, n, dtype=torch.float64).masked_fill(padding, -10000.0)
    mask[:, :global_tokens] = 10000.0
    expected = theirs(
        x,
        attention_mask=mask,
        is_index_masked=mask < 0,
        is_index_global_attn=mask > 0,
        is_global_attn=bool((mask > 0).any()),
    )[0]
    q, k, v = (local(x).unflatten(-1, (heads, -1)).transpose(1, 2) for local, _ in pairs)
    actual = ours(q, k, v, padding).transpose(1, 2).flatten(2)
    keep = ~padding[..., None]
    torch.testing.assert_close(actual * keep, expected * keep, rtol=1e-9, atol=1e-9)
    print(f"largest difference {((actual - expected) * keep).abs().max():.1e}")
