"""Kernel-based linear attention, with and without the scaling that the paper calls the devil.

Eq. 3 of "The Devil in Linear Transformer" is O = Δ^-1 φ(Q) [φ(K)^T V]: ``linear`` divides by
Δ_i = Σ_j φ(q_i)·φ(k_j), ``linear-unscaled`` does not (Table 1, "1 + elu w/o scaling").

With ``rotary`` the features φ(q) and φ(k) are turned, as in the released models (OpenNLPLab/fairseq-evo@38fa81f), and
the denominator keeps them as they were (Su et al., 2021, Eq. 19).

Shapes: B batch, H heads, N length, D head_dim.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from transnormer_lib.attention import triton_forms
from transnormer_lib.attention.about import About
from transnormer_lib.attention.blockwise import Product, operand_dtype
from transnormer_lib.attention.chunked import causal_attention, full_product, product_and_normaliser, product_flops
from transnormer_lib.attention.feature_maps import feature_map
from transnormer_lib.attention.interface import Attention, AttentionConfig, Kernel, check_positive
from transnormer_lib.attention.norms import widen
from transnormer_lib.attention.recurrent import State, StateShapes
from transnormer_lib.attention.registry import register


def scale_rows(s: Tensor, floor: float = 1e-6) -> Tensor:
    """P = Δ^-1 S of Eq. 29, with Δ_i = Σ_j s_ij clamped from below at ``floor``.

    The clamp is what the released 1+elu code does. Where φ is signed Δ_i can be negative, and the clamp then
    changes the row; Eq. 4 assumes that it does not happen.
    """
    return s / s.sum(-1, keepdim=True).clamp(min=floor)


@dataclass(frozen=True)
class UnscaledLinearConfig(AttentionConfig):
    """Linear attention without the denominator."""

    phi: str = "1+elu"  # feature map: "elu", "1+elu", "relu" or "identity"

    def __post_init__(self) -> None:
        super().__post_init__()
        feature_map(self.phi)


@register("linear-unscaled", UnscaledLinearConfig)
class UnscaledLinearAttention(Attention):
    """o_i = Σ_j s_ij v_j with s_ij = φ(q_i)·φ(k_j): Eq. 13 with φ. Its weights are S itself.

    The recurrent state is φ(K)^T V, [B, H, D, D].
    """

    config: UnscaledLinearConfig
    about: ClassVar[About] = About(
        title="Linear attention without its denominator",
        time="N·D²",
        memory="N·D + N/C·D²",
        memory_growth="linear",
        source="Qin et al., 2022, arXiv:2210.10340, Table 1",
        oracle="loops over tokens in plain Python",
    )
    kernels: ClassVar[Mapping[str, Kernel]] = {"cuda": triton_forms.linear_kernel}

    def kernel_misses(self, dtype: torch.dtype, device: torch.device) -> str:
        return triton_forms.misses_linear(self, dtype, device)

    def kernel_norm(self) -> str:
        """What the kernel does to the product: ``norm`` of ``transnormer_kernels.norm_attention``."""
        return "none"

    def after_kernel(self, o: Tensor) -> Tensor:
        """What is left to do to the kernel's output [B, H, N, D]."""
        return o

    def features(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """(φ(q), φ(k)), not turned."""
        phi = feature_map(self.config.phi)
        return phi(widen(q)), phi(widen(k))

    def scores(self, q: Tensor, k: Tensor, allowed: Tensor | None = None) -> Tensor:
        """S of Eq. 6, s_ij = φ(q_i)·φ(k_j), of the turned features; zero where ``allowed`` is False."""
        phi_q, phi_k = self.turned(*self.features(q, k))
        s = phi_q @ phi_k.mT
        return s if allowed is None else s.masked_fill(~allowed, 0.0)

    def attention_matrix(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        return self.scores(q, k, allowed)

    def masked_features(self, q: Tensor, k: Tensor, key_padding_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """(φ(q), φ(k)), not turned, with φ(k) zero on padding: a key without features is in no sum."""
        phi_q, phi_k = self.features(q, k)
        if key_padding_mask is not None:
            phi_k = phi_k.masked_fill(key_padding_mask[:, None, :, None], 0.0)
        return phi_q, phi_k

    def chunked(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        if not self.config.causal:
            phi_q, phi_k = self.turned(*self.masked_features(q, k, key_padding_mask))
            return self.finish(full_product(phi_q, phi_k, widen(v)))
        if self.rotary is None:
            return self.causal(q, k, v, key_padding_mask, self.config.phi)
        phi_q, phi_k = self.turned(*self.masked_features(q, k, key_padding_mask))
        phi_q, phi_k, v = (x.to(operand_dtype(q.dtype)) for x in (phi_q, phi_k, v))
        return self.causal(phi_q, phi_k, v, None, "identity")

    def causal(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None, phi: str) -> Tensor:
        """The output for q and k before the feature map called ``phi``."""
        product = Product(self.config.chunk_size, phi)
        return self.finish(causal_attention(q, k, v, key_padding_mask, product))

    def state_shapes(self) -> StateShapes:
        return {"kv": (self.config.head_dim, self.config.head_dim)}

    def state_after(self, k: Tensor, v: Tensor) -> State:
        (phi_k,) = self.turned(feature_map(self.config.phi)(widen(k)))
        return {"kv": phi_k.mT @ widen(v)}

    def recurrence(self, q: Tensor, k: Tensor, v: Tensor, state: State, position: int) -> tuple[Tensor, State]:
        if self.resolve_impl(q.device, q.dtype) == "triton":
            return triton_forms.step_kernel(self, q, k, v, state, position), state
        return self.one_more(q, k, v, state, position)

    def one_more(self, q: Tensor, k: Tensor, v: Tensor, state: State, position: int) -> tuple[Tensor, State]:
        """``recurrence`` in PyTorch."""
        phi_q, phi_k = self.turned(*self.features(q, k), start=position)
        kv = state["kv"].addcmul_(phi_k.mT, widen(v))
        return self.finish(phi_q @ kv), {"kv": kv}

    def head_flops(self, length: int) -> int:
        return self._product_flops(length, self.config.head_dim)

    def _product_flops(self, length: int, e: int) -> int:
        chunk_size = self.config.chunk_size if self.config.causal else None
        return product_flops(length, self.config.head_dim, e, chunk_size)


@dataclass(frozen=True)
class LinearConfig(UnscaledLinearConfig):
    """Linear attention of Eq. 3."""

    denominator_floor: float = 1e-6  # Δ_i is clamped from below at this, as the released 1+elu code does

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("denominator_floor", self.denominator_floor)


@register("linear", LinearConfig)
class LinearAttention(UnscaledLinearAttention):
    """o_i = Σ_j s_ij v_j / Σ_j s_ij, Eq. 3. With φ ≥ 0 each output is an average of values.

    With ``rotary`` it is no average: a turned score can be negative, which is why the denominator's are not turned.
    The recurrent state holds φ(K)^T V and Σ_j φ(k_j).
    """

    config: LinearConfig
    about = About(
        title="Linear attention (1+elu)",
        time="N·D²",
        memory="N·D + N/C·D²",
        memory_growth="linear",
        source="Katharopoulos et al., 2020, arXiv:2006.16236, Eq. 5",
        oracle="loops over tokens in plain Python",
    )

    def kernel_norm(self) -> str:
        return "denominator"

    def attention_matrix(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        if self.rotary is None:
            return scale_rows(self.scores(q, k, allowed), self.config.denominator_floor)
        phi_q, phi_k = self.features(q, k)
        unturned = phi_q @ phi_k.mT
        if allowed is not None:
            unturned = unturned.masked_fill(~allowed, 0.0)
        delta = unturned.sum(-1, keepdim=True).clamp(min=self.config.denominator_floor)
        return self.scores(q, k, allowed) / delta

    def chunked(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        if self.config.causal and self.rotary is None:
            floor = self.config.denominator_floor
            product = Product(self.config.chunk_size, self.config.phi, "denominator", floor=floor)
            return causal_attention(q, k, v, key_padding_mask, product)
        phi_q, phi_k = self.masked_features(q, k, key_padding_mask)
        if self.rotary is None:
            t, z = product_and_normaliser(phi_q, phi_k, widen(v), False)
        else:
            sums = phi_k.cumsum(-2) if self.config.causal else phi_k.sum(-2, keepdim=True)
            z = (phi_q * sums).sum(-1, keepdim=True)
            phi_q, phi_k = self.turned(phi_q, phi_k)
            if self.config.causal:
                t = causal_attention(phi_q, phi_k, widen(v), None, Product(self.config.chunk_size))
            else:
                t = full_product(phi_q, phi_k, widen(v))
        return t / z.clamp(min=self.config.denominator_floor)

    def state_shapes(self) -> StateShapes:
        return {**super().state_shapes(), "z": (self.config.head_dim,)}

    def state_after(self, k: Tensor, v: Tensor) -> State:
        return {**super().state_after(k, v), "z": feature_map(self.config.phi)(widen(k)).sum(-2)}

    def one_more(self, q: Tensor, k: Tensor, v: Tensor, state: State, position: int) -> tuple[Tensor, State]:
        phi_q, phi_k = self.features(q, k)
        z_BHD = state["z"].add_(phi_k[:, :, 0])
        delta = (phi_q @ z_BHD[..., None]).clamp(min=self.config.denominator_floor)
        phi_q, phi_k = self.turned(phi_q, phi_k, start=position)
        kv = state["kv"].addcmul_(phi_k.mT, widen(v))
        return phi_q @ kv / delta, {"kv": kv, "z": z_BHD}

    def head_flops(self, length: int) -> int:
        # The denominator is one more column of values; causal or turned, it is made of sums and elementwise products.
        one_more = self.rotary is None and not self.config.causal
        return self._product_flops(length, self.config.head_dim + one_more)
