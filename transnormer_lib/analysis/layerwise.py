"""The one-layer bounds inside a deep model: Appendix D per layer, and what it leaves open.

Appendix D treats one layer and says that more follow by induction. The paper's symbols are those of Eq. 40:
c₁ = h(∇_O L), c₂ = h(V), c₃ = min |s|, h the largest row norm. Given the c₁, c₂, c₃ that a layer really sees, the
bounds hold there. Induction would also have to bound c₁ itself, which depends on every weight above the layer.

The model is a pre-norm residual stack of `MultiHeadAttention` and `FFN`. Forward and backward run once. Hooks keep
each layer's queries, keys, values and ∇_O L, from which the closed forms of `attention_gradients` give ∂L/∂s_ij, so
the attention may run in any implementation.

Shapes: B batch, H heads, N length, D head_dim; L layers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Generator, Tensor, nn

from transnormer_lib.analysis import attention_gradients as gradients
from transnormer_lib.analysis.bound_search import TOLERANCE
from transnormer_lib.analysis.kernel_maps import kernel
from transnormer_lib.attention import MultiHeadAttention, build_attention, rms_norm
from transnormer_lib.checks import check_choice, check_count, check_positive
from transnormer_lib.models.feed_forward import FFN

Mechanism = Literal["softmax", "linear", "norm"]


@dataclass(frozen=True)
class Stack:
    """A small deep model. `gain` multiplies every weight matrix after Xavier initialisation."""

    mechanism: Mechanism
    depth: int = 6
    length: int = 16
    dim: int = 32
    heads: int = 4
    classes: int = 10
    batch: int = 4
    phi: str = "1+elu"
    eps: float = 1e-8
    gain: float = 1.0

    def __post_init__(self) -> None:
        check_choice("mechanism", self.mechanism, Mechanism)
        for name in ("depth", "length", "dim", "heads", "classes", "batch"):
            check_count(name, getattr(self, name))
        if self.dim % self.heads:
            raise ValueError(f"dim={self.dim}: must be a multiple of heads={self.heads}")
        for name in ("eps", "gain"):
            check_positive(name, getattr(self, name))


@dataclass(frozen=True)
class LayerGradients:
    """The constants of Eq. 40, the largest |∂L/∂s_ij| and its bounds, first layer first; each [L]."""

    c1: Tensor
    c2: Tensor
    c3: Tensor
    largest: Tensor
    sharp: Tensor
    published: Tensor

    @property
    def holds(self) -> bool:
        """Whether the sharp bound holds in every layer, up to rounding."""
        return bool((self.largest <= self.sharp * (1 + TOLERANCE)).all())

    @property
    def tightness(self) -> Tensor:
        """largest / sharp per layer, [L]."""
        return self.largest / self.sharp


class _Block(nn.Module):
    def __init__(self, stack: Stack) -> None:
        super().__init__()
        config: dict[str, Any] = {"heads": stack.heads, "head_dim": stack.dim // stack.heads}
        if stack.mechanism != "softmax":
            config["phi"] = stack.phi
        if stack.mechanism == "norm":
            config["eps"] = stack.eps
        self.attention = MultiHeadAttention(stack.dim, build_attention(stack.mechanism, config))
        self.feed_forward = FFN(stack.dim, 4 * stack.dim, "relu")

    def forward(self, x_BND: Tensor) -> Tensor:
        x_BND = x_BND + self.attention(rms_norm(x_BND))
        return x_BND + self.feed_forward(rms_norm(x_BND))


def layer_gradients(stack: Stack, generator: Generator) -> LayerGradients:
    """One forward and backward pass of `stack` on normal inputs with random labels, measured layer by layer.

    The loss is the cross-entropy summed over tokens, as in Appendix D.3. `generator` draws inputs, labels and weights
    in this order, so stacks of equal shape see the same ones.
    """
    x_BND = torch.randn(stack.batch, stack.length, stack.dim, generator=generator, dtype=torch.float64)
    labels_BN = torch.randint(stack.classes, (stack.batch, stack.length), generator=generator)
    blocks = [_Block(stack).double() for _ in range(stack.depth)]
    head = nn.Linear(stack.dim, stack.classes).double()
    caught: list[dict[str, Tensor]] = [{} for _ in blocks]
    for block, store in zip(blocks, caught, strict=True):
        _initialise(block, stack.gain, generator)
        _catch(block.attention.attention, store)
    _initialise(head, 1.0, generator)
    for block in blocks:
        x_BND = block(x_BND)
    logits = head(rms_norm(x_BND))
    nn.functional.cross_entropy(logits.flatten(0, 1), labels_BN.flatten(), reduction="sum").backward()
    rows = [measure_layer(stack, store) for store in caught]
    return LayerGradients(*(torch.tensor(column, dtype=torch.float64) for column in zip(*rows, strict=True)))


def _initialise(module: nn.Module, gain: float, generator: Generator) -> None:
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        else:
            nn.init.xavier_uniform_(parameter, gain=gain, generator=generator)


def _catch(attention: nn.Module, store: dict[str, Tensor]) -> None:
    """Store the inputs q, k, v of `attention` and, in the backward pass, its output gradient g; all [B, H, N, D]."""

    def forward_hook(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        store.update(zip("qkv", (tensor.detach() for tensor in inputs[:3]), strict=True))
        output.register_hook(lambda gradient: store.update(g=gradient.detach()))

    attention.register_forward_hook(forward_hook)


Row = tuple[float, float, float, float, float, float]  # the fields of LayerGradients for one layer


def measure_layer(stack: Stack, store: dict[str, Tensor]) -> Row:
    """c₁, c₂, c₃, largest |∂L/∂s_ij|, sharp and published bound (Eq. 59, 48, 61) of one layer.

    Softmax and linear attention work per head, so every head counts as a layer, and the layer's bound is the largest
    over its heads. A row of NormAttention is the concatenation of its heads.
    """
    q, k, v, g = (store[name] for name in "qkvg")
    n = q.shape[2]
    if stack.mechanism == "softmax":
        scores_BHNN = q @ k.mT / math.sqrt(q.shape[-1])
    else:
        scores_BHNN = kernel(stack.phi).phi(q) @ kernel(stack.phi).phi(k).mT
    if stack.mechanism == "norm":
        return _measure_norm_layer(stack, scores_BHNN, v, g)
    c1_BH, c2_BH = (tensor.norm(dim=-1).amax(-1) for tensor in (g, v))
    values = v[:, :, None].expand(-1, -1, n, -1, -1).flatten(0, 2)
    if stack.mechanism == "softmax":
        gradient = gradients.score_gradient_softmax(scores_BHNN.flatten(0, 2), values, g.flatten(0, 2))
        c3_BH, sharp = torch.ones_like(c1_BH), 0.5
    else:
        gradient = gradients.score_gradient_linear(scores_BHNN.flatten(0, 2), values, g.flatten(0, 2))
        c3_BH, sharp = scores_BHNN.abs().amin((-1, -2)), 2 * (n - 1) / n**2
    size, largest = float((c1_BH * c2_BH / c3_BH).max()), float(gradient.abs().max())
    c1, c2, c3 = float(c1_BH.max()), float(c2_BH.max()), float(c3_BH.min())
    return c1, c2, c3, largest, sharp * size, math.sqrt(n) / 4 * size


def _measure_norm_layer(stack: Stack, scores_BHNN: Tensor, v: Tensor, g: Tensor) -> Row:
    t_RD, g_RD = (x.transpose(1, 2).flatten(2).flatten(0, 1) for x in (scores_BHNN @ v, g))
    jacobian_RDD = gradients.jacobian_norm(t_RD, "rms", stack.eps)
    back_RD = torch.einsum("rd,rde->re", g_RD, jacobian_RDD)
    back_BHND = back_RD.unflatten(0, (v.shape[0], v.shape[2])).unflatten(-1, (stack.heads, -1)).transpose(1, 2)
    largest = float((back_BHND @ v.mT).abs().max())
    # c₁ covers whole rows, c₂ one head's values, because a head's s_ij multiplies only these.
    c1, c2 = float(g_RD.norm(dim=-1).max()), float(v.norm(dim=-1).max())
    sharp = c1 * c2 / math.sqrt(stack.eps)
    return c1, c2, float(scores_BHNN.abs().min()), largest, sharp, 1.5 * stack.dim * sharp
