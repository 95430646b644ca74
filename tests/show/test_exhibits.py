"""What a notebook asks to be kept besides claims and runs."""

import pytest

from transnormer_lib.show import evidence


def test_an_exhibit_is_found_in_the_executed_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, object]] = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw: shown.append(data))
    evidence.exhibit("sheet", {"rows": [1, 2]})
    notebook = {
        "cells": [{"cell_type": "markdown"}, {"cell_type": "code", "outputs": [{"data": one} for one in shown]}]
    }
    assert evidence.exhibits(notebook) == {"sheet": {"rows": [1, 2]}}


def test_what_is_too_large_to_be_committed_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 300,000"):
        evidence.exhibit("sheet", {"rows": "x" * evidence.LARGEST_EXHIBIT})
