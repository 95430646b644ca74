"""The table of mechanisms is complete and its page current."""

from pathlib import Path

import pytest

from transnormer_lib import attention
from transnormer_lib.models import catalogue

PAGE = Path(__file__).parents[2] / "docs" / "mechanisms.md"
SHOULD_BE_THERE = (
    *("softmax", "linear", "linear-unscaled", "norm", "diag", "performer", "cosformer", "linformer", "reformer"),
    *("nystromformer", "kernelized", "skyformer", "informer", "bigbird", "longformer", "transformer-ls", "rela"),
    *("rfa", "lara", "flash", "flash-quad", "gau"),
)


@pytest.mark.parametrize("name", SHOULD_BE_THERE)
def test_the_mechanisms_of_the_papers_tables_are_registered(name):
    assert name in attention.names()


def test_the_page_of_mechanisms_is_what_the_registry_says():
    assert PAGE.read_text("utf-8") == catalogue.markdown(), "run python -m transnormer_lib.models.catalogue"


def test_the_table_says_which_forms_were_published():
    rows = catalogue.table()
    assert {row["mechanism"] for row in rows if row["causal"] == "no"} == {
        *("bigbird", "kernelized", "lara", "linformer", "nystromformer", "skyformer")
    }
    not_recurrent = {row["mechanism"] for row in rows if (row["causal"], row["recurrent"]) == ("yes", "no")}
    assert not_recurrent == {"informer", "reformer"}
    assert all((row["decoder (M)"] is None) == (row["causal"] == "no") for row in rows)
