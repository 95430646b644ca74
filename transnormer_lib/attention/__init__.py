# ruff: noqa: F401  (the package's public names)
"""Attention mechanisms behind one interface and one registry. Imports torch alone.

For example::

    import torch
    from transnormer_lib.attention import MultiHeadAttention, build, names

    names()  # ("bigbird", "cosformer", "diag", ...)
    attention = build("norm", {"heads": 8, "head_dim": 64, "causal": True, "phi": "elu"})
    q, k, v = torch.randn(3, 2, 8, 100, 64)          # each [batch, heads, length, head_dim]
    padding = torch.zeros(2, 100, dtype=torch.bool)  # True marks padding
    o = attention(q, k, v, key_padding_mask=padding)
    w = attention.weights(q, k, v, padding)          # [batch, heads, length, length], for analysis
    layer = MultiHeadAttention(512, attention)
    y = layer(torch.randn(2, 100, 512), key_padding_mask=padding)

and the same mechanism as a recurrence::

    o, state = attention.prefill(q, k, v)            # parallel, and the state after the last token
    o_next, state = attention.step(q[:, :, 0], k[:, :, 0], v[:, :, 0], state)  # one more token, each [B, H, D]
"""

from transnormer_lib.attention.bigbird import BigBirdAttention, BigBirdConfig
from transnormer_lib.attention.block import AttentionBlock, BlockConfig
from transnormer_lib.attention.chunked import causal_attention, product_and_normaliser
from transnormer_lib.attention.cosformer import CosformerAttention, CosformerConfig
from transnormer_lib.attention.diag import DiagAttention, DiagConfig
from transnormer_lib.attention.feature_maps import FEATURE_MAPS, feature_map
from transnormer_lib.attention.flash import Flash, FlashConfig, FlashQuad, FlashQuadConfig
from transnormer_lib.attention.gated import GatedBlock, GatedConfig
from transnormer_lib.attention.gau import GAU, GAUConfig
from transnormer_lib.attention.informer import InformerAttention, InformerConfig
from transnormer_lib.attention.interface import Attention, AttentionConfig, Mechanism
from transnormer_lib.attention.lara import Lara, LaraConfig
from transnormer_lib.attention.linear import (
    LinearAttention,
    LinearConfig,
    UnscaledLinearAttention,
    UnscaledLinearConfig,
    scale_rows,
)
from transnormer_lib.attention.linformer import Linformer, LinformerConfig
from transnormer_lib.attention.long_short import TransformerLSAttention, TransformerLSConfig
from transnormer_lib.attention.longformer import LongformerAttention, LongformerConfig
from transnormer_lib.attention.multihead import MultiHeadAttention
from transnormer_lib.attention.norm import NormAttention, NormConfig, magnitude_weights
from transnormer_lib.attention.norms import LayerNorm, RMSNorm, ScaleNorm, build_norm, layer_norm, rms_norm
from transnormer_lib.attention.nystromformer import Nystromformer, NystromformerConfig
from transnormer_lib.attention.parallel import ParallelAttention, joined
from transnormer_lib.attention.performer import PerformerAttention, PerformerConfig
from transnormer_lib.attention.polynomial import PolynomialAttention, PolynomialConfig
from transnormer_lib.attention.recurrent import State
from transnormer_lib.attention.reformer import ReformerAttention, ReformerConfig
from transnormer_lib.attention.registry import (
    About,
    about,
    build,
    build_attention,
    classes,
    config_class,
    is_recurrent,
    kind,
    names,
    register,
)
from transnormer_lib.attention.rela import ReLAConfig, ReLAttention
from transnormer_lib.attention.rfa import RFAAttention, RFAConfig
from transnormer_lib.attention.rotary import Rotary
from transnormer_lib.attention.scattered import ScatteredAttention, ScatteredConfig
from transnormer_lib.attention.skyformer import Kernelized, KernelizedConfig, Skyformer, SkyformerConfig
from transnormer_lib.attention.softmax import SoftmaxAttention, SoftmaxConfig, masked_softmax
