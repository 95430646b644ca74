"""What a notebook may record, what is refused, and what a recorded measurement displays."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from report_factory import CLAIMS, TABLE, THEORY, claim

from transnormer_lib.ledger.measurements import Measurements


@pytest.fixture
def theory() -> Measurements:
    return Measurements(THEORY, "quick", CLAIMS)


@pytest.fixture
def table() -> Measurements:
    return Measurements(TABLE, "quick", CLAIMS)


ORDER: dict[str, Any] = {"better": [1.0, 1.1, 1.0, 1.0, 1.0], "worse": [2.0] * 5, "seeds": range(5)}


def test_floats_are_kept_to_six_significant_digits_and_numbers_of_arrays_become_plain(theory: Measurements) -> None:
    value = {"a": np.float32(1 / 3), "b": torch.tensor([1.23456789e-9]), "c": np.int64(7), "d": np.array([[1.5]])}
    recorded = theory.property("structure", value=value, expected=None)
    assert recorded.measurement["value"] == {"a": 0.333333, "b": [1.23457e-9], "c": 7, "d": [[1.5]]}


def test_the_published_verdict_is_the_one_the_ledger_would_give(table: Measurements) -> None:
    assert table.ordering("ahead", **ORDER).verdict == "reproduced"
    assert table.number("perplexity", value=torch.tensor(5.0)).verdict == "undecided"
    assert table.not_run("speed", reason="needs a GPU").verdict == "not run"


def test_infinity_is_recorded_and_not_a_number_is_refused(table: Measurements) -> None:
    with pytest.raises(ValueError, match=r"value\[0\]=nan: must be finite, or float\('inf'\) where a run diverged"):
        table.number("perplexity", value=math.nan)
    assert table.number("perplexity", value=math.inf).measurement["values"] == ["inf"]
    diverged = table.ordering("ahead", **{**ORDER, "worse": [math.inf, 2, 2, 2, 2]})
    assert diverged.verdict == "not learned"


@pytest.mark.parametrize(
    ("record", "named"),
    [
        (lambda m: m.theorem("bound-hold", holds=True, searched=1), "no such claim; did you mean 'bound-holds'?"),
        (lambda m: m.number("perplexity", value=1.0), f"belongs to notebook {TABLE}"),
        (lambda m: m.number("bound-holds", value=1.0), "is of kind 'theorem', measured as 'number'"),
        (lambda m: m.theorem("bound-holds", holds=True, searched=0), "searched=0: must count at least one point"),
        (lambda m: m.theorem("bound-holds", holds=True, searched=1, margin=-0.1), "margin=-0.1: must be finite"),
        (lambda m: m.theorem("bound-holds", holds=True, searched=1, margin=math.inf), "margin='inf'"),
        (lambda m: m.theorem("bound-holds", holds=False, searched=1), "holds=False: needs the counter_example"),
        (lambda m: m.property("structure", value=object(), expected=1), "value=<object object"),
        (lambda m: m.not_run("bound-holds", reason=" "), "reason=' ': must say why"),
    ],
    ids=[
        "unknown",
        "elsewhere",
        "kind",
        "no-search",
        "negative",
        "infinite",
        "no-counter-example",
        "json",
        "no-reason",
    ],
)
def test_a_measurement_that_makes_no_sense_is_refused(theory: Measurements, record: Any, named: str) -> None:
    with pytest.raises((ValueError, TypeError)) as error:
        record(theory)
    assert named in str(error.value)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seeds": [0, 1, 2, 3]}, "better holds 5 values for 4 seeds"),
        ({"worse": [2.0] * 4}, "worse holds 4 values for 5 seeds"),
        ({"seeds": [0, 1, 2, 3, 3]}, "must differ from each other"),
        ({"seeds": [0.5, 1, 2, 3, 4]}, "must be integers"),
        ({"better": ["a"] * 5}, "better='a': must be a number"),
        ({"better": [True] * 5}, "better=True: must be a number"),
        ({"floor": math.inf}, "floor=inf: must be finite"),
    ],
    ids=["seeds", "worse", "repeated", "fraction", "text", "truth", "floor"],
)
def test_an_ordering_that_is_not_paired_by_seed_is_refused(
    table: Measurements, change: dict[str, Any], named: str
) -> None:
    with pytest.raises(ValueError, match="claim='ahead'") as error:
        table.ordering("ahead", **{**ORDER, **change})
    assert named in str(error.value)


def test_a_claim_is_recorded_once(table: Measurements) -> None:
    table.number("perplexity", value=5.0)
    with pytest.raises(ValueError, match="claim='perplexity': already recorded"):
        table.number("perplexity", value=4.98)


def test_a_refused_measurement_leaves_the_claim_free(table: Measurements) -> None:
    with pytest.raises(ValueError, match="nan"):
        table.number("perplexity", value=math.nan)
    assert table.number("perplexity", value=5.0).verdict == "undecided"


@pytest.mark.parametrize(
    ("notebook", "scale", "named"),
    [("01_theorie", "quick", "did you mean '01_theory'?"), (THEORY, "fast", "scale='fast': must be one of 'quick'")],
)
def test_an_unknown_notebook_or_scale_is_refused(notebook: str, scale: str, named: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011  the message is compared below
        Measurements(notebook, scale, CLAIMS)
    assert named in str(error.value)


@pytest.mark.parametrize(("scale", "verdict"), [("quick", "trend"), ("gpu", "not run"), ("paper", "not run")])
def test_a_sample_of_the_published_data_decides_nothing(scale: str, verdict: str) -> None:
    claims = [claim("ahead", "ordering", TABLE, decided_at="gpu"), claim("perplexity", "number", TABLE)]
    measurements = Measurements(TABLE, scale, claims)
    sample = ("sample: train 9 of 900 rows",)
    assert measurements.ordering("ahead", **ORDER, notes=sample).verdict == verdict
    assert (measurements.number("perplexity", value=4.98, notes=sample).verdict == "not run") is (scale != "quick")


def test_other_byte_pairs_than_the_published_ones_forbid_numbers_alone() -> None:
    claims = [claim("ahead", "ordering", TABLE, decided_at="gpu"), claim("perplexity", "number", TABLE)]
    measurements = Measurements(TABLE, "paper", claims)
    notes = ("own byte pairs: learned on this text",)
    assert measurements.ordering("ahead", **ORDER, notes=notes).verdict == "reproduced"
    recorded = measurements.number("perplexity", value=4.98, notes=notes)
    assert recorded.verdict == "not run"
    assert "own byte pairs" in str(recorded)
