"""RMSNorm, LayerNorm and ScaleNorm over the last dimension, as functions and as modules.

RMSNorm has two forms that differ in the place of ε. ``inside`` is Definition D.1 of "The Devil in Linear Transformer",
x / sqrt(σ² + ε) with σ² the mean of squares; the gradient bound of Eq. 61 is about this one. ``outside`` is
x / (σ + ε), which the released language models compute (OpenNLPLab/fairseq-evo@38fa81f). ScaleNorm (Nguyen & Salazar,
2019) is g·x / ‖x‖ with one number g: with g = sqrt(size) it is RMSNorm up to the place of ε.

Half-precision inputs are normalised in float32 and returned in their own dtype.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transnormer_lib.checks import check_choice, check_positive
from transnormer_lib.choices import EpsPlacement

NormName = Literal["rms", "layer", "scale"]


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which sums over ``dtype`` are accumulated: float32 for the half dtypes, else itself."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def widen(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def rms_norm(x: Tensor, eps: float = 1e-8, eps_placement: EpsPlacement = "inside") -> Tensor:
    """Definition D.1 or its released variant over x's last dimension; zeros give zeros with a finite gradient."""
    # Without a recorded gradient, as in decoding, a Function costs more than what it computes.
    normalise = _RMSNorm.apply if torch.is_grad_enabled() else _RMSNorm.forward
    y, _ = normalise(widen(x), eps, eps_placement == "inside")
    return y.to(x.dtype)


class _RMSNorm(torch.autograd.Function):
    """(y, r) with y = r x and r = 1 / sqrt(σ² + ε) or 1 / (σ + ε), both differentiable.

    With the gradient g in y that in x is r (g − a y mean(g y)), a = 1 inside the root and (σ + ε) / σ outside. It needs
    y and r alone, and can be differentiated in turn; autograd would keep and pass through six tensors of x's size.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, eps: float, inside: bool) -> tuple[Tensor, Tensor]:
        mean = x.square().mean(-1, keepdim=True)
        r = (mean + eps).rsqrt() if inside else (mean.sqrt() + eps).reciprocal()
        return x * r, r

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float, bool], output: tuple[Tensor, Tensor]) -> None:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*output)
        ctx.save_for_forward(*output)
        _, ctx.eps, ctx.inside = inputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, None, None]:
        y, r = ctx.saved_tensors
        g, g_r = gradients
        c: Any = 0.0
        if g is not None:
            c = (g * y).mean(-1, keepdim=True)
        if g_r is not None:
            c = c + g_r * r / y.shape[-1]
        if not isinstance(c, Tensor):
            return None, None, None
        along_y = y * (_times_a(c, r, ctx) * r)
        return (-along_y if g is None else torch.addcmul(-along_y, g, r)), None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, Tensor]:
        y, r = ctx.saved_tensors
        c = _times_a((tangents[0] * y).mean(-1, keepdim=True), r, ctx)
        return r * (tangents[0] - y * c), -(r.square() * c)


def _times_a(c: Tensor, r: Tensor, ctx: Any) -> Tensor:
    """a c, where σ / (σ + ε) = 1 − ε r; a row of zeros has c = 0."""
    return c if ctx.inside else c / (1 - ctx.eps * r).clamp(min=torch.finfo(r.dtype).eps)


def inverse_rms(x: Tensor, eps: float = 1e-8, eps_placement: EpsPlacement = "inside") -> Tensor:
    """r of ``rms_norm``, so that it is r x, in the fewest operations and without a gradient: for single tokens."""
    size, length = x.shape[-1], torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    if eps_placement == "outside":
        return length.mul_(size**-0.5).add_(eps).reciprocal_()
    return torch.addcmul(_constant(eps, x.dtype, x.device), length, length, value=1 / size).rsqrt_()


@cache
def _constant(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(value, dtype=dtype, device=device)


def layer_norm(x: Tensor, eps: float = 1e-5) -> Tensor:
    """(x − mean) / sqrt(variance + ε) over the last dimension of x, without gain and bias."""
    return F.layer_norm(widen(x), x.shape[-1:], eps=eps).to(x.dtype)


def check_norm(name: str, eps_placement: str) -> None:
    """Refuse an unknown norm, and one whose ε cannot be outside the root: ValueError."""
    check_choice("norm", name, NormName)
    if name != "rms" and eps_placement == "outside":
        raise ValueError(f"eps_placement='outside': only norm='rms' has this form, not norm={name!r}")


class KeepsFloat32(nn.Module):
    """Base of modules that keep their and their children's parameters and buffers in float32 under half-dtype casts."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        def wide(x: Tensor) -> Tensor:
            y = fn(x)
            return y if y.dtype == wide_dtype(y.dtype) else widen(x).to(y.device)

        return super()._apply(wide, recurse)


class _Norm(nn.Module):
    """Base of the norms over a last dimension of ``size``, with a gain if ``affine``."""

    def __init__(self, size: int, eps: float, affine: bool, gain: Tensor) -> None:
        super().__init__()
        check_positive("eps", eps)
        self.size, self.eps = size, eps
        self.gain = nn.Parameter(gain) if affine else None

    def extra_repr(self) -> str:
        return f"{self.size}, eps={self.eps}, affine={self.gain is not None}"


class ScaleNorm(_Norm):
    """g·x / max(‖x‖, ε) over a last dimension of ``size`` (Nguyen & Salazar, 2019): one number g for all entries.

    g is initially sqrt(``size``), which gives the result RMSNorm's size, and learned if ``affine``.
    """

    def __init__(self, size: int, eps: float = 1e-8, affine: bool = False) -> None:
        super().__init__(size, eps, affine, torch.tensor(size**0.5))

    def forward(self, x: Tensor) -> Tensor:
        wide = widen(x)
        # vector_norm's gradient at zero is zero, so a row of zeros has a finite one.
        length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True).clamp(min=self.eps)
        gain = self.size**0.5 if self.gain is None else widen(self.gain)
        return (wide * (gain / length)).to(x.dtype)


class RMSNorm(_Norm):
    """``rms_norm`` over a last dimension of ``size``, with a gain (initially ones) if ``affine``."""

    def __init__(
        self, size: int, eps: float = 1e-8, eps_placement: EpsPlacement = "inside", affine: bool = False
    ) -> None:
        check_choice("eps_placement", eps_placement, EpsPlacement)
        super().__init__(size, eps, affine, torch.ones(size))
        self.eps_placement = eps_placement

    def forward(self, x: Tensor) -> Tensor:
        if self.gain is None:
            return rms_norm(x, self.eps, self.eps_placement)
        return (rms_norm(widen(x), self.eps, self.eps_placement) * self.gain).to(x.dtype)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, eps_placement={self.eps_placement!r}"


class LayerNorm(_Norm):
    """``layer_norm`` over a last dimension of ``size``, with gain (1) and bias (0) if ``affine``."""

    def __init__(self, size: int, eps: float = 1e-5, affine: bool = False) -> None:
        super().__init__(size, eps, affine, torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size)) if affine else None

    def reset_parameters(self) -> None:
        if self.gain is not None and self.bias is not None:
            nn.init.ones_(self.gain)
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.gain is None or self.bias is None:
            return layer_norm(x, self.eps)
        wide = F.layer_norm(widen(x), (self.size,), widen(self.gain), widen(self.bias), self.eps)
        return wide.to(x.dtype)


def build_norm(
    name: NormName, size: int, eps: float, eps_placement: EpsPlacement = "inside", affine: bool = False
) -> nn.Module:
    """A norm over the last dimension, ``size``: RMSNorm (Definition D.1), LayerNorm or ScaleNorm.

    ``eps`` is inside RMSNorm's root or, as released, outside; ``affine`` adds a gain, and LayerNorm's bias. Raises
    ValueError for another name or placement.
    """
    check_norm(name, eps_placement)
    if name == "rms":
        return RMSNorm(size, eps, eps_placement, affine)
    return (LayerNorm if name == "layer" else ScaleNorm)(size, eps, affine)


def over_embedding(function: Callable[[Tensor], Tensor], t: Tensor) -> Tensor:
    """``function``, such as a norm, of the concatenated heads of t [B, H, N, D]; the result has the same shape.

    It is a view of a tensor laid out [B, N, H, D], so that merging the heads afterwards copies nothing.
    """
    h, d = t.shape[1], t.shape[3]
    return function(t.transpose(1, 2).flatten(2)).unflatten(-1, (h, d)).transpose(1, 2)
