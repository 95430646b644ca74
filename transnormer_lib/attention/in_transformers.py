"""NormAttention and DiagAttention inside the models of Hugging Face's transformers (extra ``transformers``).

For example::

    from transformers import AutoModelForCausalLM, LlamaConfig
    from transnormer_lib.attention.in_transformers import register

    register("norm-t2", "norm", {"phi": "1+elu"})
    config = LlamaConfig(hidden_size=256, intermediate_size=688, num_hidden_layers=4, num_attention_heads=4)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="norm-t2")

The model brings its projections, its positions and its causality; the mechanism takes the place of softmax(QK^T)V.
Keys and values of grouped heads are repeated. ``generate`` with a growing cache gives the parallel form's numbers, but
each new token reads the whole cache; the recurrent form is that of ``models.LanguageModel``.

What transformers' masks can say beyond causality and padding (sliding windows, packed sequences, masks of one's own)
has no meaning here and is refused.

Shapes: B batch, H heads, N keys, M ≤ N queries, the last ones, D head_dim.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from transnormer_lib.attention.interface import Attention
from transnormer_lib.attention.registry import build_attention


def register(name: str, mechanism: str, options: Mapping[str, Any] | None = None) -> None:
    """Make ``attn_implementation=name`` compute ``mechanism`` ("norm", "diag", …) with the ``options`` of its config.

    Raises ValueError for a name that transformers knows already, for bad options, and for a mechanism with weights of
    its own, which the model would neither save nor train. The attention raises ValueError in one line for what it
    cannot compute.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    if name in AttentionInterface().valid_keys() or name == "eager":
        raise ValueError(f"name={name!r}: transformers has an attention of this name")
    for causal in (True, False):
        built = build_attention(mechanism, {**(options or {}), "heads": 2, "head_dim": 8, "causal": causal})
        if own := [*built.state_dict()]:
            raise ValueError(f"options={dict(options or {})!r}: {mechanism!r} has weights of its own, {', '.join(own)}")
    AttentionInterface.register(name, _attention(mechanism, dict(options or {})))
    AttentionMaskInterface.register(name, _padding)


def _attention(mechanism: str, options: dict[str, Any]) -> Callable[..., tuple[Tensor, None]]:
    @cache
    def built(heads: int, head_dim: int, causal: bool) -> Attention:
        shape = {"heads": heads, "head_dim": head_dim, "causal": causal}
        return build_attention(mechanism, {**options, **shape}).eval()

    def attention(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float | None = None,
        dropout: float = 0.0,
        is_causal: bool | None = None,
        **_: Any,
    ) -> tuple[Tensor, None]:
        """o [B, M, H, D] of query [B, H, M, D] and of key and value [B, H or fewer, N, D]; no weights."""
        H, M, D = query.shape[1:]
        N = key.shape[2]
        if dropout:
            raise ValueError(f"dropout={dropout}: {mechanism!r} has none here; set the model's attention dropout to 0")
        if scaling is not None and abs(scaling * D**0.5 - 1.0) > 1e-6:
            raise ValueError(f"scaling={scaling}: {mechanism!r} scales by itself; only head_dim^-0.5 is replaced")
        if attention_mask is not None and attention_mask.ndim != 2:
            raise ValueError(f"attention_mask.shape={tuple(attention_mask.shape)}: must be a padding mask [B, N]")
        causal = _is_causal(module) if is_causal is None else is_causal
        if M > N or (M < N and not causal):
            raise ValueError(f"query.shape={tuple(query.shape)}: {mechanism!r} has no cross-attention to {N} keys")
        key, value = (x.repeat_interleave(H // x.shape[1], dim=1) for x in (key, value))
        # An output depends on its own query alone, so the earlier ones may hold anything.
        padded = F.pad(query, (0, 0, N - M, 0))
        padding = None if attention_mask is None else ~attention_mask.bool()
        o = built(H, D, causal)(padded, key, value, padding)[:, :, N - M :]
        return o.transpose(1, 2).contiguous(), None

    return attention


def _is_causal(module: nn.Module) -> bool:
    # transformers' own rule: a config with is_causal=False makes an encoder of a decoder.
    config = getattr(module, "config", None)
    return bool(getattr(module, "is_causal", True) and getattr(config, "is_causal", True))


def _padding(
    *,
    q_length: int,
    kv_length: int,
    mask_function: Callable[..., Any],
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    attention_mask: Tensor | None = None,
    **_: Any,
) -> Tensor | None:
    """The mask [B, N] of a model, True on real tokens, or None without padding: transformers' "mask interface"."""
    from transformers.masking_utils import bidirectional_mask_function, causal_mask_function

    if mask_function not in (causal_mask_function, bidirectional_mask_function):
        raise ValueError("attention_mask: only causality and padding are supported, no windows and no packed sequences")
    if kv_offset or (mask_function is causal_mask_function and int(q_offset) + q_length != kv_length):
        raise ValueError(f"kv_length={kv_length}: only a cache that grows with the text is supported")
    if attention_mask is not None and attention_mask.shape[-1] != kv_length:
        raise ValueError(f"attention_mask.shape={tuple(attention_mask.shape)}: must be [B, N] with N={kv_length}")
    return attention_mask
