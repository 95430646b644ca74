"""Configs of the language models, and the architectures that the paper compares.

A :class:`ModelConfig` says everything about a model's structure in ordinary fields, each of which can be set alone.
:func:`architecture` fills them in for the models the paper names. What is left out here: optimisation and data
(``transnormer_lib.training``), task heads other than the vocabulary.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

Kind = Literal["decoder", "encoder"]
FeedForward = Literal["ffn", "glu"]
Activation = Literal["relu", "gelu", "swish", "identity"]
NormName = Literal["rms", "layer"]
NormPlacement = Literal["pre", "post"]
Positions = Literal["sinusoidal", "learned", "none"]
Init = Literal["fairseq", "normal-0.02"]


def _one_of(name: str, value: str, allowed: Any) -> None:
    options = get_args(allowed)
    if value not in options:
        raise ValueError(f"{name}={value!r}: must be one of {', '.join(map(repr, options))}")


@dataclass(frozen=True)
class ModelConfig:
    """Structure of a language model: a stack of blocks (attention, then FFN or GLU) between tied embeddings.

    Raises ``ValueError`` naming the field, its value and the rule.
    """

    __pydantic_config__ = {"extra": "forbid", "strict": True}  # noqa: RUF012  read by pydantic, not a field

    kind: Kind  # decoder: causal, pre-norm in the paper; encoder: bidirectional, post-norm
    vocab_size: int
    max_length: int  # longest sequence; rows of the position table
    dim: int  # model width d
    heads: int
    attention: tuple[str, ...]  # one registered mechanism per layer, first layer first
    attention_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # per mechanism
    feed_forward: FeedForward = "ffn"
    hidden: int = 0  # width inside the FFN or GLU; 0: 4 * dim for an FFN, 8/3 * dim for a GLU
    activation: Activation = "gelu"
    norm: NormName = "layer"
    norm_placement: NormPlacement = "pre"
    positions: Positions = "sinusoidal"
    dropout: float = 0.0
    init: Init = "fairseq"

    def __post_init__(self) -> None:
        for name in ("vocab_size", "max_length", "dim", "heads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)!r}: must be at least 1")
        if self.dim % self.heads:
            raise ValueError(f"heads={self.heads!r}: must divide dim={self.dim}")
        if not self.attention:
            raise ValueError(f"attention={self.attention!r}: needs one mechanism per layer, at least one")
        if self.hidden < 0:
            raise ValueError(f"hidden={self.hidden!r}: must not be negative")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout={self.dropout!r}: must be in [0, 1)")
        if self.positions == "sinusoidal" and self.dim % 2:
            raise ValueError(f"dim={self.dim!r}: must be even for sinusoidal positions")
        unused = set(self.attention_options) - set(self.attention)
        if unused:
            raise ValueError(f"attention_options={sorted(unused)!r}: names no mechanism of attention={self.attention}")
        for name, allowed in (
            ("kind", Kind),
            ("feed_forward", FeedForward),
            ("activation", Activation),
            ("norm", NormName),
            ("norm_placement", NormPlacement),
            ("positions", Positions),
            ("init", Init),
        ):
            _one_of(name, getattr(self, name), allowed)

    @property
    def layers(self) -> int:
        return len(self.attention)

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads

    @property
    def hidden_width(self) -> int:
        """Width inside the FFN or GLU. A GLU has three matrices where an FFN has two: 8/3 keeps their count equal."""
        if self.hidden:
            return self.hidden
        return 4 * self.dim if self.feed_forward == "ffn" else 8 * self.dim // 3


ARCHITECTURES = ("vanilla", "linear", "transnormer-t1", "transnormer-t2")


def architecture(
    name: str,
    *,
    kind: Kind,
    vocab_size: int,
    max_length: int,
    dim: int,
    heads: int,
    layers: int,
    block_size: int = 64,
    **fields: Any,
) -> ModelConfig:
    """The config of a model that the paper names; ``fields`` override single fields of the result.

    - ``vanilla``: softmax attention (Eq. 2), FFN, LayerNorm.
    - ``linear``: 1+elu attention with its scaling (Eq. 3), FFN, LayerNorm.
    - ``transnormer-t1``: first half DiagAttention with ReLA, second half NormAttention with φ = elu; GLU, RMSNorm.
    - ``transnormer-t2``: first half DiagAttention with softmax, second half NormAttention with φ = 1+elu.

    Decoders are pre-norm with sinusoidal positions, encoders post-norm with learned ones (Section 5.1 and the
    released archs). The GLU's activation is swish (Table 13).
    """
    shared: dict[str, Any] = {
        "kind": kind,
        "vocab_size": vocab_size,
        "max_length": max_length,
        "dim": dim,
        "heads": heads,
        "norm_placement": "pre" if kind == "decoder" else "post",
        "positions": "sinusoidal" if kind == "decoder" else "learned",
        "init": "fairseq" if kind == "decoder" else "normal-0.02",
    }
    if name in ("vanilla", "linear"):
        mechanism = "softmax" if name == "vanilla" else "linear"
        config = ModelConfig(
            **shared, attention=(mechanism,) * layers, activation="relu" if kind == "decoder" else "gelu"
        )
    elif name in ("transnormer-t1", "transnormer-t2"):
        early = layers // 2  # Section 5.4: the first half of the layers is the early stage
        scores, phi = ("rela", "elu") if name.endswith("t1") else ("softmax", "1+elu")
        options: dict[str, Mapping[str, Any]] = {
            "diag": {"block_size": block_size, "scores": scores},
            "norm": {"phi": phi},
        }
        attention = ("diag",) * early + ("norm",) * (layers - early)
        config = ModelConfig(
            **shared,
            attention=attention,
            attention_options={mechanism: options[mechanism] for mechanism in dict.fromkeys(attention)},
            feed_forward="glu",
            activation="swish",
            norm="rms",
        )
    else:
        raise ValueError(f"architecture={name!r}: must be one of {', '.join(ARCHITECTURES)}")
    return replace(config, **fields) if fields else config
