"""The look-up rows: their runs, what is judged of them, and the rule that sees a block alone."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from transnormer_lib.data.context_tasks import ContextTask
from transnormer_lib.ledger import claims
from transnormer_lib.project import Project
from transnormer_lib.report.parameters import resolve
from transnormer_lib.studies.autoregressive_lm import factors, recall
from transnormer_lib.studies.autoregressive_lm import runs as study
from transnormer_lib.studies.common import plans
from transnormer_lib.studies.common.parameters import read
from transnormer_lib.studies.common.rates import flat
from transnormer_lib.training.store import RunStore

NOTEBOOK = "04_autoregressive_lm"
PROJECT = Project(Path(__file__).resolve().parents[3])
QUICK = read(study.Parameters, resolve(PROJECT, "quick", NOTEBOOK))
SMALL = replace(
    QUICK, dim=8, heads=2, block_size=4, recall_tasks=("recall-2", "copy-3"), recall_length=8, recall_layers=2,
    recall_steps=10, recall_batch_size=4, seeds=(1, 2), rate_seeds=(9,), recall_rates_tried=(1e-3, 1e-2),
    validation_windows=20,
)  # fmt: skip


def test_quick_trains_none_of_these_rows() -> None:
    assert recall.runs(QUICK) == []


def test_every_task_row_and_seed_is_one_run_at_its_own_rate() -> None:
    given = replace(SMALL, recall_rates={"copy-3 diag/linear": 2e-3}, learning_rate=5e-3)
    searches = recall.searches(given)
    judged = [(task, *run) for task, search in searches.items() for run in search.judged()]
    assert len({config.name for *_, config in judged}) == len(judged) == 2 * len(recall.PAIRS) * 2
    rates = {(task, name): config.optimizer.learning_rate for task, name, _, config in judged}
    assert rates.pop(("copy-3", "diag/linear")) == 2e-3
    assert set(rates.values()) == {5e-3}
    tried = [flat(by_rate) for search in searches.values() for by_rate in search.tried().values()]
    searched = [config for configs in tried for config in configs]
    assert {config.seed for config in searched} == {9}
    assert {name for *_, config in judged for name in config.rate_search} == {config.name for config in searched}


def test_rows_differ_in_their_attention_alone() -> None:
    rows = recall.models(SMALL)
    assert len({model.attention for model in rows.values()}) == len(recall.PAIRS)
    first, *others = (replace(model, attention=("softmax",) * 2, attention_options={}) for model in rows.values())
    assert all(other == first for other in others)


def test_a_rate_of_what_is_no_row_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="recall_rates='recall-2 diag': must be one of 'recall"):
        recall.searches(replace(SMALL, recall_rates={"recall-2 diag": 1e-3}))


def test_measured_accuracies_have_a_value_per_seed(tmp_path: Path) -> None:
    found = recall.measure(
        replace(SMALL, recall_tasks=("recall-2",), recall_rates_tried=(), rate_seeds=()), RunStore(tmp_path)
    )
    assert {task: set(rows) for task, rows in found.items()} == {"recall-2": set(recall.models(SMALL))}
    assert all(len(values) == 2 and all(0 <= value <= 1 for value in values) for values in found["recall-2"].values())


def test_every_comparison_is_a_claim_and_the_primary_one_is_among_them() -> None:
    known = {claim.id: claim for claim in claims.load()}
    rows = {factors.row(pair, rotation): [0.1, 0.2] for pair in recall.PAIRS for rotation in ("none", "lrpe")}
    named = {
        name
        for rule in ("recall", "copy")
        for rotation in ("none", "lrpe")
        for name in recall.comparisons(rows, rule, rotation)
    }
    assert len(named) == 4 * len(recall.CLAIMS)
    assert {known[name].notebook for name in named} == {NOTEBOOK}
    (primary,) = (
        line["the plan"] for line in plans.table("autoregressive_lm", "plan_of_recall") if line["part"] == "primary"
    )
    assert primary in named


def test_the_table_has_the_best_row_first() -> None:
    rows = {factors.row(pair, "lrpe"): [n / 10, n / 10] for n, pair in enumerate(recall.PAIRS)}
    assert [line["right"] for line in recall.table(rows, "lrpe")] == sorted((v[0] for v in rows.values()), reverse=True)
    assert recall.table(rows, "none") == []


@pytest.mark.parametrize(
    ("task", "block", "least", "most"),
    [
        (ContextTask("recall-2", 8), 8, 1.0, 1.0),  # one block holds everything
        (ContextTask("recall-2", 64), 4, 1 / 32, 0.06),  # pairs fill a block, no key is asked for in it
        (ContextTask("copy-8", 16), 8, 1 / 64, 1 / 64),
    ],
)
def test_the_rule_of_one_block_answers_what_the_block_holds(
    task: ContextTask, block: int, least: float, most: float
) -> None:
    assert least <= recall.in_block(task, block) <= most


def test_the_rule_of_one_block_is_no_better_than_its_share_says() -> None:
    task = ContextTask("recall-4", 32)
    batch = task.draw(4000, np.random.default_rng(0))
    inside = (batch["targets"][:, 8:16] >= 0).sum() / (batch["targets"] >= 0).sum()
    assert recall.in_block(task, 16) == pytest.approx(float(inside + (1 - inside) / 32), abs=0.02)
