"""The architectures that the paper compares, by name, and the two recipes for what the paper leaves out.

An architecture is a mechanism for the early half of the layers, one for the later half (Section 5.4), and a backbone:

- ``baseline``: the published vanilla and 1+elu models. FFN, LayerNorm.
- ``transnormer``: TransNormer. GLU, RMSNorm and, in the released recipe, rotated queries and keys. The *matched*
  controls put softmax and 1+elu attention on this backbone, so that only attention differs from TransNormer; a
  comparison with the published baselines alone is confounded.
- ``gated``: FLASH and FLASH-quad, blocks without a feed-forward part. Pre-norm; ScaleNorm in the decoder, LayerNorm in
  the encoder.
- ``gau``: GAU-α. RMSNorm after each block, no absolute positions. As released, its encoder has segment embeddings, an
  RMSNorm without gain above them, and no more of a head than the embedding.
- ``roformer``: RoFormer. Softmax attention with RoPE and no absolute positions; FFN, LayerNorm, segment embeddings.
  ``roformer-v2`` has RMSNorm without gain in its place, and no biases.

``EARLY/LATE``, such as ``diag/linear``, is any pair of mechanisms in TransNormer's backbone: T2 is ``diag/norm``,
``linear-matched`` is ``linear/linear``. Some mechanisms have a variant there that changes one thing:
``linear-detached`` has no gradient through its denominator, ``linear-normed`` an RMSNorm after its output. Two controls
ask what DiagAttention owes to its blocks being neighbourhoods: ``scattered`` has as many keys per query, from anywhere
in the sequence; ``window`` is Longformer's sliding window without global tokens, in a decoder the last ``block_size``
tokens, the token itself among them (in a causal block a query has half as many on average), in an encoder half of them
on either side of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from transnormer_lib import attention
from transnormer_lib.checks import MOST_LAYERS, check_choice, check_count
from transnormer_lib.data.vocabulary import PUBLISHED_SIZES
from transnormer_lib.models.config import Kind, ModelConfig

Recipe = Literal["paper", "released"]
# Tables 9 and 12: how an architecture's early and late mechanism are laid out over the layers.
Arrangement = Literal["stages", "stages-reversed", "alternating", "alternating-reversed", "parallel"]


@dataclass(frozen=True)
class Layer:
    """A registered mechanism and the options with which an architecture uses it."""

    mechanism: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Architecture:
    """One row of the paper's tables."""

    early: Layer
    late: Layer
    backbone: Literal["baseline", "transnormer", "gated", "gau", "roformer"]
    decoder_fields: Mapping[str, Any] = field(default_factory=dict)  # for its decoder only
    fields: Mapping[str, Any] = field(default_factory=dict)


_SOFTMAX, _LINEAR, _UNSCALED = Layer("softmax"), Layer("linear"), Layer("linear-unscaled")
_DIAG_T1, _DIAG_T2 = Layer("diag", {"scores": "rela"}), Layer("diag", {"scores": "softmax"})
_NORM_T1, _NORM_T2 = Layer("norm", {"phi": "elu"}), Layer("norm", {"phi": "1+elu"})
_PERFORMER = Layer("performer", {"features": 64})  # as many as the released baseline has
_FLASH, _FLASH_QUAD, _LS = Layer("flash"), Layer("flash-quad"), Layer("transformer-ls")
_GAU = Layer("gau", {"dropout": 0.1})
_WINDOW = Layer("longformer", {"global_tokens": 0})  # its window is the architecture's block size

_ARCHITECTURES: Mapping[str, Architecture] = {
    # Table 4: the published baselines, and TransNormer
    "vanilla": Architecture(_SOFTMAX, _SOFTMAX, "baseline"),
    "linear": Architecture(_LINEAR, _LINEAR, "baseline"),
    "transnormer-t1": Architecture(_DIAG_T1, _NORM_T1, "transnormer"),
    "transnormer-t2": Architecture(_DIAG_T2, _NORM_T2, "transnormer"),
    # ours: the baselines' attention on TransNormer's backbone
    "vanilla-matched": Architecture(_SOFTMAX, _SOFTMAX, "transnormer"),
    "linear-matched": Architecture(_LINEAR, _LINEAR, "transnormer"),
    # Tables 1 and 2: without the denominator; NormAttention in every layer, with T1's and with T2's φ
    "linear-unscaled": Architecture(_UNSCALED, _UNSCALED, "baseline"),
    "norm-t1": Architecture(_NORM_T1, _NORM_T1, "baseline"),
    "norm-t2": Architecture(_NORM_T2, _NORM_T2, "baseline"),
    # Table 3: softmax in one half of the layers
    "vanilla-linear": Architecture(_SOFTMAX, _LINEAR, "baseline"),
    "linear-vanilla": Architecture(_LINEAR, _SOFTMAX, "baseline"),
    # Tables 2, 4 and 5
    "performer": Architecture(_PERFORMER, _PERFORMER, "baseline"),
    # Tables 4 and 5
    "flash": Architecture(_FLASH, _FLASH, "gated"),
    "flash-quad": Architecture(_FLASH_QUAD, _FLASH_QUAD, "gated"),
    # Only with a bias on its logits, which no other decoder has, does LS have Table 4's 159.46 M parameters.
    "transformer-ls": Architecture(_LS, _LS, "baseline", {"output_bias": True}),
    "gau": Architecture(_GAU, _GAU, "gau"),
    # the baselines of the GAU-based model (2022, Table 4)
    "roformer-v1": Architecture(_SOFTMAX, _SOFTMAX, "roformer"),
    "roformer-v2": Architecture(
        _SOFTMAX, _SOFTMAX, "roformer", fields={"norm": "rms", "embedding_norm": "rms", "biases": False}
    ),
}

# What stands in a pair for a mechanism: the options of T2, and one thing changed.
_IN_PAIRS: Mapping[str, Layer] = {
    "diag": _DIAG_T2,
    "norm": _NORM_T2,
    "norm-per-head": Layer("norm", {"phi": "1+elu", "norm_over": "head"}),
    "linear-detached": Layer("linear", {"denominator": "detached"}),
    "linear-clamped": Layer("linear", {"denominator_floor": 1.0}),  # ∂p/∂s of Eq. 8 is then at most 1
    "linear-normed": Layer("linear", {"norm_after": "embedding"}),
    "linear-normed-per-head": Layer("linear", {"norm_after": "head"}),
    "softmax-normed": Layer("softmax", {"norm_after": "embedding"}),
    "window": _WINDOW,
    # GAU's squared ReLU among several heads: as it is, with rows that sum to one, with an RMSNorm after it
    "relu2": Layer("rela", {"power": 2, "variant": "none"}),
    "relu2-rows": Layer("rela", {"power": 2, "variant": "rows"}),
    "relu2-normed": Layer("rela", {"power": 2, "variant": "rms"}),
}

# Blocks have no feed-forward part, so a model has more of them: 10 layers for 6, 24 for 12 (Section 5.1).
_BLOCKS_PER_LAYER: Mapping[Kind, float] = {"decoder": 10 / 6, "encoder": 24 / 12}

# Table 13: the models of Table 4 and of Tables 1, 3, 5 and 8 to 12.
_PUBLISHED_SIZE: Mapping[Kind, Mapping[str, Any]] = {
    "decoder": {"vocab_size": PUBLISHED_SIZES["wikitext-103-words"], "dim": 512, "heads": 8, "layers": 6},
    "encoder": {"vocab_size": PUBLISHED_SIZES["gpt2-bpe"], "dim": 768, "heads": 12, "layers": 12},
}

_RELEASED_DIVISORS: Mapping[str, str] = {"flash": "chunk", "flash-quad": "max_length"}


def names() -> tuple[str, ...]:
    return tuple(_ARCHITECTURES)


def check_name(name: str) -> None:
    """Raise ValueError, naming the nearest, for a name that is neither an architecture, a mechanism nor a pair."""
    _row(name)


def _row(name: str) -> Architecture:
    """The architecture ``name``. A registered mechanism is one too: in every layer, on the baseline backbone."""
    if "/" in name:
        for half in (pair := name.split("/", 1)):
            check_choice("architecture", half, dict.fromkeys((*attention.names(), *_IN_PAIRS)))
        early, late = (_IN_PAIRS.get(half, Layer(half)) for half in pair)
        return Architecture(early, late, "transnormer")
    if name in attention.names() and name not in _ARCHITECTURES:
        return Architecture(Layer(name), Layer(name), "baseline")
    check_choice("architecture", name, dict.fromkeys((*names(), *attention.names())))
    return _ARCHITECTURES[name]


def depth(name: str, kind: Kind, layers: int) -> int:
    """The layers with which ``name`` corresponds to ``layers`` of the other architectures: more if they are blocks."""
    row = _row(name)
    blocks = all(attention.kind(layer.mechanism) == "block" for layer in (row.early, row.late))
    return round(layers * _BLOCKS_PER_LAYER[kind]) if blocks else layers


def published(name: str, kind: Kind, **fields: Any) -> ModelConfig:
    """The architecture ``name`` at the paper's size (Table 13), for sequences of 512 tokens.

    The GLU's width is 8/3 of the model's: 1365 in the decoder, for which Table 13 prints 2048, as ``hidden=2048`` sets.
    """
    size = dict(_PUBLISHED_SIZE[kind])
    size["layers"] = depth(name, kind, size["layers"])
    return architecture(name, kind=kind, max_length=512, **size, **fields)


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
    recipe: Recipe = "paper",
    arrangement: Arrangement = "stages",
    early: int | None = None,
    **fields: Any,
) -> ModelConfig:
    """The config of an architecture or a registered mechanism by name; ``fields`` override single fields.

    Decoders are pre-norm with sinusoidal positions, encoders post-norm with learned ones (Section 5.1, released archs).

    ``arrangement`` lays the two mechanisms out over the layers:
      - ``stages``: the early one in the first ``early`` layers (default: half, rounded down), the late one in the
        others (Table 8). ``stages-reversed``: the late one first (Table 9), in the first ``early`` layers.
      - ``alternating``: early, late, early, ...; ``alternating-reversed``: late, early, late, ... (Table 12)
      - ``parallel``: both in every layer, side by side (Table 12).

    ``recipe``
      - ``paper``: as in the paper. ε inside the root (Definition D.1), a swish GLU (Table 13), no rotation.
      - ``released``: as in OpenNLPLab/fairseq-evo@38fa81f. TransNormer's backbone has LRPE on queries and keys, ε
        outside the root, and a GLU whose "swish" is the identity, which the release's activation table returns for
        it. An encoder has attention dropout 0.1 in every mechanism with an attention matrix, DiagAttention included.
        FLASH divides by its chunk size and FLASH-quad by ``max_length``, whatever the number of tokens seen.

    ``flash`` and ``flash-quad`` need more layers (:func:`depth`). Their encoder has LayerNorm, the released arch's
    default, because only with it does the parameter count match Table 5. (Too small to show there: our encoder's final
    norm, and two vectors per layer that the release learns to no effect.)

    Raises ``ValueError`` for an unknown name, recipe or arrangement, for an ``early`` out of range or without stages,
    and for fields that do not fit.
    """
    check_choice("recipe", recipe, Recipe)
    check_count("layers", layers, most=MOST_LAYERS)
    check_count("block_size", block_size)
    row = _row(name)
    stack = _stack(row, layers, arrangement, early)
    used = {layer.mechanism: layer for together in stack for layer in together}
    decoder, transnormer, released = kind == "decoder", row.backbone == "transnormer", recipe == "released"
    values: dict[str, Any] = {
        "attention": tuple("+".join(layer.mechanism for layer in together) for together in stack),
        "attention_options": {name: _options(layer, block_size, max_length, released) for name, layer in used.items()},
        "norm_placement": "pre" if decoder else "post",
        "positions": "sinusoidal" if decoder else "learned",
        "scale_embedding": decoder,
        "init": "fairseq" if decoder else "normal-0.02",
        "activation": "relu" if decoder else "gelu",
    }
    if transnormer:
        values |= {"feed_forward": "glu", "activation": "swish", "norm": "rms"}
    elif row.backbone == "gated":
        values |= {"norm_placement": "pre", "norm": "scale" if decoder else "layer"}
    elif row.backbone == "gau":
        values |= {"norm_placement": "post", "norm": "rms", "positions": "none"}
    elif row.backbone == "roformer":
        values |= {"positions": "none", "rotary": "rope", "activation": "gelu", "segments": 0 if decoder else 2}
    values |= row.fields
    if decoder:
        values |= row.decoder_fields
    if released and not decoder:
        values["attention_dropout"] = 0.1
    if released and transnormer:
        values |= {"rotary": "lrpe", "activation": "identity", "norm_eps_placement": "outside"}
    size: dict[str, Any] = {"vocab_size": vocab_size, "max_length": max_length, "dim": dim, "heads": heads}
    if released and row.backbone == "gau" and not decoder:
        values |= {"masked_head": "projection", "embedding_norm": "rms", "segments": 2}
    return ModelConfig(kind=kind, **size, **(values | fields))


def _stack(row: Architecture, layers: int, arrangement: str, early: int | None) -> Sequence[tuple[Layer, ...]]:
    check_choice("arrangement", arrangement, Arrangement)
    first, second = (row.late, row.early) if arrangement.endswith("-reversed") else (row.early, row.late)
    if arrangement.startswith("stages"):
        count = layers // 2 if early is None else early
        if not 0 <= count <= layers:
            raise ValueError(f"early={early!r}: must be between 0 and layers={layers}")
        return [(first,)] * count + [(second,)] * (layers - count)
    if early is not None:
        raise ValueError(f"early={early!r}: only stages have a number of early layers, not {arrangement!r}")
    if arrangement == "parallel":
        return [(first, second)] * layers
    return [(first,) if number % 2 == 0 else (second,) for number in range(layers)]


def _options(layer: Layer, block_size: int, max_length: int, released: bool) -> dict[str, Any]:
    options = dict(layer.options)
    if layer.mechanism in ("diag", "scattered"):
        options["block_size"] = block_size
    if layer.mechanism == "scattered":  # over the whole sequence; a block that would hold all of it does
        options["span"] = max(max_length, block_size)
    if layer == _WINDOW:
        options["window"] = block_size
    if released and (layer.mechanism == "norm" or options.get("scores") == "rela"):
        options["eps_placement"] = "outside"
    if released and layer.mechanism in _RELEASED_DIVISORS:
        options["divide_by"] = _RELEASED_DIVISORS[layer.mechanism]
    return options
