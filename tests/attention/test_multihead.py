"""MultiHeadAttention: projections around a mechanism."""

import pytest
import torch
import torch.nn.functional as F
from attention_cases import VARIANTS, assert_within, make, rounding_budget
from torch import nn

from transnormer_lib.attention import MultiHeadAttention, build


def layer_and_input(variant: str, causal: bool = False, seed: int = 0) -> tuple[MultiHeadAttention, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    layer = MultiHeadAttention(6, make(variant, 2, 3, chunk=4, causal=causal)).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return layer, torch.randn(2, 7, 6, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_with_softmax_it_equals_pytorchs_multihead_attention(causal):
    layer, x = layer_and_input("softmax", causal)
    theirs = nn.MultiheadAttention(6, 2, batch_first=True).double()
    ours = (layer.q_proj, layer.k_proj, layer.v_proj)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([linear.weight for linear in ours]))
        theirs.in_proj_bias.copy_(torch.cat([linear.bias for linear in ours]))
        theirs.out_proj.load_state_dict(layer.out_proj.state_dict())
    mask = torch.zeros(2, 7, dtype=torch.bool)
    mask[1, 5:] = True
    hidden = ~torch.ones(7, 7, dtype=torch.bool).tril() if causal else None
    expected, _ = theirs(x, x, x, key_padding_mask=mask, attn_mask=hidden, need_weights=False)
    torch.testing.assert_close(layer(x, mask)[~mask], expected[~mask])


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_is_the_mechanism_on_split_heads(variant):
    layer, x = layer_and_input(variant)
    q, k, v = (
        F.linear(x, p.weight, p.bias).view(2, 7, 2, 3).permute(0, 2, 1, 3)
        for p in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    heads = layer.attention(q, k, v)
    expected = torch.cat([heads[:, 0], heads[:, 1]], dim=-1)
    budget = rounding_budget(layer.attention, q, k, v).amax() * layer.out_proj.weight.abs().sum()
    assert_within(layer(x), layer.out_proj(expected), budget)


@pytest.mark.parametrize("variant", VARIANTS)
def test_weights_are_those_of_the_mechanism(variant):
    layer, x = layer_and_input(variant, causal=True)
    mask = torch.zeros(2, 7, dtype=torch.bool)
    mask[0, 6:] = True
    w = layer.weights(x, mask)
    assert w.shape == (2, 2, 7, 7)
    assert not w[0, :, :, 6].any()
    q, k, v = (p(x).view(2, 7, 2, 3).transpose(1, 2) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
    assert torch.equal(w, layer.attention.weights(q, k, v, mask))


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_parameter_gets_a_gradient(variant):
    layer, x = layer_and_input(variant)
    layer(x).square().sum().backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize(("bias", "count"), [(True, 4 * (36 + 6)), (False, 4 * 36)])
def test_it_has_four_square_projections(bias, count):
    layer = MultiHeadAttention(6, build("norm", {"heads": 2, "head_dim": 3}), bias=bias)
    assert sum(p.numel() for p in layer.parameters()) == count


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("cut", [0, 1, 5])
def test_prefill_and_steps_give_what_the_whole_sequence_gives(variant, cut):
    layer, x = layer_and_input(variant, causal=True)
    y = layer(x)
    outputs, state = [], layer.initial_state(2, torch.float64)
    if cut:
        prefix, state = layer.prefill(x[:, :cut])
        outputs = list(prefix.unbind(1))
    for i in range(cut, 7):
        y_i, state = layer.step(x[:, i], state)
        outputs.append(y_i)
    torch.testing.assert_close(torch.stack(outputs, dim=1), y, atol=1e-9, rtol=1e-9)
    assert int(state["position"]) == 7


def test_sizes_that_do_not_fit_are_refused():
    attention = build("norm", {"heads": 2, "head_dim": 3, "causal": True})
    with pytest.raises(ValueError, match="dim=8: must equal heads × head_dim = 2 × 3"):
        MultiHeadAttention(8, attention)
    with pytest.raises(ValueError, match=r"x.shape=\(7, 6\): must be \[B, N, 6\]"):
        MultiHeadAttention(6, attention)(torch.zeros(7, 6))
    layer = MultiHeadAttention(6, attention)
    with pytest.raises(ValueError, match=r"x.shape=\(7, 6\): must be \[B, N, 6\]"):
        layer.prefill(torch.zeros(7, 6))
    with pytest.raises(ValueError, match=r"x.shape=\(1, 7, 6\): must be \[B, 6\]"):
        layer.step(torch.zeros(1, 7, 6), layer.initial_state(1))
