"""The averages of Table 5."""

import pytest

from transnormer_lib.papers import tables
from transnormer_lib.studies.glue.average import COLUMNS, glue_average

ROWS = tables.load("transnormer", "table_5").records()


@pytest.mark.parametrize("row", ROWS, ids=[str(row["method"]) for row in ROWS])
def test_the_papers_rule_gives_the_printed_average(row: dict) -> None:
    assert abs(glue_average({name: row[name] for name in COLUMNS}).table_5 - row["avg"]) < 0.0051


def test_the_plain_average_counts_mnli_once() -> None:
    scores = dict.fromkeys(COLUMNS, 0.0) | {"mnli_m": 60.0, "mnli_mm": 90.0}
    assert glue_average(scores).plain == pytest.approx(75 / 6)


def test_without_convergence_on_a_task_there_is_no_plain_average() -> None:
    average = glue_average(dict.fromkeys(COLUMNS, 70.0) | {"cola": None})
    assert average.plain is None
    assert average.table_5 == pytest.approx(60.0)


def test_a_score_that_was_not_measured_is_named() -> None:
    with pytest.raises(ValueError, match="scores: mnli_mm not measured"):
        glue_average({name: 1.0 for name in COLUMNS if name != "mnli_mm"})
