"""Is it locality: the rows, and that every comparison is a claim."""

from transnormer_lib.ledger import claims
from transnormer_lib.models.architectures import architecture
from transnormer_lib.models.language_model import count_parameters
from transnormer_lib.studies.autoregressive_lm import locality
from transnormer_lib.studies.autoregressive_lm.factors import row
from transnormer_lib.studies.common import plans

NOTEBOOK = "04_autoregressive_lm"
EARLY = ("diag", "scattered", "window", "softmax", "linear", "norm")
BITS = {
    row(locality.pair(early), rotation): [3.0 + n, 3.1 + n]
    for n, early in enumerate(EARLY)
    for rotation in ("none", "lrpe")
}


def test_every_comparison_is_a_claim_of_the_notebook_and_the_primary_one_is_among_them() -> None:
    named = {f"{claim}{end}" for claim in locality.CLAIMS for end in ("", "-lrpe")}
    known = {claim.id: claim for claim in claims.load()}
    assert {known[name].notebook for name in named} == {NOTEBOOK}
    assert {name for rotation in ("none", "lrpe") for name in locality.comparisons(BITS, rotation)} == named
    plan = plans.table("autoregressive_lm", "plan_of_locality")
    (primary,) = (line["the plan"] for line in plan if line["part"] == "primary")
    assert primary in named


def test_rows_that_were_not_trained_are_compared_with_nothing() -> None:
    assert locality.comparisons({"transnormer-t2": [3.0]}, "none") == {}


def test_the_table_has_the_lowest_loss_first() -> None:
    assert [line["early layers"] for line in locality.table(BITS, "lrpe")] == list(EARLY)


def test_all_early_mechanisms_have_as_many_parameters() -> None:
    size = {"vocab_size": 258, "max_length": 64, "dim": 16, "heads": 2, "layers": 4, "block_size": 8}
    built = [architecture(f"{early}/norm", kind="decoder", **size) for early in EARLY]
    assert len({count_parameters(config) for config in built}) == 1
