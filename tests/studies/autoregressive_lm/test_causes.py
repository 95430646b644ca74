"""One thing changed at a time: every comparison is a claim, and a row stands for a mechanism in all layers."""

import math

import pytest

from transnormer_lib.ledger import claims
from transnormer_lib.models.architectures import architecture
from transnormer_lib.studies.autoregressive_lm import causes
from transnormer_lib.studies.autoregressive_lm.factors import row
from transnormer_lib.studies.common import plans

NOTEBOOK = "04_autoregressive_lm"
SIZE = {"kind": "decoder", "vocab_size": 11, "max_length": 8, "dim": 8, "heads": 2, "layers": 2}
BITS = {
    row(causes.pair(mechanism), rotation): [float(n), n + 0.5]
    for n, mechanism in enumerate(dict.fromkeys(name for pair in causes.CLAIMS.values() for name in pair))
    for rotation in ("none", "lrpe")
}


def test_every_comparison_is_a_claim_of_the_notebook_and_the_primary_one_is_among_them() -> None:
    known = {claim.id: claim for claim in claims.load()}
    named = {f"{claim}{end}" for claim in causes.CLAIMS for end in ("", "-lrpe")}
    assert {known[name].notebook for name in named} == {NOTEBOOK}
    assert {name for rotation in ("none", "lrpe") for name in causes.comparisons(BITS, rotation)} == named
    (primary,) = (
        line["the plan"] for line in plans.table("autoregressive_lm", "plan_of_causes") if line["part"] == "primary"
    )
    assert primary in named


def test_a_comparison_without_both_rows_is_left_out() -> None:
    assert causes.comparisons({"linear-matched": [1.0]}, "none") == {}


def test_the_table_has_the_lowest_loss_first() -> None:
    losses = [line["loss"] for line in causes.table(BITS, "lrpe")]
    assert losses == sorted(losses)
    assert len(losses) == 7


def test_each_row_has_one_mechanism_in_all_layers_of_one_backbone() -> None:
    models = {name: architecture(name, **SIZE) for name in ("linear/linear", "linear-detached/linear-detached")}
    plain, cut = models.values()
    assert (plain.attention, plain.norm, plain.feed_forward) == (cut.attention, cut.norm, cut.feed_forward)
    assert dict(cut.attention_options["linear"]) == {"denominator": "detached"}


def test_convergence_compares_the_distances_from_the_median_and_a_diverged_run_has_no_median() -> None:
    bits = {row(causes.pair("norm"), "none"): [3.0, 3.1, 3.3], row(causes.pair("linear"), "none"): [3.0, 4.0, math.inf]}
    ((claim, (ours, other)),) = causes.convergence(bits, "none").items()
    assert claim == "section-1-consistent-convergence"
    assert list(ours) == pytest.approx([0.1, 0.0, 0.2])
    assert list(other) == [math.inf] * 3
    assert causes.convergence(bits, "lrpe") == {}
