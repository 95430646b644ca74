"""What Tables 1, 5 and 8 of the paper print about encoders, and the published encoder beside the decoder."""

from typing import Any

from transnormer_lib.choices import VARIANTS
from transnormer_lib.models.architectures import published
from transnormer_lib.models.language_model import count_parameters
from transnormer_lib.studies.common.published import number

# Rows of Table 5 by our names.
PUBLISHED = {
    "vanilla": "Vanilla",
    "flash-quad": "FLASH-quad",
    "flash": "FLASH",
    "transformer-ls": "LS",
    "performer": "Performer",
    "linear": "1+elu",
    "transnormer-t1": "TransNormer T1",
    "transnormer-t2": "TransNormer T2",
}
PIECES = "gpt2-bpe"  # the vocabulary of Table 13, whose perplexity per piece Tables 1 and 8 print


def published_perplexity(row: str) -> float | None:
    """The masked-LM perplexity printed for a row: 1+elu's (Table 1), TransNormer's (Table 8), else None."""
    if row == "linear":
        return number("table_1", "ppl_val", method="1+elu")
    if row in VARIANTS:
        return number("table_8", row.removeprefix("transnormer-"), diag_layers=6, norm_layers=6)
    return None


def published_parameters(row: str) -> float:
    """The parameters in millions that Table 5 prints for a row."""
    return number("table_5", "params", method=PUBLISHED[row])


def decoder_and_encoder() -> list[dict[str, Any]]:
    """Where the two published TransNormer models differ, one line per property."""
    models = {kind: published("transnormer-t2", kind) for kind in ("decoder", "encoder")}
    places = {"pre": "before each part, and at the end", "post": "after each part's sum"}
    lines: dict[str, dict[str, Any]] = {
        "a token reads": {"decoder": "what came before", "encoder": "both sides"},
        "layers": {kind: model.layers for kind, model in models.items()},
        "width": {kind: model.dim for kind, model in models.items()},
        "heads": {kind: model.heads for kind, model in models.items()},
        "width inside the GLU": {kind: model.hidden_width for kind, model in models.items()},
        "ids of the vocabulary": {kind: f"{model.vocab_size:,}" for kind, model in models.items()},
        "positions": {kind: model.positions for kind, model in models.items()},
        "norm": {kind: places[model.norm_placement] for kind, model in models.items()},
        "parameters (M)": {kind: round(count_parameters(model) / 1e6, 2) for kind, model in models.items()},
    }
    return [{"property": name, "notebook 04": by["decoder"], "here": by["encoder"]} for name, by in lines.items()]
