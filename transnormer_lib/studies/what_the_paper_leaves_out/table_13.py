"""Which settings of Table 13 follow from other numbers of the paper: the sizes from the counts of Tables 4 and 5.

A size is found by asking at which value a model, all else as published, has the printed parameters to the printed two
decimals. There may be none: then it is None. What the table prints of the size itself is not looked at.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from transnormer_lib.data.vocabulary import PUBLISHED_SIZES
from transnormer_lib.models.architectures import published
from transnormer_lib.models.config import Kind, ModelConfig
from transnormer_lib.models.language_model import count_parameters, width_for
from transnormer_lib.papers import settings, tables

_TABLE: dict[Kind, str] = {"decoder": "table_4", "encoder": "table_5"}
MODELS: dict[Kind, settings.Model] = {"decoder": "autoregressive", "encoder": "bidirectional"}


def printed(kind: Kind, method: str) -> float:
    """The parameters in millions that Table 4 or 5 prints for a row."""
    value = tables.load("transnormer", _TABLE[kind]).value("params", method=method)
    assert isinstance(value, float)
    return value


def fits(millions: float, theirs: float) -> bool:
    """Whether a count in millions is the printed one when it is rounded to the two decimals that are printed."""
    return round(millions, 2) == theirs


def _nearest(build: Callable[[int], ModelConfig], millions: float) -> int:
    """The value at which the model is nearest to ``millions``, where each unit adds as many parameters as the next."""
    one, two = (count_parameters(build(value)) for value in (1, 2))
    return max(round((millions * 1e6 - one) / (two - one)) + 1, 1)


def _fitting(build: Callable[[int], ModelConfig], value: int, millions: float) -> int | None:
    """``value`` if the model that has it has the printed parameters, else None."""
    return value if fits(count_parameters(build(value)) / 1e6, millions) else None


def _deep(row: str, kind: Kind) -> Callable[[int], ModelConfig]:
    """The model of a row, all of whose layers have one mechanism, by the number of its layers."""
    config = published(row, kind)
    return lambda layers: replace(config, attention=config.attention[:1] * layers)


def glu_width(kind: Kind) -> int | None:
    """The GLU's width at which T2 has its printed parameters, all else as published; None if there is none."""
    config, millions = published("transnormer-t2", kind), printed(kind, "TransNormer T2")
    return _fitting(lambda hidden: replace(config, hidden=hidden), width_for(config, millions * 1e6), millions)


def vocabulary(kind: Kind) -> int | None:
    """The entries of the vocabulary at which softmax attention has its printed parameters; None if there is none."""
    config, millions = published("vanilla", kind), printed(kind, "Vanilla")

    def sized(entries: int) -> ModelConfig:
        return replace(config, vocab_size=entries)

    return _fitting(sized, _nearest(sized, millions), millions)


def width(kind: Kind) -> int | None:
    """The width at which softmax attention has its printed parameters, of all that the heads divide, up to 4,096; None
    if there is none. The FFN is four times as wide."""
    config, millions = published("vanilla", kind), printed(kind, "Vanilla")
    step = config.heads + config.heads % 2  # sinusoidal positions need an even width

    def wide(dim: int) -> ModelConfig:
        return replace(config, dim=dim, hidden=4 * dim)

    # A wider model has more parameters: the first that has as many, to the printed digits, is the one that can fit.
    sizes = range(step, 4097, step)
    at = bisect_left(sizes, millions, key=lambda dim: round(count_parameters(wide(dim)) / 1e6, 2))
    return _fitting(wide, sizes[at], millions) if at < len(sizes) else None


def layers(kind: Kind, row: str, method: str) -> int | None:
    """The layers at which a row has its printed parameters; None if there is none. The row has one mechanism."""
    deep, millions = _deep(row, kind), printed(kind, method)
    return _fitting(deep, _nearest(deep, millions), millions)


def matching_flash_layers(kind: Kind) -> int:
    """The layers at which FLASH-quad comes nearest to softmax attention's parameters, which it need not meet."""
    return _nearest(_deep("flash-quad", kind), count_parameters(published("vanilla", kind)) / 1e6)


def tokenizer(entries: int) -> str:
    """What a vocabulary of so many entries is: ``words``, ``BPE``, or ``unknown``."""
    names = {size: name for name, size in PUBLISHED_SIZES.items()}
    name = names.get(entries, "")
    return "words" if name.endswith("words") else "BPE" if name.endswith("bpe") else "unknown"


def said(kind: Kind, name: str) -> Any:
    """What Table 13 prints of a setting."""
    return settings.said("transnormer", "Table 13", MODELS[kind], name)


def shown(found: Any) -> str:
    """What was found, for the reader."""
    return "no value fits" if found is None else str(found)


def rows() -> list[dict[str, Any]]:
    """Each setting of the table that can be found elsewhere: printed, found (None: no value fits), and where."""
    lines = []
    for kind, model in MODELS.items():
        counted = {
            "layers": (f"{kind}_layers", layers(kind, "vanilla", "Vanilla")),
            "width": ("dim", width(kind)),
            "GLU width": ("glu", glu_width(kind)),
            "vocabulary": ("vocabulary", vocabulary(kind)),
        }
        table = tables.load("transnormer", _TABLE[kind]).locus
        for setting, (name, found) in counted.items():
            lines.append(_row(model, setting, said(kind, name), found, f"parameters, {table}"))
        entries = said(kind, "vocabulary")
        lines.append(_row(model, "tokenizer", said(kind, "tokenizer"), tokenizer(entries), f"{entries:,} entries"))
        batch = math.prod(settings.said("transnormer", settings.SCRIPTS, model, "batch"))
        lines.append(_row(model, "batch", said(kind, "batch"), batch, "script"))
        lines.append(
            _row(
                model,
                "warm-up",
                said(kind, "warmup"),
                settings.said("transnormer", settings.SCRIPTS, model, "warmup"),
                "script",
            )
        )
        for setting, name in (("updates", "updates"), ("learning rate", "learning_rate")):
            elsewhere = settings.said("transnormer", "Section 5.1", model, name)
            lines.append(_row(model, setting, said(kind, name), elsewhere, "Section 5.1"))
    return lines


def _row(model: str, setting: str, printed: Any, found: Any, where: str) -> dict[str, Any]:
    return {"model": model, "setting": setting, "printed": printed, "found": found, "where": where}
