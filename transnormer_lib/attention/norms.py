"""RMSNorm, LayerNorm and ScaleNorm over the last dimension, as functions and as modules.

RMSNorm has two forms that differ in where ε stands. ``inside`` is Definition D.1 of "The Devil in Linear
Transformer", x / sqrt(σ² + ε) with σ² the mean of squares. ``outside`` is x / (σ + ε), which is what the
released language models compute (OpenNLPLab/fairseq-evo@38fa81f). The gradient bound of Eq. 61 speaks of the
first. ScaleNorm (Nguyen & Salazar, 2019) is g·x / ‖x‖ with one number g: with g = sqrt(size) it is RMSNorm but for
where ε stands.

Half-precision inputs are normalised in float32 and returned in their own dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

EpsPlacement = Literal["inside", "outside"]


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which sums over ``dtype`` are accumulated: float32 for the half dtypes, else itself."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def widen(x: Tensor) -> Tensor:
    """x in its ``wide_dtype``."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def rms_norm(x: Tensor, eps: float = 1e-8, eps_placement: EpsPlacement = "inside") -> Tensor:
    """Definition D.1 (``inside``) or its released variant (``outside``) over the last dimension of x.

    A row of zeros gives zeros, with a finite gradient in both forms.
    """
    # Where no gradient is recorded, as in decoding, a Function costs more than what it computes.
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


def layer_norm(x: Tensor, eps: float = 1e-5) -> Tensor:
    """(x − mean) / sqrt(variance + ε) over the last dimension of x, without gain and bias."""
    return F.layer_norm(widen(x), x.shape[-1:], eps=eps).to(x.dtype)


def check_norm(name: str, eps: float, eps_placement: str) -> None:
    """Refuse a norm that ``build_norm`` cannot make: ValueError with the field, its value and the rule."""
    if name not in _NORMS:
        raise ValueError(f"norm={name!r}: must be one of {', '.join(_NORMS)}")
    if isinstance(eps, bool) or not isinstance(eps, (int, float)) or not 0.0 < eps < float("inf"):
        raise ValueError(f"eps={eps!r}: must be a positive finite number (Definition D.1 has ε > 0)")
    if eps_placement not in ("inside", "outside"):
        raise ValueError(f"eps_placement={eps_placement!r}: must be 'inside' or 'outside' the root")
    if name != "rms" and eps_placement == "outside":
        raise ValueError(f"eps_placement='outside': only norm='rms' has this form, not norm={name!r}")


class KeepsFloat32(nn.Module):
    """Base of modules whose parameters and buffers, and those of their children, no cast makes half precision."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        def wide(x: Tensor) -> Tensor:
            y = fn(x)
            return y if y.dtype == wide_dtype(y.dtype) else widen(x).to(y.device)

        return super()._apply(wide, recurse)


class ScaleNorm(nn.Module):
    """g·x / max(‖x‖, ε) over a last dimension of ``size`` (Nguyen & Salazar, 2019): one number g for all entries.

    g is initially sqrt(``size``), where the result has RMSNorm's size, and learned where ``affine``.
    """

    def __init__(self, size: int, eps: float = 1e-8, affine: bool = False) -> None:
        super().__init__()
        check_norm("scale", eps, "inside")
        self.size, self.eps = size, eps
        self.gain: nn.Parameter | None
        self.register_parameter("gain", nn.Parameter(torch.tensor(size**0.5)) if affine else None)

    def forward(self, x: Tensor) -> Tensor:
        wide = widen(x)
        # vector_norm's gradient at zero is zero, so a row of zeros has a finite one.
        length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True).clamp(min=self.eps)
        gain = self.size**0.5 if self.gain is None else widen(self.gain)
        return (wide * (gain / length)).to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.size}, eps={self.eps}, affine={self.gain is not None}"


class RMSNorm(nn.Module):
    """``rms_norm`` over a last dimension of ``size``, with a gain (initially ones) where ``affine``."""

    def __init__(
        self, size: int, eps: float = 1e-8, eps_placement: EpsPlacement = "inside", affine: bool = False
    ) -> None:
        super().__init__()
        check_norm("rms", eps, eps_placement)
        self.size, self.eps, self.eps_placement = size, eps, eps_placement
        self.gain: nn.Parameter | None
        self.register_parameter("gain", nn.Parameter(torch.ones(size)) if affine else None)

    def forward(self, x: Tensor) -> Tensor:
        if self.gain is None:
            return rms_norm(x, self.eps, self.eps_placement)
        return (rms_norm(widen(x), self.eps, self.eps_placement) * self.gain).to(x.dtype)

    def extra_repr(self) -> str:
        affine = self.gain is not None
        return f"{self.size}, eps={self.eps}, eps_placement={self.eps_placement!r}, affine={affine}"


class LayerNorm(nn.Module):
    """``layer_norm`` over a last dimension of ``size``, with gain (1) and bias (0) where ``affine``."""

    def __init__(self, size: int, eps: float = 1e-5, affine: bool = False) -> None:
        super().__init__()
        check_norm("layer", eps, "inside")
        self.size, self.eps = size, eps
        self.gain: nn.Parameter | None
        self.bias: nn.Parameter | None
        self.register_parameter("gain", nn.Parameter(torch.ones(size)) if affine else None)
        self.register_parameter("bias", nn.Parameter(torch.zeros(size)) if affine else None)

    def forward(self, x: Tensor) -> Tensor:
        if self.gain is None or self.bias is None:
            return layer_norm(x, self.eps)
        wide = F.layer_norm(widen(x), (self.size,), widen(self.gain), widen(self.bias), self.eps)
        return wide.to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.size}, eps={self.eps}, affine={self.gain is not None}"


_NORMS: dict[str, type[nn.Module]] = {"rms": RMSNorm, "layer": LayerNorm, "scale": ScaleNorm}


def norm_names() -> tuple[str, ...]:
    """The names that ``build_norm`` knows."""
    return tuple(_NORMS)


def build_norm(
    name: str, size: int, eps: float, eps_placement: EpsPlacement = "inside", affine: bool = False
) -> nn.Module:
    """The norm called ``name`` (``rms``, ``layer`` or ``scale``) over a last dimension of ``size``."""
    check_norm(name, eps, eps_placement)
    options: dict[str, Any] = {"eps": eps, "affine": affine}
    if name == "rms":
        options["eps_placement"] = eps_placement
    return _NORMS[name](size, **options)
