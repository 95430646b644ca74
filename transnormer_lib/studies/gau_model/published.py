"""What the GAU paper prints about its model: Table 5, its sentences, and the settings of Tables 6 and 7."""

import math
from collections.abc import Mapping
from typing import Any

from transnormer_lib.models.config import ModelConfig
from transnormer_lib.papers import settings, tables
from transnormer_lib.studies.common import classification
from transnormer_lib.studies.common.findings import signed
from transnormer_lib.studies.common.rates import Search
from transnormer_lib.studies.gau_model.runs import GAU, Parameters, search, tunings
from transnormer_lib.training.config import OptimizerConfig, RunConfig

V1, V2, OURS = "RoFormerV1", "RoFormerV2", "GAU"
ALIKE = {"roformer-v2": "RoFormerV2, 30k", "gau": "GAU, 30k"}  # by our rows: pre-trained alike
# The tasks of Table 5 by its columns.
TASKS = {
    "afqmc": "afqmc",
    "csl": "csl",
    "iflytek": "iflytek",
    "tnews": "tnews",
    "wsc": "cluewsc2020",
    "cmnli": "cmnli",
    "cmrc": "cmrc2018",
    "chid": "chid",
    "c3": "c3",
}


def score(model: str, column: str) -> float:
    """What Table 5 prints for a model."""
    value = tables.load("gau", "table_5").value(column, model=model)
    assert isinstance(value, int | float)
    return float(value)


def mean(model: str) -> float:
    """The mean of the nine columns of a row."""
    return math.fsum(score(model, column) for column in TASKS) / len(TASKS)


def averages() -> list[dict[str, Any]]:
    """By row: the printed average and the mean of the nine columns."""
    models = [str(record["model"]) for record in tables.load("gau", "table_5").records()]
    return [{"model": model, "printed": score(model, "avg"), "mean of nine": mean(model)} for model in models]


def largest_error_of_averages() -> float:
    """The largest difference between a printed average and the mean of its row."""
    return max(abs(line["printed"] - line["mean of nine"]) for line in averages())


def leads(model: str, other: str) -> dict[str, float]:
    """How far ``model`` is ahead of ``other`` in Table 5, in points, by column."""
    return {column: score(model, column) - score(other, column) for column in TASKS}


def lead_without(model: str, other: str) -> dict[str, float]:
    """The lead in the mean of the other eight columns, by the column that is left out."""
    found = leads(model, other)
    return {out: math.fsum(lead for column, lead in found.items() if column != out) / 8 for out in found}


def sign_test(model: str, other: str) -> tuple[int, float]:
    """On how many of the nine tasks ``model`` is ahead, and the two-sided p of so many or more if either is as likely.

    No two printed scores are equal.
    """
    ahead = sum(lead > 0 for lead in leads(model, other).values())
    n, k = len(TASKS), max(ahead, len(TASKS) - ahead)
    return ahead, min(1.0, 2 * sum(math.comb(n, i) for i in range(k, n + 1)) / 2**n)


def leads_in_words(pairs: Mapping[str, tuple[str, str]]) -> str:
    """By pair of models, on how many tasks the first is ahead, its mean lead, and that without its best task."""
    told = []
    for title, pair in pairs.items():
        without, (ahead, _) = lead_without(*pair), sign_test(*pair)
        best = min(without, key=without.__getitem__)
        whole = signed(mean(pair[0]) - mean(pair[1]), 2)
        told.append(f"{title}: ahead on {ahead} of 9, {whole} on average, without {best} {signed(without[best], 2)}")
    return f"{'; '.join(told)}."


def said(place: str, name: str) -> float:
    """A number that a section says."""
    return float(settings.said("gau", place, "sentences", name))


def _adam(optimizer: OptimizerConfig) -> dict[str, Any]:
    """AdamW's four numbers as Tables 6 and 7 name them."""
    beta_1, beta_2 = optimizer.betas
    return {"eps": optimizer.eps, "beta_1": beta_1, "beta_2": beta_2, "weight_decay": optimizer.weight_decay}


def _attention_dropout(model: ModelConfig) -> float:
    """The dropout of the attention matrix: a field of the model, or an option of the gated unit."""
    return float(model.attention_options.get(GAU, {}).get("dropout", model.attention_dropout))


def _differing(name: str, ours: Mapping[str, Any], printed: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Fields of a run that differ from print, under the run's name."""
    return {f"{name} {field}": (value, printed[field]) for field, value in ours.items() if value != printed[field]}


def table_6(parameters: Parameters) -> dict[str, tuple[Any, Any]]:
    """Where the fine-tuning of ``parameters`` differs from Table 6: "TASK ROW FIELD" → (ours, printed).

    Every field is read from the run of every row, first seed. "decay" is the schedule, linear for all tasks.
    """
    wrong: dict[str, tuple[Any, Any]] = {}
    for column, task in TASKS.items():
        examples = classification.epoch(task, parameters.train_examples)
        line = {**_of_task(column), "decay": "linear"}
        for row, run in _of_rows(tunings(task, parameters)).items():
            assert run.head is not None
            ours = {
                "batch": run.data.batch_size,
                "epochs": round(run.steps * run.data.batch_size / examples, 2),
                "learning_rate": run.optimizer.learning_rate,
                "length": run.data.length,
                "warmup": round(run.optimizer.warmup / run.steps, 3),
                "decay": run.optimizer.schedule,
                "hidden_dropout": run.model.dropout,
                "attention_dropout": _attention_dropout(run.model),
                "classifier_dropout": run.head.head_dropout,
            } | _adam(run.optimizer)
            wrong |= _differing(f"{column} {row}", ours, line)
    return wrong


def _of_rows(search: Search) -> dict[str, RunConfig]:
    """The judged run of every row with the first seed."""
    runs: dict[str, RunConfig] = {}
    for row, _, run in search.judged():
        runs.setdefault(row, run)
    return runs


def _of_task(column: str) -> Mapping[str, Any]:
    return next(line for line in tables.load("gau", "table_6").records() if line["task"].lower() == column)


NOT_IN_PRE_TRAINING = ("classifier_dropout",)  # cells of Table 7 that no pre-training run has: it has no classifier


def table_7(parameters: Parameters) -> dict[str, tuple[Any, Any]]:
    """Where the pre-training of ``parameters`` differs from Table 7: "ROW FIELD" → (ours, printed), of every row.

    The table names four numbers of steps, of which a run has one. :data:`NOT_IN_PRE_TRAINING` is left out.
    """
    (line,) = tables.load("gau", "table_7").records()
    steps = [_thousands(said) for said in line["steps"].split(", ")]
    wrong: dict[str, tuple[Any, Any]] = {}
    for row, run in _of_rows(search(parameters)).items():
        ours = {
            "steps": run.steps,
            "batch": run.data.batch_size // run.accumulate,
            "accumulation": run.accumulate,
            "learning_rate": run.optimizer.learning_rate,
            "warmup": round(run.optimizer.warmup / run.steps, 3),
            "decay": run.optimizer.schedule,
            "hidden_dropout": run.model.dropout,
            "attention_dropout": _attention_dropout(run.model),
        } | _adam(run.optimizer)
        printed = {**line, "decay": "linear", "steps": run.steps if run.steps in steps else line["steps"]}
        wrong |= _differing(row, ours, printed)
    return wrong


def _thousands(text: str) -> int:
    return 1000 * int(text.removesuffix("k"))
