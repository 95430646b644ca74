"""Which settings of Table 13 follow from other numbers of the paper: the sizes from the counts of Tables 4 and 5.

A size is found by asking at which value a model has the printed parameters; what the table prints is not looked at.
"""

import math
from dataclasses import replace
from typing import Any

from transnormer_lib.data.vocabulary import PUBLISHED_SIZES
from transnormer_lib.models.architectures import published
from transnormer_lib.models.config import Kind, ModelConfig
from transnormer_lib.models.language_model import count_parameters, width_for
from transnormer_lib.paper import settings, tables

_TABLE: dict[Kind, str] = {"decoder": "table_4", "encoder": "table_5"}
MODELS: dict[Kind, settings.Model] = {"decoder": "autoregressive", "encoder": "bidirectional"}
_WIDTHS = range(256, 1025, 128)  # where the width is looked for


def printed(kind: Kind, method: str) -> float:
    """The parameters in millions that Table 4 or 5 prints for a row."""
    value = tables.load(_TABLE[kind]).value("params", method=method)
    assert isinstance(value, float)
    return value


def _layers(config: ModelConfig, millions: float) -> int:
    """The number of layers, all of the last one's mechanism, at which the count is nearest to ``millions``."""
    one, two = (count_parameters(replace(config, attention=config.attention[-1:] * n)) for n in (1, 2))
    return round((millions * 1e6 - one) / (two - one)) + 1


def glu_width(kind: Kind) -> int:
    """The GLU's width at which T2 has its printed parameters."""
    return width_for(published("transnormer-t2", kind), printed(kind, "TransNormer T2") * 1e6)


def vocabulary(kind: Kind) -> int:
    """The entries of the vocabulary at which softmax attention has its printed parameters."""
    # As the layers, an entry of the vocabulary adds as much as the next one.
    config = published("vanilla", kind)
    one, two = (count_parameters(replace(config, vocab_size=entries)) for entries in (1, 2))
    return round((printed(kind, "Vanilla") * 1e6 - one) / (two - one)) + 1


def width(kind: Kind) -> int:
    """The width, of the multiples of 128, at which softmax attention has its printed parameters."""
    config = published("vanilla", kind)
    configs = {size: replace(config, dim=size, hidden=4 * size) for size in _WIDTHS if size % config.heads == 0}
    return min(configs, key=lambda size: abs(count_parameters(configs[size]) / 1e6 - printed(kind, "Vanilla")))


def layers(kind: Kind, row: str, method: str) -> int:
    """The layers at which a row has its printed parameters."""
    return _layers(published(row, kind), printed(kind, method))


def matching_flash_layers(kind: Kind) -> int:
    """The layers at which FLASH-quad comes nearest to softmax attention's parameters."""
    return _layers(published("flash-quad", kind), count_parameters(published("vanilla", kind)) / 1e6)


def tokenizer(entries: int) -> str:
    """What a vocabulary of so many entries is: ``words``, ``BPE``, or ``unknown``."""
    names = {size: name for name, size in PUBLISHED_SIZES.items()}
    name = names.get(entries, "")
    return "words" if name.endswith("words") else "BPE" if name.endswith("bpe") else "unknown"


def said(kind: Kind, name: str) -> Any:
    """What Table 13 prints of a setting."""
    return settings.said("Table 13", MODELS[kind], name)


def rows() -> list[dict[str, Any]]:
    """Each setting of the table that can be found elsewhere: printed, found, and where."""
    scripts = "OpenNLPLab/Transnormer@fba2b49"
    lines = []
    for kind, model in MODELS.items():
        counted = {
            "layers": (f"{kind}_layers", layers(kind, "vanilla", "Vanilla")),
            "width": ("dim", width(kind)),
            "GLU width": ("glu", glu_width(kind)),
            "vocabulary": ("vocabulary", vocabulary(kind)),
        }
        table = tables.load(_TABLE[kind]).locus
        for setting, (name, found) in counted.items():
            lines.append(_row(model, setting, said(kind, name), found, f"parameters, {table}"))
        entries = said(kind, "vocabulary")
        lines.append(_row(model, "tokenizer", said(kind, "tokenizer"), tokenizer(entries), f"{entries:,} entries"))
        batch = math.prod(settings.said(scripts, model, "batch"))
        lines.append(_row(model, "batch", said(kind, "batch"), batch, "script"))
        lines.append(_row(model, "warm-up", said(kind, "warmup"), settings.said(scripts, model, "warmup"), "script"))
        for setting, name in (("updates", "updates"), ("learning rate", "learning_rate")):
            elsewhere = settings.said("Section 5.1", model, name)
            lines.append(_row(model, setting, said(kind, name), elsewhere, "Section 5.1"))
    return lines


def _row(model: str, setting: str, printed: Any, found: Any, where: str) -> dict[str, Any]:
    return {"model": model, "setting": setting, "printed": printed, "found": found, "where": where}
