"""Mechanisms with one thing changed, to find causes: a norm after the output, a denominator without a gradient."""

import pytest
import torch
from torch import Tensor

from transnormer_lib import attention

HEADS, SIZE, LENGTH = 4, 8, 37
OPTIONS = {
    "detached": ("linear", {"denominator": "detached"}),
    "normed": ("linear", {"norm_after": "embedding"}),
    "normed-per-head": ("linear", {"norm_after": "head"}),
    "softmax-normed": ("softmax", {"norm_after": "embedding"}),
}


def tensors(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    q, k, v = torch.randn(3, 2, HEADS, LENGTH, SIZE, dtype=torch.float64, generator=generator)
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_()


def built(name: str, **options: object) -> attention.Attention:
    config = {"heads": HEADS, "head_dim": SIZE, "causal": True, "chunk_size": 8, **options}
    return attention.build(name, config).double()


def gradients(o: Tensor, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    weight = torch.linspace(-1, 1, o.numel(), dtype=o.dtype).view(o.shape)
    return torch.autograd.grad((o * weight).square().sum(), inputs)


@pytest.mark.parametrize("rotary", ["none", "rope"])
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "both-ways"])
@pytest.mark.parametrize("variant", OPTIONS)
def test_the_fast_form_equals_the_specification(variant: str, causal: bool, rotary: str) -> None:
    name, options = OPTIONS[variant]
    inputs = tensors()
    mask = torch.zeros(2, LENGTH, dtype=torch.bool)
    mask[1, -5:] = True
    outputs = [
        built(name, causal=causal, rotary=rotary, impl=impl, **options)(*inputs, key_padding_mask=mask)[:, :, :-5]
        for impl in ("reference", "chunked")
    ]
    torch.testing.assert_close(outputs[0], outputs[1])
    for a, b in zip(gradients(outputs[0], inputs), gradients(outputs[1], inputs), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("variant", ["detached", "normed", "normed-per-head"])
def test_the_recurrence_equals_the_parallel_form(variant: str) -> None:
    name, options = OPTIONS[variant]
    module, (q, k, v) = built(name, **options), (x.detach() for x in tensors())
    whole = module(q, k, v)
    _, state = module.prefill(q[:, :, :-1], k[:, :, :-1], v[:, :, :-1])
    last, _ = module.step(q[:, :, -1], k[:, :, -1], v[:, :, -1], state)
    torch.testing.assert_close(last, whole[:, :, -1])


def test_a_detached_denominator_changes_no_output_and_its_gradient_is_that_of_a_constant() -> None:
    inputs = q, k, v = tensors()
    whole, detached = built("linear")(*inputs), built("linear", denominator="detached")(*inputs)
    torch.testing.assert_close(whole, detached)
    s = ((1 + torch.nn.functional.elu(q)) @ (1 + torch.nn.functional.elu(k)).mT).tril()
    by_hand = (s / s.sum(-1, keepdim=True).detach()) @ v
    for a, b in zip(gradients(detached, inputs), gradients(by_hand, inputs), strict=True):
        torch.testing.assert_close(a, b)
    detached = built("linear", denominator="detached")(*inputs)
    assert not torch.allclose(gradients(whole, inputs)[0], gradients(detached, inputs)[0])


@pytest.mark.parametrize("seed", range(3))
def test_per_head_norm_attention_is_scaled_linear_attention_with_a_norm(seed: int) -> None:
    """The norm cancels every positive factor of a row, and so the denominator."""
    inputs = tensors(seed)
    norm = built("norm", phi="1+elu", norm_over="head", eps=1e-30)
    linear = built("linear", norm_after="head")
    linear.norm_after.eps = 1e-30
    a, b = norm(*inputs), linear(*inputs)
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
    for one, other in zip(gradients(a, inputs), gradients(b, inputs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


def test_over_the_embedding_they_differ_by_the_heads_weights() -> None:
    inputs = tensors()
    a, b = built("norm", phi="1+elu")(*inputs), built("linear", norm_after="embedding")(*inputs)
    assert (a - b).abs().max() > 0.1
    ratio = a / b
    torch.testing.assert_close(ratio, ratio[..., :1].expand_as(ratio), rtol=1e-6, atol=1e-8)  # one number per head
