"""NormAttention: linear attention whose scaling is replaced by a norm of the output.

Eq. 13 and 14 of "The Devil in Linear Transformer": T = φ(Q) (φ(K)^T V), O = XNorm(T). T1 takes φ = elu, T2
takes φ = 1+elu; both take RMSNorm without gain. The released code normalises the concatenated heads, the whole
embedding of H·D numbers (OpenNLPLab/fairseq-evo@38fa81f), and so does the default here.

Shapes: B batch, H heads, N length, D head_dim.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from torch import Tensor

from transnormer_lib.attention.blockwise import Product
from transnormer_lib.attention.chunked import causal_attention
from transnormer_lib.attention.interface import Attention
from transnormer_lib.attention.linear import UnscaledLinearAttention, UnscaledLinearConfig
from transnormer_lib.attention.norms import NormName, RMSNorm, build_norm, check_norm, inverse_rms, over_embedding
from transnormer_lib.attention.recurrent import State
from transnormer_lib.attention.registry import register
from transnormer_lib.choices import EpsPlacement


def magnitude_weights(s: Tensor) -> Tensor:
    """|s_ij| / Σ_k |s_ik| over the last dimension; a row of zeros stays zero.

    The paper plots weights of NormAttention (Figure 2) without defining them. Its scores may be negative and
    nothing divides them by their sum, so this project shows the share of each key in the total magnitude.
    """
    magnitude = s.abs()
    return magnitude / magnitude.sum(-1, keepdim=True).clamp(min=torch.finfo(s.dtype).tiny)


@dataclass(frozen=True)
class NormConfig(UnscaledLinearConfig):
    """NormAttention. T1: ``phi="elu"``; T2: ``phi="1+elu"``. Released: ``eps_placement="outside"``."""

    norm: NormName = "rms"  # XNorm of Eq. 14
    norm_over: Literal["embedding", "head"] = "embedding"  # over all H·D numbers of a token, or D per head
    eps: float = 1e-8  # ε of Definition D.1; the paper gives no value, the release has this one
    eps_placement: EpsPlacement = "inside"  # Definition D.1: inside the root; released: outside
    affine: bool = False  # learned gain (and bias, for "layer"; one number, for "scale"), shared by heads if per head

    def __post_init__(self) -> None:
        super().__post_init__()
        check_norm(self.norm, self.eps_placement)


@register("norm", NormConfig)
class NormAttention(UnscaledLinearAttention):
    """O = XNorm(φ(Q) (φ(K)^T V)), Eq. 14. Its weights are ``magnitude_weights`` of the scores."""

    config: NormConfig

    def __init__(self, config: NormConfig) -> None:
        super().__init__(config)
        size = config.head_dim * (config.heads if config.norm_over == "embedding" else 1)
        self.norm = build_norm(config.norm, size, config.eps, config.eps_placement, config.affine)
        self.kernel_norm = config.norm_over if config.norm == "rms" else "none"

    def kernel_options(self, device: torch.device) -> dict[str, Any]:
        options = super().kernel_options(device)
        if self.config.norm != "rms":
            return options
        return options | {"eps": self.config.eps, "eps_placement": self.config.eps_placement}

    def after_kernel(self, o: Tensor) -> Tensor:
        if self.config.norm != "rms":
            return self.finish(o)
        gain = cast(RMSNorm, self.norm).gain
        if gain is None:
            return o
        return o * (gain.view(self.config.heads, 1, -1) if self.config.norm_over == "embedding" else gain)

    def causal(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None, phi: str) -> Tensor:
        if self.config.norm != "rms" or self.config.affine:
            return super().causal(q, k, v, key_padding_mask, phi)
        dims = (3,) if self.config.norm_over == "head" else (1, 3)
        eps, inside = cast(RMSNorm, self.norm).eps, self.config.eps_placement == "inside"
        product = Product(self.config.chunk_size, phi, "rms", dims, eps, inside)
        return causal_attention(q, k, v, key_padding_mask, product)

    def finish(self, t: Tensor) -> Tensor:
        return self.norm(t) if self.config.norm_over == "head" else over_embedding(self.norm, t)

    def bound(self, qkv_3BHD: Tensor, o_BHD: Tensor, state: State) -> Callable[[int], None]:
        product, config = self._fixed(qkv_3BHD, o_BHD, state), self.config
        if product is None or config.norm != "rms" or config.affine:
            return Attention.bound(self, qkv_3BHD, o_BHD, state)
        rows = o_BHD if config.norm_over == "head" else o_BHD.flatten(1)  # a view

        def step(position: int) -> None:
            product.add_token()
            product.read()
            rows.mul_(inverse_rms(rows, config.eps, config.eps_placement))

        return step

    def shown_weights(self, matrix: Tensor) -> Tensor:
        return magnitude_weights(matrix)
