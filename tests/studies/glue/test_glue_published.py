"""What follows from Table 5 as printed."""

import math

import pytest

from transnormer_lib.choices import VARIANTS
from transnormer_lib.studies.bidirectional_lm.published import PUBLISHED
from transnormer_lib.studies.glue import published
from transnormer_lib.studies.glue.average import COLUMNS


def test_the_papers_rule_gives_every_printed_average() -> None:
    assert published.largest_error_of_averages() < 0.0051
    assert [line["row"] for line in published.averages()] == list(PUBLISHED)


def test_a_row_that_did_not_converge_everywhere_has_no_average_by_task() -> None:
    plain = {line["row"]: line["plain"] for line in published.averages()}
    assert [row for row, value in plain.items() if value is None] == ["linear"]


def test_an_average_is_the_best_where_no_other_reaches_it() -> None:
    rows = [row for row in PUBLISHED if row != "transnormer-t1"]
    assert published.best_average("transnormer-t1", rows)
    assert not published.best_average("performer", rows)
    assert not published.best_average("vanilla", ["vanilla"])  # a tie is not better


def test_an_exception_names_a_linear_method_that_is_not_behind() -> None:
    found = published.exceptions()
    assert any("FLASH-quad 90.94" in line for line in found)
    assert not any("Vanilla" in line for line in found)


@pytest.mark.parametrize("row", VARIANTS)
def test_leads_are_differences_of_printed_scores(row: str) -> None:
    leads, without = published.leads(row), published.lead_without(row)
    own, vanilla = published.scores(row), published.scores("vanilla")
    assert leads == pytest.approx({c: own[c] - vanilla[c] for c in COLUMNS})  # type: ignore[operator]
    total = math.fsum(leads.values())
    assert {c: 6 * lead for c, lead in without.items()} == pytest.approx({c: total - leads[c] for c in COLUMNS})


def test_only_an_accuracy_has_a_standard_error_and_a_larger_set_a_smaller_one() -> None:
    assert published.standard_error("cola", 50.0) is None
    assert published.standard_error("mrpc", 80.0) is None
    qqp, sst2 = (published.standard_error(column, 90.0) for column in ("qqp", "sst2"))
    assert qqp is not None
    assert sst2 is not None
    assert qqp < sst2
    assert sst2 == pytest.approx(100 * math.sqrt(0.09 / 872))


def test_both_sets_of_mnli_are_counted() -> None:
    assert published.examples("mnli_m") != published.examples("mnli_mm")
    assert published.examples("cola") == 1043


def test_the_column_that_is_left_out_is_the_one_that_adds_most() -> None:
    said = published.weight_of_a_column(["transnormer-t1", "transnormer-t2"])
    assert said == (
        "Lead in the average: TransNormer T1 +0.59, without CoLA −0.43; TransNormer T2 −0.01, without CoLA −1.22."
    )
    for row in ("transnormer-t1", "transnormer-t2"):
        leads = published.leads(row)
        assert max(leads, key=leads.__getitem__) == "cola"


def test_a_caption_counts_the_averages_that_each_way_gives() -> None:
    rows = [
        {"printed": 70.0, "table_5": 70.0, "plain": None, "converged": 81.67},
        {"printed": 63.41, "table_5": 63.412},
    ]
    rows[1] |= {"plain": 64.11, "converged": 63.41}
    said = published.in_words(rows)
    assert said == "Of 2 in print the first way gives 2, the second gives 0 and the third gives 1."
