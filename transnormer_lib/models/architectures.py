"""The architectures that the paper compares, by name, and the two recipes for what the paper leaves out.

An architecture is a mechanism for the early half of the layers, one for the later half (Section 5.4), and what
surrounds them. **baseline** surroundings are those of the published vanilla and 1+elu models: FFN, LayerNorm.
**transnormer** surroundings are TransNormer's own: GLU, RMSNorm, and rotated queries and keys where the recipe has
them. The *matched* controls put softmax and 1+elu attention into TransNormer's surroundings, so that attention alone
differs from TransNormer; without them a comparison with the published baselines is confounded.
**gated** surroundings are those of FLASH and FLASH-quad, blocks without a feed-forward part: pre-norm in decoder and
encoder alike, ScaleNorm in the decoder, LayerNorm in the encoder.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from transnormer_lib import attention
from transnormer_lib.data.vocabulary import PUBLISHED_SIZES
from transnormer_lib.models.config import Kind, ModelConfig, one_of

Recipe = Literal["paper", "released"]
Surroundings = Literal["baseline", "transnormer", "gated", "gau"]
# Tables 9 and 12: how an architecture's two mechanisms, the early and the late one, are laid out over the layers.
Arrangement = Literal["stages", "stages-reversed", "alternating", "alternating-reversed", "parallel"]


@dataclass(frozen=True)
class Layer:
    """A mechanism of one half of an architecture: its registered name and the options that make it this row's."""

    mechanism: str
    options: Mapping[str, Any]


_SOFTMAX = Layer("softmax", {})
_LINEAR = Layer("linear", {})
_UNSCALED = Layer("linear-unscaled", {})
_DIAG_T1, _DIAG_T2 = Layer("diag", {"scores": "rela"}), Layer("diag", {"scores": "softmax"})
_NORM_T1, _NORM_T2 = Layer("norm", {"phi": "elu"}), Layer("norm", {"phi": "1+elu"})
_GAU = Layer("gau", {"dropout": 0.1})
_PERFORMER = Layer("performer", {"features": 64})  # as many as the released baseline has
_FLASH, _FLASH_QUAD, _LS = Layer("flash", {}), Layer("flash-quad", {}), Layer("transformer-ls", {})


@dataclass(frozen=True)
class Architecture:
    """One row of the paper's tables."""

    early: Layer
    late: Layer
    surroundings: Surroundings
    decoder_fields: Mapping[str, Any] = field(default_factory=dict)  # what its decoder alone has


_ARCHITECTURES: Mapping[str, Architecture] = {
    # Table 4: the published baselines, and TransNormer
    "vanilla": Architecture(_SOFTMAX, _SOFTMAX, "baseline"),
    "linear": Architecture(_LINEAR, _LINEAR, "baseline"),
    "transnormer-t1": Architecture(_DIAG_T1, _NORM_T1, "transnormer"),
    "transnormer-t2": Architecture(_DIAG_T2, _NORM_T2, "transnormer"),
    # ours: the same attention as the baselines, everything else as in TransNormer
    "vanilla-matched": Architecture(_SOFTMAX, _SOFTMAX, "transnormer"),
    "linear-matched": Architecture(_LINEAR, _LINEAR, "transnormer"),
    # Tables 1 and 2: what the denominator does; NormAttention in every layer, with T1's and with T2's φ
    "linear-unscaled": Architecture(_UNSCALED, _UNSCALED, "baseline"),
    "norm-t1": Architecture(_NORM_T1, _NORM_T1, "baseline"),
    "norm-t2": Architecture(_NORM_T2, _NORM_T2, "baseline"),
    # Table 3: softmax in one half of the layers
    "vanilla-linear": Architecture(_SOFTMAX, _LINEAR, "baseline"),
    "linear-vanilla": Architecture(_LINEAR, _SOFTMAX, "baseline"),
    # Tables 2, 4 and 5
    "performer": Architecture(_PERFORMER, _PERFORMER, "baseline"),
    # Tables 4 and 5: blocks, of which the paper takes 10 layers for 6 and 24 for 12 (Section 5.1)
    "flash": Architecture(_FLASH, _FLASH, "gated"),
    "flash-quad": Architecture(_FLASH_QUAD, _FLASH_QUAD, "gated"),
    # Table 4's LS has a bias on its logits, which no other decoder has: without it, 159.19 M parameters, not 159.46 M
    "transformer-ls": Architecture(_LS, _LS, "baseline", {"output_bias": True}),
    # GAU-α's surroundings: RMSNorm after each block, and no absolute positions
    "gau": Architecture(_GAU, _GAU, "gau"),
}


# Blocks have no feed-forward part, so a model has more of them: per layer of the other models, those of Section 5.1.
_BLOCKS_PER_LAYER: Mapping[Kind, float] = {"decoder": 10 / 6, "encoder": 24 / 12}

# Table 13: the models of Table 4 and of Tables 1, 3, 5 and 8 to 12.
_PUBLISHED_SIZE: Mapping[Kind, Mapping[str, Any]] = {
    "decoder": {"vocab_size": PUBLISHED_SIZES["wikitext-103-words"], "dim": 512, "heads": 8, "layers": 6},
    "encoder": {"vocab_size": PUBLISHED_SIZES["gpt2-bpe"], "dim": 768, "heads": 12, "layers": 12},
}

_RELEASED_DIVISORS: Mapping[str, str] = {"flash": "chunk", "flash-quad": "max_length"}


def names() -> tuple[str, ...]:
    """Every architecture that :func:`architecture` knows by a name of its own, beside the registered mechanisms."""
    return tuple(_ARCHITECTURES)


def _row(name: str) -> Architecture:
    """The architecture called ``name``; a registered mechanism is one too, in every layer and baseline surroundings."""
    if name in _ARCHITECTURES:
        return _ARCHITECTURES[name]
    if name in attention.names():
        return Architecture(Layer(name, {}), Layer(name, {}), "baseline")
    raise ValueError(
        f"architecture={name!r}: must be one of {', '.join(dict.fromkeys((*names(), *attention.names())))}"
    )


def depth(name: str, kind: Kind, layers: int) -> int:
    """How many layers of the architecture ``name`` stand for ``layers`` of the others: more where they are blocks.

    The published FLASH has 10 layers where the other decoders have 6, and 24 where the other encoders have 12.
    """
    row = _row(name)
    blocks = all(attention.kind(layer.mechanism) == "block" for layer in (row.early, row.late))
    return round(layers * _BLOCKS_PER_LAYER[kind]) if blocks else layers


def published(name: str, kind: Kind, **fields: Any) -> ModelConfig:
    """The architecture ``name`` at the paper's size (Table 13, sequences of 512), to be counted or trained.

    The GLU's width is 8/3 of the model's, 1365 for the decoder, which the table prints in the other model's column;
    ``hidden=2048`` is the decoder's as printed.
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
    """The config of the architecture ``name``, or of a registered mechanism; ``fields`` override single fields.

    Decoders are pre-norm with sinusoidal positions, encoders post-norm with learned ones (Section 5.1 and the
    released archs).

    ``arrangement`` lays the architecture's two mechanisms out over the layers:
      - ``stages``: the early one in the first ``early`` layers, the late one in the others (Table 8); ``early``
        defaults to half of the layers, rounded down. ``stages-reversed``: the late one comes first (Table 9), and
        ``early`` counts its layers.
      - ``alternating``: early, late, early, ...; ``alternating-reversed``: late, early, late, ... (Table 12)
      - ``parallel``: both in every layer, side by side (Table 12).

    ``flash`` and ``flash-quad`` are published with 10 layers (decoder) and 24 (encoder), which the caller passes
    (:func:`depth`). Their norm stands before each block in the encoder too, and there it is LayerNorm: the released
    arch leaves the norm to its default, and only with that one do the weights add up to Table 5's. The final norm that
    our pre-norm encoder has, and the two vectors per layer that the release learns to no effect, are below the digits
    printed.

    ``recipe``
      - ``paper``: as the paper has it. ε inside the root (Definition D.1), a swish GLU (Table 13), no rotation.
      - ``released``: as OpenNLPLab/fairseq-evo@38fa81f computes it. In TransNormer's surroundings queries and keys
        pass LRPE, ε stands outside the root, and the GLU's "swish" is the identity, which the release's activation
        table returns for it. An encoder has attention dropout 0.1 in every mechanism with an attention matrix,
        DiagAttention too. The published baselines have none of TransNormer's surroundings, LRPE among them. FLASH
        divides by its chunk size and FLASH-quad by ``max_length``, whatever the number of tokens seen.

    Raises ``ValueError`` for an unknown name, recipe or arrangement, for an ``early`` that is no number of layers or
    stands with another arrangement than stages, and where the fields do not fit.
    """
    one_of("recipe", recipe, get_args(Recipe))
    row = _row(name)
    stack = _stack(row, layers, arrangement, early)
    used = {layer.mechanism: layer for together in stack for layer in together}
    decoder, transnormer, released = kind == "decoder", row.surroundings == "transnormer", recipe == "released"
    values: dict[str, Any] = {
        "norm_placement": "pre" if decoder else "post",
        "positions": "sinusoidal" if decoder else "learned",
        "scale_embedding": decoder,
        "init": "fairseq" if decoder else "normal-0.02",
        "activation": "relu" if decoder else "gelu",
    }
    if transnormer:
        values |= {"feed_forward": "glu", "activation": "swish", "norm": "rms"}
    if row.surroundings == "gau":
        values |= {"norm_placement": "post", "norm": "rms", "positions": "none"}
    if row.surroundings == "gated":
        values |= {"norm_placement": "pre", "norm": "scale" if decoder else "layer"}
    if decoder:
        values |= row.decoder_fields
    if released:
        values["attention_dropout"] = 0.0 if decoder else 0.1
    if released and transnormer:
        values |= {"rotary": "lrpe", "activation": "identity", "norm_eps_placement": "outside"}
    config = ModelConfig(
        kind=kind,
        vocab_size=vocab_size,
        max_length=max_length,
        dim=dim,
        heads=heads,
        attention=tuple("+".join(layer.mechanism for layer in together) for together in stack),
        attention_options={name: _options(layer, block_size, released) for name, layer in used.items()},
        **values,
    )
    return replace(config, **fields) if fields else config


def _stack(row: Architecture, layers: int, arrangement: str, early: int | None) -> Sequence[tuple[Layer, ...]]:
    """The mechanisms of every layer, first layer first."""
    one_of("arrangement", arrangement, get_args(Arrangement))
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


def _options(layer: Layer, block_size: int, released: bool) -> dict[str, Any]:
    options = dict(layer.options)
    if layer.mechanism == "diag":
        options["block_size"] = block_size
    if released and (layer.mechanism == "norm" or options.get("scores") == "rela"):
        options["eps_placement"] = "outside"
    if released and layer.mechanism in _RELEASED_DIVISORS:
        options["divide_by"] = _RELEASED_DIVISORS[layer.mechanism]
    return options
