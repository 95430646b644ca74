"""The runs behind Table 4: the published rows, the matched controls, and both with the release's rotation."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transnormer_lib.models.config import ModelConfig
from transnormer_lib.studies import language_models
from transnormer_lib.studies.language_models import final_bits, grid
from transnormer_lib.training.config import RunConfig

if TYPE_CHECKING:
    import pandas as pd

    from transnormer_lib.training.store import Run, RunStore

# The notebook's own parameters, beside those of every language-model study.
PARAMETERS = ("architectures", "controls", "released", "seeds", "test_windows")

# Rows of Table 4 by our names.
PUBLISHED = {
    "vanilla": "Vanilla",
    "linear": "1+elu",
    "transnormer-t1": "TransNormer T1",
    "transnormer-t2": "TransNormer T2",
}


def released(name: str) -> str:
    """The row of an architecture in the ``released`` recipe, by name."""
    return f"{name}+released"


def models(parameters: Mapping[str, Any]) -> dict[str, ModelConfig]:
    """The rows: published architectures and matched controls in the ``paper`` recipe, then those as released."""
    rows = {
        name: language_models.model(name, parameters)
        for name in (*parameters["architectures"], *parameters["controls"])
    }
    return rows | {
        released(name): language_models.model(name, parameters, recipe="released") for name in parameters["released"]
    }


def runs(parameters: Mapping[str, Any]) -> list[RunConfig]:
    """One run per row and seed, rows first."""
    configs = models(parameters)
    return [
        language_models.run(row, configs[row], seed, parameters) for row, seed in grid(configs, parameters["seeds"])
    ]


@dataclass(frozen=True)
class Measured:
    """One run: its losses in bits per token (of bytes: bits per byte), infinite where it diverged."""

    row: str
    seed: int
    validation: float
    test: float
    run: "Run"


def measure(parameters: Mapping[str, Any], store: "RunStore") -> list[Measured]:
    """Train or load every run and measure it on the test split too, which nothing was chosen on."""
    import torch

    from transnormer_lib.training.evaluation import evaluate

    corpus = language_models.corpus(parameters)
    measured = []
    for (row, seed), config in zip(grid(models(parameters), parameters["seeds"]), runs(parameters), strict=True):
        run, test = store.get(config), math.inf
        if run.record["status"] == "finished":
            result = evaluate(
                run.model(),
                config,
                corpus,
                torch.device("cpu"),
                split="test",
                windows=parameters["test_windows"],
            )
            test = result["bits_per_token"]
        measured.append(Measured(row, seed, final_bits(run), test, run))
    return measured


def bits_per_seed(measured: Sequence[Measured], row: str, split: str = "validation") -> list[float]:
    """The loss of one row for every seed, in the order of the seeds: what a paired ordering needs."""
    return [getattr(m, split) for m in sorted(measured, key=lambda m: m.seed) if m.row == row]


def table(measured: Sequence[Measured], ngrams: Mapping[str, float]) -> "pd.DataFrame":
    """One line per row: mean and range of the validation loss, mean test loss, parameters; n-gram models below."""
    import pandas as pd

    lines: list[dict[str, Any]] = []
    for row in dict.fromkeys(m.row for m in measured):
        validation = bits_per_seed(measured, row)
        test = bits_per_seed(measured, row, "test")
        lines.append(
            {
                "model": row,
                "validation": math.fsum(validation) / len(validation),
                "smallest": min(validation),
                "largest": max(validation),
                "test": math.fsum(test) / len(test),
                "parameters": next(m.run.record["parameters"] for m in measured if m.row == row),
            }
        )
    lines += [{"model": name, "validation": bits} for name, bits in ngrams.items()]
    return pd.DataFrame(lines)


def losses(measured: Sequence[Measured]) -> "pd.DataFrame":
    """Validation loss as a tidy frame: row, seed, bits."""
    import pandas as pd

    return pd.DataFrame([{"row": m.row, "seed": m.seed, "bits": m.validation} for m in measured])
