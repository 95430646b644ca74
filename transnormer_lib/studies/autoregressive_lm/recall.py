"""What the late layers are for: tasks whose answers stand outside a token's block.

Language at this size is decided by the last few bytes, which a block holds. Recall and copying are not, so what the
late layers do shows there: every early mechanism with every late one, softmax attention and DiagAttention everywhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from transnormer_lib.analysis import seeds as over_seeds
from transnormer_lib.checks import check_choice
from transnormer_lib.data.context_tasks import VOCAB_SIZE, ContextTask
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.progress import tracked
from transnormer_lib.studies.autoregressive_lm.factors import Compared, Factors, architecture_of, compared, ranked, row
from transnormer_lib.studies.common import language_models, rates
from transnormer_lib.training.config import Band, DataConfig, RunConfig
from transnormer_lib.training.store import RunStore

PAIRS = (
    "softmax/softmax", "linear/linear", "norm/norm", "diag/diag", "diag/norm", "diag/linear", "diag/softmax",
)  # fmt: skip
SOLVED = 0.9  # the accuracy from which softmax attention counts as having solved a task

# By claim, the two pairs, the favoured one first. A claim's name is RULE-CLAIM, with LRPE RULE-CLAIM-lrpe.
CLAIMS: Mapping[str, tuple[str, str]] = {
    "late-layers-needed": ("diag/norm", "diag/diag"),
    "blocks-help-linear": ("diag/linear", "linear/linear"),
    "norm-over-linear-after-diag": ("diag/norm", "diag/linear"),
    "softmax-over-norm-after-diag": ("diag/softmax", "diag/norm"),
    "softmax-over-linear": ("softmax/softmax", "linear/linear"),
}

# Accuracy by task and row: one value per seed, in the seeds' order.
Accuracies = Mapping[str, Mapping[str, Sequence[float]]]


@dataclass(frozen=True)
class RecallParameters(rates.RateSearch, language_models.Rows, Factors):
    """The parameters of these runs; seeds, rotations and the rest of the models are the notebook's."""

    recall_tasks: tuple[str, ...]  # recall-PAIRS, copy-SYMBOLS; none: nothing is trained
    recall_length: int  # tokens of a sequence
    recall_layers: int  # blocks of these models
    recall_steps: int  # optimiser steps; a tenth of them is warm-up
    recall_batch_size: int  # sequences per step
    recall_rates: Mapping[str, float]  # learning rates by "TASK ROW"
    recall_rates_tried: tuple[float, ...]  # those among which they were chosen, on rate_seeds


def models(parameters: RecallParameters) -> dict[str, ModelConfig]:
    """The rows, with every rotation of the notebook."""
    size = replace(parameters, length=parameters.recall_length, layers=parameters.recall_layers)
    return {
        row(pair, rotation): replace(
            language_models.model(architecture_of(pair), size, rotary=rotation), vocab_size=VOCAB_SIZE
        )
        for rotation in parameters.rotations
        for pair in PAIRS
    }


def searches(parameters: RecallParameters) -> dict[str, rates.Search]:
    """By task, every row with every seed. Raises ValueError for a rate of what is no task and row."""
    configs = models(parameters)
    known = [f"{task} {name}" for task in parameters.recall_tasks for name in configs]
    for name in parameters.recall_rates:
        check_choice("recall_rates", name, known)
    return {task: _search(task, configs, parameters) for task in parameters.recall_tasks}


def runs(parameters: RecallParameters) -> list[RunConfig]:
    """By task, the searches for the rates, then one run per row and seed."""
    return [run for search in searches(parameters).values() for run in search.runs()]


def _search(task: str, configs: Mapping[str, ModelConfig], parameters: RecallParameters) -> rates.Search:
    length, steps = parameters.recall_length, parameters.recall_steps
    size = replace(
        parameters,
        length=length,
        steps=steps,
        warmup=steps // 10,
        batch_size=parameters.recall_batch_size,
        bands=(),
        rates=rates.under(task, parameters.recall_rates),
        rates_tried=parameters.recall_rates_tried,
    )
    data = DataConfig(task="context", task_name=task, length=length, batch_size=size.batch_size)
    # A uniform guess has ln 66 = 4.2 nats; an easy task may be solved by then.
    band = Band(max(steps // 10, 1), 0.0, 5.0)

    def make(row: str, seed: int, rate: float, label: str) -> RunConfig:
        own = replace(size, learning_rate=rate)
        return language_models.run(f"{task}-{label}", configs[row], seed, own, data=data, bands=(band,))

    return rates.Search(size, tuple(configs), parameters.seeds, make)


def measure(parameters: RecallParameters, store: RunStore) -> Accuracies:
    """Train or load every run; the share of the answers that are right, zero where a run diverged."""
    found: dict[str, dict[str, list[float]]] = {}
    for task, search in tracked(searches(parameters).items(), "task"):
        for name, _, run in search.trained(store, weights=False):
            finished = run.record["status"] == "finished"
            accuracy = run.record["validation"][-1]["accuracy"] if finished else 0.0
            found.setdefault(task, {}).setdefault(name, []).append(accuracy)
    return found


def table(accuracies: Mapping[str, Sequence[float]], rotation: str) -> list[dict[str, Any]]:
    """One line per pair that was trained: the share of right answers, and its range over the seeds; best first."""
    trained = reversed(ranked(accuracies, dict(zip(PAIRS, PAIRS, strict=True)), rotation))
    return [
        {"early": early, "late": late, "right": over_seeds.mean(found), "range": over_seeds.spread(found, 3)}
        for pair, found in trained
        for early, late in [pair.split("/")]
    ]


def in_block(task: ContextTask, block_size: int) -> float:
    """The share of right answers of a rule that sees its own block alone and guesses where the answer is not in it.

    The rule of DiagAttention in one layer: recall's pairs are the first tokens, so only an answer in the first block,
    or in one with pairs in it, can be looked up.
    """
    (batch,) = task.held_out("validation", 2000, 2000)
    visible, answers = 0, 0
    for tokens, targets in zip(batch["input_ids"].tolist(), batch["targets"].tolist(), strict=True):
        for place, target in enumerate(targets):
            if target >= 0:
                block = tokens[place - place % block_size : place]
                key = tokens[place] if task.name.startswith("recall") else None
                seen = any(a == key and b == target for a, b in pairwise(block))
                visible, answers = visible + seen, answers + 1
    return visible / answers + (1 - visible / answers) * task.chance


def learned(accuracies: Mapping[str, Sequence[float]], rotation: str) -> dict[str, Any]:
    """The floor of a task, as an ordering takes it: softmax attention solves it with every seed, or it says nothing."""
    softmax = accuracies.get(row("softmax/softmax", rotation), [])
    errors = {"softmax attention": [1.0 - share for share in softmax]}
    return {"learned": errors, "floor": 1.0 - SOLVED, "floor_name": "an error of one answer in ten"}


def comparisons(accuracies: Mapping[str, Sequence[float]], rule: str, rotation: str) -> Compared:
    """The accuracies of both sides, the favoured one first, by claim; only those of which both were trained."""
    return compared(accuracies, CLAIMS, rotation, f"{rule}-")
