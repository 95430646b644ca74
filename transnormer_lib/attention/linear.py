"""Kernel-based linear attention, with and without the scaling that the paper calls the devil.

Eq. 3 of "The Devil in Linear Transformer" is O = Δ^-1 φ(Q) [φ(K)^T V]: ``linear`` divides by
Δ_i = Σ_j φ(q_i)·φ(k_j), ``linear-unscaled`` does not (Table 1, "1 + elu w/o scaling").

With ``rotary`` the features φ(q) and φ(k) are rotated, as in the released models (OpenNLPLab/fairseq-evo@38fa81f); the
denominator uses the unrotated ones (Su et al., 2021, Eq. 19).

Shapes: B batch, H heads, N length, D head_dim.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from transnormer_lib.attention import triton_forms
from transnormer_lib.attention.blockwise import Product, operand_dtype
from transnormer_lib.attention.chunked import causal_attention, product_and_normaliser, product_flops
from transnormer_lib.attention.feature_maps import feature_map, write_features
from transnormer_lib.attention.interface import Attention, AttentionConfig
from transnormer_lib.attention.norms import widen
from transnormer_lib.attention.recurrent import State, StateShapes
from transnormer_lib.attention.registry import register


def scale_rows(s: Tensor, floor: float = 1e-6) -> Tensor:
    """P = Δ^-1 S of Eq. 29, with Δ_i = Σ_j s_ij clamped from below at ``floor``.

    The released 1+elu code has this clamp. A signed φ can make Δ_i negative, and the clamp then changes the row; Eq. 4
    assumes that this does not happen.
    """
    return s / s.sum(-1, keepdim=True).clamp(min=floor)


@dataclass(frozen=True)
class UnscaledLinearConfig(AttentionConfig):
    phi: Literal["elu", "1+elu", "relu", "identity"] = "1+elu"  # feature map


@register("linear-unscaled", UnscaledLinearConfig)
class UnscaledLinearAttention(Attention):
    """o_i = Σ_j s_ij v_j with s_ij = φ(q_i)·φ(k_j): Eq. 13 with φ. Its weights are S itself.

    The recurrent state is φ(K)^T V, [B, H, D, D].
    """

    config: UnscaledLinearConfig
    kernel_devices = ("cuda",)
    kernel_norm: str = "none"  # ``norm`` of ``transnormer_kernels.norm_attention``

    def kernel_options(self, device: torch.device) -> dict[str, Any]:
        """The arguments of the kernel that its step takes as well."""
        rotation = triton_forms.rotation(self.rotary, device)
        return {"phi": self.config.phi, "norm": self.kernel_norm, **rotation}

    def after_kernel(self, o: Tensor) -> Tensor:
        """From the kernel's output to the mechanism's, both [B, H, N, D]."""
        return o

    def kernel(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        from transnormer_kernels import norm_attention

        options = {"causal": self.config.causal, "key_padding_mask": key_padding_mask, **self.kernel_options(q.device)}
        o = norm_attention(*(x.transpose(1, 2) for x in (q, k, v)), **options)
        assert isinstance(o, Tensor)
        return self.after_kernel(o.transpose(1, 2)).to(q.dtype)

    def kernel_refusal(self, dtype: torch.dtype, device: torch.device) -> str:
        if reason := triton_forms.refusal(self.config.head_dim, dtype, device):
            return reason
        if self.kernel_norm == "none" and dtype == torch.float16:
            return "a product that is not normalised may be more than float16 holds"
        return ""

    def features(self, q: Tensor, k: Tensor, key_padding_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(φ(q), φ(k)), not rotated, with φ(k) zero on padding, so that such a key is in no sum."""
        phi = feature_map(self.config.phi)
        phi_q, phi_k = phi(widen(q)), phi(widen(k))
        if key_padding_mask is not None:
            phi_k = phi_k.masked_fill(key_padding_mask[:, None, :, None], 0.0)
        return phi_q, phi_k

    def attention_matrix(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        """S of Eq. 6, s_ij = φ(q_i)·φ(k_j), of the rotated features."""
        phi_q, phi_k = self.rotated(*self.features(q, k))
        s = phi_q @ phi_k.mT
        return s if allowed is None else s.masked_fill(~allowed, 0.0)

    def chunked(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        if self.config.causal and self.rotary is None:
            return self.causal(q, k, v, key_padding_mask, self.config.phi)
        phi_q, phi_k = self.rotated(*self.features(q, k, key_padding_mask))
        if not self.config.causal:
            return self.finish(phi_q @ (phi_k.mT @ widen(v)))
        phi_q, phi_k, v = (x.to(operand_dtype(q.dtype)) for x in (phi_q, phi_k, v))
        return self.causal(phi_q, phi_k, v, None, "identity")

    def causal(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None, phi: str) -> Tensor:
        """The output for q and k before the feature map called ``phi``."""
        product = Product(self.config.chunk_size, phi)
        return self.finish(causal_attention(q, k, v, key_padding_mask, product))

    def state_shapes(self) -> StateShapes:
        return {"kv": (self.config.head_dim, self.config.head_dim)}

    def state_after(self, k: Tensor, v: Tensor) -> State:
        (phi_k,) = self.rotated(feature_map(self.config.phi)(widen(k)))
        return {"kv": phi_k.mT @ widen(v)}

    def recurrence(self, q: Tensor, k: Tensor, v: Tensor, state: State, position: int | Tensor) -> tuple[Tensor, State]:
        if self.resolve_impl(q.device, q.dtype) == "triton":
            from transnormer_kernels import norm_attention_step

            sums = {name: x for name, x in state.items() if name != "position"}  # updated in place
            options = {"position": position, **self.kernel_options(q.device)}
            o = norm_attention_step(q[:, :, 0], k[:, :, 0], v[:, :, 0], sums, **options)
            return self.after_kernel(o[:, :, None]), state
        return self.eager_step(q, k, v, state, position)

    def fixed_recurrence(self, q: Tensor, k: Tensor, v: Tensor, state: State, position: Tensor) -> Tensor:
        return self.recurrence(q, k, v, state, position)[0]

    def eager_step(self, q: Tensor, k: Tensor, v: Tensor, state: State, position: int | Tensor) -> tuple[Tensor, State]:
        phi_q, phi_k = self.rotated(*self.features(q, k), start=position)
        kv = state["kv"].addcmul_(phi_k.mT, widen(v))
        return self.finish(phi_q @ kv), {"kv": kv}

    def bound(self, qkv_3BHD: Tensor, o_BHD: Tensor, state: State) -> Callable[[int], None]:
        fixed = self._fixed(qkv_3BHD, o_BHD, state)
        if fixed is None:
            return super().bound(qkv_3BHD, o_BHD, state)

        def step(position: int) -> None:
            fixed.add_token()
            fixed.read()

        return step

    def _fixed(self, qkv_3BHD: Tensor, o_BHD: Tensor, state: State) -> "_Fixed | None":
        """The tensors of a step in PyTorch; None where a kernel runs, or where a step does more than this."""
        plain = self.rotary is None and widen(qkv_3BHD) is qkv_3BHD
        if not plain or self.resolve_impl(o_BHD.device, o_BHD.dtype) == "triton":
            return None
        return _Fixed(self.config.phi, qkv_3BHD, o_BHD, state)

    def head_flops(self, length: int) -> int:
        # A denominator is one more column of values; causal or rotated, it is sums and elementwise products.
        denominator = self.kernel_norm == "denominator" and self.rotary is None and not self.config.causal
        chunk_size = self.config.chunk_size if self.config.causal else None
        return product_flops(length, self.config.head_dim, self.config.head_dim + denominator, chunk_size)


class _Fixed:
    """The fixed tensors of a step, one view each, because making a view costs as much as a small sum."""

    def __init__(self, phi: str, qkv_3BHD: Tensor, o_BHD: Tensor, state: State) -> None:
        _, b, h, d = qkv_3BHD.shape
        self.phi, self.qk, self.kv, self.v = phi, qkv_3BHD[:2], state["kv"], qkv_3BHD[2][:, :, None]
        self.phi_qk = qkv_3BHD.new_empty(2, b, h, d)
        self.phi_q, self.phi_k = self.phi_qk[0].view(b * h, 1, d), self.phi_qk[1]
        self.column, self.matrices, self.o = self.phi_k[..., None], self.kv.view(b * h, d, d), o_BHD.view(b * h, 1, d)

    def add_token(self) -> None:
        """φ(q), φ(k), and φ(k) v^T added to the state."""
        write_features(self.phi, self.qk, self.phi_qk)
        self.kv.addcmul_(self.column, self.v)

    def read(self) -> None:
        """o = φ(q)^T times the state."""
        torch.bmm(self.phi_q, self.matrices, out=self.o)


@dataclass(frozen=True)
class LinearConfig(UnscaledLinearConfig):
    denominator_floor: float = 1e-6  # Δ_i is clamped from below at this, as the released 1+elu code does
    denominator: Literal["learned", "detached"] = "learned"  # detached: no gradient flows through Δ_i


@register("linear", LinearConfig)
class LinearAttention(UnscaledLinearAttention):
    """o_i = Σ_j s_ij v_j / Σ_j s_ij, Eq. 3. With φ ≥ 0 each output is an average of values.

    With ``rotary`` it is no average: a rotated score can be negative, so the denominator uses unrotated ones.
    The recurrent state is φ(K)^T V and Σ_j φ(k_j).
    """

    config: LinearConfig
    kernel_norm = "denominator"

    def kernel_options(self, device: torch.device) -> dict[str, Any]:
        return super().kernel_options(device) | {"denominator_floor": self.config.denominator_floor}

    def kernel_refusal(self, dtype: torch.dtype, device: torch.device) -> str:
        if reason := super().kernel_refusal(dtype, device):
            return reason
        if self.config.denominator == "detached":
            return "a denominator without a gradient has no kernel"
        if self.rotary is not None and self.config.head_dim > 64:
            return "a denominator with a rotation takes head dimensions up to 64"
        return ""

    def attention_matrix(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        s = super().attention_matrix(q, k, allowed)
        if self.rotary is None:
            return s / self._clamped(s.sum(-1, keepdim=True))
        phi_q, phi_k = self.features(q, k)
        unrotated = phi_q @ phi_k.mT
        if allowed is not None:
            unrotated = unrotated.masked_fill(~allowed, 0.0)
        return s / self._clamped(unrotated.sum(-1, keepdim=True))

    def _clamped(self, z: Tensor) -> Tensor:
        z = z.clamp(min=self.config.denominator_floor)
        return z.detach() if self.config.denominator == "detached" else z

    def chunked(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        if self.config.causal and self.rotary is None and self.config.denominator == "learned":
            floor = self.config.denominator_floor
            product = Product(self.config.chunk_size, self.config.phi, "denominator", floor=floor)
            return causal_attention(q, k, v, key_padding_mask, product)
        phi_q, phi_k = self.features(q, k, key_padding_mask)
        if self.rotary is None and not self.config.causal:
            t, z = product_and_normaliser(phi_q, phi_k, widen(v))
        else:
            sums = phi_k.cumsum(-2) if self.config.causal else phi_k.sum(-2, keepdim=True)
            z = (phi_q * sums).sum(-1, keepdim=True)
            phi_q, phi_k = self.rotated(phi_q, phi_k)
            if self.config.causal:
                t = causal_attention(phi_q, phi_k, widen(v), None, Product(self.config.chunk_size))
            else:
                t = phi_q @ (phi_k.mT @ widen(v))
        return t / self._clamped(z)

    def state_shapes(self) -> StateShapes:
        return {**super().state_shapes(), "z": (self.config.head_dim,)}

    def state_after(self, k: Tensor, v: Tensor) -> State:
        return {**super().state_after(k, v), "z": feature_map(self.config.phi)(widen(k)).sum(-2)}

    def eager_step(self, q: Tensor, k: Tensor, v: Tensor, state: State, position: int | Tensor) -> tuple[Tensor, State]:
        phi_q, phi_k = self.features(q, k)
        z_BHD = state["z"].add_(phi_k[:, :, 0])
        delta = (phi_q @ z_BHD[..., None]).clamp(min=self.config.denominator_floor)
        phi_q, phi_k = self.rotated(phi_q, phi_k, start=position)
        kv = state["kv"].addcmul_(phi_k.mT, widen(v))
        return phi_q @ kv / delta, {"kv": kv, "z": z_BHD}

    def bound(self, qkv_3BHD: Tensor, o_BHD: Tensor, state: State) -> Callable[[int], None]:
        fixed = self._fixed(qkv_3BHD, o_BHD, state)
        if fixed is None:
            return super().bound(qkv_3BHD, o_BHD, state)
        z, floor = state["z"], self.config.denominator_floor
        z_column, delta = z.view(-1, z.shape[-1], 1), z.new_empty(z.shape[0] * z.shape[1], 1, 1)

        def step(position: int) -> None:
            fixed.add_token()
            z.add_(fixed.phi_k)
            torch.bmm(fixed.phi_q, z_column, out=delta).clamp_(min=floor)
            fixed.read()
            fixed.o.div_(delta)

        return step
