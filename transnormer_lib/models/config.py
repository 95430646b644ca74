"""The config of a model, and of the head that makes a classifier of it.

:class:`ModelConfig` describes a language model's structure in plain fields, each of which can be set alone;
``models.architectures`` fills them in for the models that the paper names. :class:`ClassifierHead` replaces the
vocabulary. Optimisation and data are in ``transnormer_lib.training``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from transnormer_lib.checks import check_fields
from transnormer_lib.choices import EpsPlacement, Rotary, TaskKind

Kind = Literal["decoder", "encoder"]
Activation = Literal["relu", "gelu", "swish", "identity"]
Positions = Literal["sinusoidal", "learned", "none", "beside"]
Init = Literal["fairseq", "normal-0.02"]
Pooling = Literal["mean", "first"]
BILSTM = "bilstm"  # in every layer of ``ModelConfig.attention``: the recurrent baseline of ``models.transcriber``
MaskedHead = Literal["dense", "projection"]


def side_by_side(layer: str) -> tuple[str, ...]:
    """The mechanisms of one entry of ``ModelConfig.attention``: one, or several joined by ``+``."""
    return tuple(layer.split("+"))


@dataclass(frozen=True)
class ModelConfig:
    """Structure of a language model: a stack of blocks (attention, then FFN or GLU) between tied embeddings.

    Raises ``ValueError`` naming the field, its value and the rule.
    """

    __pydantic_config__ = {"extra": "forbid", "strict": True}  # noqa: RUF012  read by pydantic, not a field

    kind: Kind  # decoder: causal, pre-norm in the paper; encoder: bidirectional, post-norm
    vocab_size: int
    max_length: int = field(metadata={"most": 2**24})  # longest sequence; rows of the position table
    dim: int = field(metadata={"most": 2**17})  # model width d
    heads: int
    attention: tuple[str, ...]  # one mechanism per layer, first layer first; "diag+norm": both in it, side by side
    attention_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # per mechanism
    feed_forward: Literal["ffn", "glu"] = "ffn"
    hidden: int = field(default=0, metadata={"least": 0})  # inside the FFN (0: 4 * dim) or GLU (0: 8/3 * dim)
    activation: Activation = "gelu"
    norm: Literal["rms", "layer", "scale"] = "layer"  # with gain and bias; RMSNorm: neither; ScaleNorm: one number
    norm_eps_placement: EpsPlacement = "inside"  # of RMSNorm
    norm_placement: Literal["pre", "post"] = "pre"
    # Absolute, added to the embeddings. "beside": sinusoidal, as the second half of the width, as the linear
    # transformers' release has them.
    positions: Positions = "sinusoidal"
    rotary: Rotary = "none"  # relative, inside every attention; blocks have their own
    dropout: float = 0.0  # of the embeddings and of each branch before it is added
    attention_dropout: float = 0.0  # of the attention matrix, in the mechanisms that have one
    activation_dropout: float = 0.0  # inside the FFN or GLU
    biases: bool = True  # of the linear layers in attention and FFN or GLU; blocks have their own
    scale_embedding: bool = True  # times √dim
    tied: bool = True  # the output projection is the embedding
    masked_head: MaskedHead = "dense"  # an encoder's: dense, GELU, LayerNorm, projection with a bias; or a projection
    embedding_norm: Literal["layer", "rms"] = "layer"  # of an encoder's embeddings, as norm
    segments: int = field(default=0, metadata={"least": 0})  # embeddings of text segments; all tokens are in the first
    output_bias: bool = False  # of a decoder's logits; an encoder's head has one of its own
    init: Init = "fairseq"  # the scheme of the first weights: models.initialisation
    # A decoder's output: so many logistics over the ids as grey values, in place of logits; 0: logits.
    logistics: int = field(default=0, metadata={"least": 0})
    # A transcriber's input: frames of so many features, in place of token ids; ``vocab_size`` then counts its symbols.
    features: int = field(default=0, metadata={"least": 0})
    context: int = field(
        default=0, metadata={"least": 0}
    )  # frames on either side that a transcriber reads with a frame

    def __post_init__(self) -> None:
        check_fields(self)
        if self.dim % self.heads:
            raise ValueError(f"heads={self.heads!r}: must divide dim={self.dim}")
        if not self.attention:
            raise ValueError(f"attention={self.attention!r}: needs one mechanism per layer, at least one")
        if self.positions == "sinusoidal" and self.dim % 2:
            raise ValueError(f"dim={self.dim!r}: must be even for sinusoidal positions")
        if self.positions == "beside" and (self.dim % 4 or self.tied):
            raise ValueError(
                f"positions='beside': needs dim={self.dim!r} divisible by 4, and tied=False, since an embedding is"
                " half as wide"
            )
        unused = set(self.attention_options) - set(self.mechanisms)
        if unused:
            raise ValueError(f"attention_options={sorted(unused)!r}: names no mechanism of attention={self.attention}")
        if self.output_bias and self.kind == "encoder":
            raise ValueError("output_bias=True: only a decoder has this bias; the masked LM's head has one of its own")
        if self.logistics and (self.kind != "decoder" or self.tied or self.output_bias):
            raise ValueError(f"logistics={self.logistics}: needs a decoder with tied=False and output_bias=False")
        if self.features and self.kind != "encoder":
            raise ValueError(f"features={self.features}: only for an encoder, not kind={self.kind!r}")
        if self.features and self.segments:
            raise ValueError(f"segments={self.segments}: a model with features reads frames, which have no segments")
        if self.context and not self.features:
            raise ValueError(f"context={self.context}: only a model with features reads frames")
        if BILSTM in self.attention and (set(self.attention) != {BILSTM} or not self.features):
            raise ValueError(f"attention={self.attention!r}: {BILSTM!r} is for all layers, of a model with features")
        if self.norm != "rms" and self.norm_eps_placement == "outside":
            raise ValueError(f"norm_eps_placement='outside': only norm='rms' has this form, not norm={self.norm!r}")

    @property
    def layers(self) -> int:
        return len(self.attention)

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads

    @property
    def input_width(self) -> int:
        """Features of a frame and of those on either side that are read with it."""
        return self.features * (2 * self.context + 1)

    @property
    def embedding_width(self) -> int:
        """Features of a token's embedding: the model's width, or half of it with the positions beside it."""
        return self.dim // 2 if self.positions == "beside" else self.dim

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The names of all layers' mechanisms, each once, in the order of their first layer."""
        return tuple(dict.fromkeys(name for layer in self.attention for name in side_by_side(layer)))

    @property
    def hidden_width(self) -> int:
        """Width inside the FFN or GLU. A GLU has three matrices where an FFN has two: 8/3 keeps their count equal."""
        if self.hidden:
            return self.hidden
        return 4 * self.dim if self.feed_forward == "ffn" else 8 * self.dim // 3


@dataclass(frozen=True)
class ClassifierHead:
    """A classifier's head above an encoder. Raises ``ValueError`` naming the field, value and rule."""

    __pydantic_config__ = {"extra": "forbid", "strict": True}  # noqa: RUF012  read by pydantic, not a field

    classes: int = field(metadata={"least": 2})  # of choices: the most candidates; of spans: 2, start and end
    head_width: int = field(default=0, metadata={"least": 0})  # of the hidden layer; 0: twice the model's width
    pooling: Pooling = "mean"
    pairs: bool = False  # classify pairs of sequences
    head_dropout: float = 0.0  # after the head's hidden layer; the head of the published Long Range Arena runs has none
    kind: TaskKind = "label"

    def __post_init__(self) -> None:
        check_fields(self)
        if self.pairs and self.kind != "label":
            raise ValueError(f"pairs=True: a head of kind={self.kind!r} reads groups of sequences, not pairs")
        if self.kind == "span" and self.classes != 2:
            raise ValueError(f"classes={self.classes}: a head of kind='span' has 2, a start and an end")

    @property
    def outputs(self) -> int:
        """Numbers per sequence, of a span's head per token: a candidate has one score."""
        return 1 if self.kind == "choice" else self.classes
