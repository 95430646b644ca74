"""The architectures that the paper compares, by name, and the two recipes for what the paper leaves out.

An architecture is a mechanism for the early half of the layers, one for the later half (Section 5.4), and what
surrounds them. **baseline** surroundings are those of the published vanilla and 1+elu models: FFN, LayerNorm.
**transnormer** surroundings are TransNormer's own: GLU, RMSNorm, and rotated queries and keys where the recipe has
them. The *matched* controls put softmax and 1+elu attention into TransNormer's surroundings, so that attention alone
differs from TransNormer; without them a comparison with the published baselines is confounded.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from transnormer_lib import attention
from transnormer_lib.models.config import Kind, ModelConfig, one_of

Recipe = Literal["paper", "released"]
Surroundings = Literal["baseline", "transnormer"]


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


@dataclass(frozen=True)
class Architecture:
    """One row of the paper's tables."""

    early: Layer
    late: Layer
    surroundings: Surroundings


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
}


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
    **fields: Any,
) -> ModelConfig:
    """The config of the architecture ``name``, or of a registered mechanism; ``fields`` override single fields.

    Decoders are pre-norm with sinusoidal positions, encoders post-norm with learned ones (Section 5.1 and the
    released archs). With fewer than two layers the early half is empty.

    ``recipe``
      - ``paper``: as the paper has it. ε inside the root (Definition D.1), a swish GLU (Table 13), no rotation.
      - ``released``: as OpenNLPLab/fairseq-evo@38fa81f computes it. In TransNormer's surroundings queries and keys
        pass LRPE, ε stands outside the root, and the GLU's "swish" is the identity, which the release's activation
        table returns for it. An encoder has attention dropout 0.1 in every mechanism with an attention matrix,
        DiagAttention too. The published baselines have none of TransNormer's surroundings, LRPE among them.

    Raises ``ValueError`` for an unknown name or recipe, and where the fields do not fit.
    """
    one_of("recipe", recipe, get_args(Recipe))
    row = _row(name)
    early = layers // 2
    stack = (row.early,) * early + (row.late,) * (layers - early)
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
        attention=tuple(layer.mechanism for layer in stack),
        attention_options={layer.mechanism: _options(layer, block_size, released) for layer in stack},
        **values,
    )
    return replace(config, **fields) if fields else config


def _options(layer: Layer, block_size: int, released: bool) -> dict[str, Any]:
    options = dict(layer.options)
    if layer.mechanism == "diag":
        options["block_size"] = block_size
    if released and (layer.mechanism == "norm" or options.get("scores") == "rela"):
        options["eps_placement"] = "outside"
    return options
