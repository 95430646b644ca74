"""Which settings of Table 13 follow from other numbers of the paper: sizes follow from the counts of Tables 4 and 5.

For each size, the search asks which value gives the printed parameters to two decimals, with everything else as
published. If no value does, the result is None. The search does not use the size that Table 13 prints.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from transnormer_lib.data.vocabulary import PUBLISHED_SIZES
from transnormer_lib.ledger.values import shown
from transnormer_lib.models.architectures import published
from transnormer_lib.models.config import Kind, ModelConfig
from transnormer_lib.models.language_model import count_parameters, width_for
from transnormer_lib.papers import settings, tables
from transnormer_lib.studies.common.findings import joined

_UNCERTAIN = 10  # entries of a vocabulary found from a count that is printed to 0.01 M
_TABLE: dict[Kind, str] = {"decoder": "table_4", "encoder": "table_5"}
MODELS: dict[Kind, settings.Model] = {"decoder": "autoregressive", "encoder": "bidirectional"}


def printed(kind: Kind, method: str) -> float:
    """The parameters in millions that Table 4 or 5 prints for a row."""
    value = tables.load("transnormer", _TABLE[kind]).value("params", method=method)
    assert isinstance(value, float)
    return value


def fits(millions: float, theirs: float) -> bool:
    """Whether a count in millions, rounded to two decimals, is the printed one."""
    return round(millions, 2) == theirs


def _nearest(build: Callable[[int], ModelConfig], millions: float) -> int:
    """The value whose model is nearest to ``millions``, if every unit adds the same number of parameters."""
    one, two = (count_parameters(build(value)) for value in (1, 2))
    return max(round((millions * 1e6 - one) / (two - one)) + 1, 1)


def _fitting(build: Callable[[int], ModelConfig], value: int, millions: float) -> int | None:
    """``value`` if its model has the printed parameters, else None."""
    return value if fits(count_parameters(build(value)) / 1e6, millions) else None


def _deep(row: str, kind: Kind) -> Callable[[int], ModelConfig]:
    """The model of a row with one mechanism, as a function of its number of layers."""
    config = published(row, kind)
    return lambda layers: replace(config, attention=config.attention[:1] * layers)


def glu_width(kind: Kind) -> int | None:
    """The GLU width at which T2 has its printed parameters."""
    config, millions = published("transnormer-t2", kind), printed(kind, "TransNormer T2")
    return _fitting(lambda hidden: replace(config, hidden=hidden), width_for(config, millions * 1e6), millions)


def vocabulary(kind: Kind) -> int | None:
    """The vocabulary size at which softmax attention has its printed parameters."""
    config, millions = published("vanilla", kind), printed(kind, "Vanilla")

    def sized(entries: int) -> ModelConfig:
        return replace(config, vocab_size=entries)

    return _fitting(sized, _nearest(sized, millions), millions)


def width(kind: Kind) -> int | None:
    """The width at which softmax attention has its printed parameters: a multiple of the heads, at most 4,096.

    The FFN is four times as wide.
    """
    config, millions = published("vanilla", kind), printed(kind, "Vanilla")
    step = config.heads + config.heads % 2  # sinusoidal positions need an even width

    def wide(dim: int) -> ModelConfig:
        return replace(config, dim=dim, hidden=4 * dim)

    # Counts grow with the width, so only the first width with as many parameters, to the printed digits, can fit.
    sizes = range(step, 4097, step)
    at = bisect_left(sizes, millions, key=lambda dim: round(count_parameters(wide(dim)) / 1e6, 2))
    return _fitting(wide, sizes[at], millions) if at < len(sizes) else None


def layers(kind: Kind, row: str, method: str) -> int | None:
    """The layers at which a row with one mechanism has its printed parameters."""
    deep, millions = _deep(row, kind), printed(kind, method)
    return _fitting(deep, _nearest(deep, millions), millions)


def matching_flash_layers(kind: Kind) -> int:
    """The layers at which FLASH-quad's count is nearest to softmax attention's, equal or not."""
    return _nearest(_deep("flash-quad", kind), count_parameters(published("vanilla", kind)) / 1e6)


def tokenizer(entries: int) -> str:
    """What a vocabulary of this size is: ``words``, ``BPE``, or ``unknown``."""
    names = {size: name for name, size in PUBLISHED_SIZES.items()}
    name = names.get(entries, "")
    return "words" if name.endswith("words") else "BPE" if name.endswith("bpe") else "unknown"


def said(kind: Kind, name: str) -> Any:
    """What Table 13 prints for a setting."""
    return settings.said("transnormer", "Table 13", MODELS[kind], name)


def found_text(found: Any) -> str:
    """A found value as text."""
    return "no value fits" if found is None else shown(found)


def rows() -> list[dict[str, Any]]:
    """Each setting that can be found elsewhere: printed, found (None if no value fits), and where."""
    lines = []
    for kind, model in MODELS.items():
        entries, table = said(kind, "vocabulary"), f"parameters, {tables.load('transnormer', _TABLE[kind]).locus}"
        script, text = (partial(settings.said, "transnormer", of, model) for of in (settings.SCRIPTS, "Section 5.1"))
        for setting, name, found, where in (
            ("layers", f"{kind}_layers", layers(kind, "vanilla", "Vanilla"), table),
            ("width", "dim", width(kind), table),
            ("GLU width", "glu", glu_width(kind), table),
            ("vocabulary", "vocabulary", vocabulary(kind), table),
            ("tokenizer", "tokenizer", tokenizer(entries), f"{entries:,} entries"),
            ("batch", "batch", math.prod(script("batch")), "script"),
            ("warm-up", "warmup", script("warmup"), "script"),
            ("updates", "updates", text("updates"), "Section 5.1"),
            ("learning rate", "learning_rate", text("learning_rate"), "Section 5.1"),
        ):
            line = {"model": model, "setting": setting, "printed": said(kind, name), "found": found, "where": where}
            lines.append(line)
    return lines


def differing(lines: Sequence[Mapping[str, Any]]) -> str:
    """Which lines of :func:`rows` were found otherwise than printed, beyond rounding, in a sentence."""
    names = [f"{line['setting']} of the {line['model']} model" for line in lines if _differs(line)]
    return f"{len(names)} of {len(lines)} settings differ: {joined(names)}."


def _differs(line: Mapping[str, Any]) -> bool:
    if line["setting"] == "vocabulary" and line["found"] is not None:
        return abs(line["printed"] - line["found"]) > _UNCERTAIN
    return bool(line["printed"] != line["found"])
