"""The ladder of learning rates: its runs, its measure, and that every comparison is a claim."""

import math
from dataclasses import replace

import pytest

from transnormer_lib.ledger import claims
from transnormer_lib.project import find_project
from transnormer_lib.report.parameters import resolve
from transnormer_lib.studies.common import plans
from transnormer_lib.studies.common.parameters import read
from transnormer_lib.studies.gradient_stability import ladder
from transnormer_lib.studies.gradient_stability import runs as study
from transnormer_lib.studies.gradient_stability.ladder import Climb, Rung
from transnormer_lib.training.store import RunStore

NOTEBOOK = "02_gradient_stability"
QUICK = read(study.Parameters, resolve(find_project(), "quick", NOTEBOOK))
PARAMETERS = replace(
    QUICK, architectures=(), ladder_mechanisms=("softmax", "linear", "linear-clamped", "linear-detached", "norm"),
    ladder_settings=(("none", "fp32"), ("lrpe", "bf16")), ladder_rates=(0.01, 0.1), seeds=(2, 1), ladder_length=16,
    ladder_steps=20, ladder_batch_size=2, dim=8, heads=2,
)  # fmt: skip


def climb(mechanism: str, seed: int, rate: float, bits: float, spikes: int = 0) -> Climb:
    return Climb(Rung(mechanism, "none", "fp32", seed, rate), bits, spikes, 2.0)


def test_there_is_one_run_per_rung_and_none_is_clipped() -> None:
    configs = ladder.runs(PARAMETERS)
    assert len({config.name for config in configs}) == len(configs) == 5 * 2 * 2 * 2
    assert all(config.optimizer.clip_norm == 0.0 and config.gradients == "norms" for config in configs)
    assert {config.optimizer.learning_rate for config in configs} == {0.01, 0.1}
    assert [config.name for config in study.runs(PARAMETERS)] == [config.name for config in configs]


@pytest.mark.parametrize(
    ("mechanism", "options"),
    [("linear-clamped", {"denominator_floor": 1.0}), ("linear-detached", {"denominator": "detached"}), ("linear", {})],
)
def test_the_denominator_alone_is_changed(mechanism: str, options: dict[str, object]) -> None:
    changed, plain = (ladder.model(Rung(name, "none", "fp32", 0, 0.1), PARAMETERS) for name in (mechanism, "linear"))
    assert changed.attention_options == {"linear": options}
    assert replace(changed, attention_options=plain.attention_options) == plain


def test_sensitivity_is_the_mean_over_the_ladder_minus_the_best_and_a_broken_run_counts_as_a_uniform_guess() -> None:
    climbs = [climb("linear", seed, rate, bits) for seed, rate, bits in [
        (1, 0.01, 4.0), (1, 0.1, 5.0), (1, 1.0, math.inf), (0, 0.01, 4.0), (0, 0.1, 4.0), (0, 1.0, 4.0),
    ]]  # fmt: skip
    assert ladder.sensitivities(climbs, 8.0, "none", "fp32") == {"linear": [0.0, pytest.approx(17 / 3 - 4)]}
    assert ladder.sensitivities(climbs, 8.0, "lrpe", "fp32") == {}


def test_what_a_mechanism_has_learned_is_the_lowest_loss_of_every_seed_over_the_rates() -> None:
    climbs = [climb("linear", 0, 0.01, 4.0), climb("linear", 0, 1.0, 9.0), climb("softmax", 0, 0.01, 4.6)]
    climbs += [climb("linear", 1, 0.01, 9.0), climb("linear", 1, 1.0, 4.5), climb("softmax", 1, 0.01, 4.0)]
    assert ladder.lowest_losses(climbs, "none", "fp32") == {"linear": [4.0, 4.5], "softmax": [4.6, 4.0]}
    assert ladder.lowest_losses(climbs, "lrpe", "fp32") == {}


def test_the_table_counts_runs_below_the_floor_and_spikes() -> None:
    climbs = [
        climb("linear", seed, rate, bits, spikes=3) for seed in (0, 1) for rate, bits in ((0.1, 4.0), (1.0, 5.0 - seed))
    ]
    (line,) = ladder.table(climbs, 4.5, "none", "fp32")
    assert (line["0.1"], line["1"], line["spikes"], line["largest gradient"]) == ("2 of 2", "1 of 2", 12, 2.0)
    assert ladder.held(climbs, 4.5, "none", "fp32") == {"linear": 75.0}
    assert ladder.held(climbs, 4.5, "lrpe", "fp32") == {}


@pytest.mark.parametrize(
    ("losses", "count"),
    [([4.0] * 40, 0), ([4.0] * 30 + [4.6] + [4.0] * 9, 1), ([4.0] * 30 + [math.nan], 1), ([9.0] + [4.0] * 30, 0)],
    ids=["flat", "a jump", "no number", "only in the warm-up"],
)
def test_a_spike_stands_half_a_nat_above_the_twenty_steps_before(losses: list[float], count: int) -> None:
    assert ladder.spikes(losses, warmup=5) == count


def test_every_comparison_is_a_claim_and_the_primary_one_is_among_them() -> None:
    named = {ladder.claim(name, *setting) for name in ladder.CLAIMS for setting in ladder.SETTINGS}
    known = {claim.id: claim for claim in claims.load()}
    assert {known[name].notebook for name in named} == {NOTEBOOK}
    sensitive = {mechanism: [0.1, 0.2] for mechanism in PARAMETERS.ladder_mechanisms}
    assert {name for setting in ladder.SETTINGS for name in ladder.comparisons(sensitive, *setting)} == named
    plan = plans.table("gradient_stability", "plan_of_ladder")
    (primary,) = (line["the plan"] for line in plan if line["part"] == "primary")
    assert primary in named


@pytest.mark.slow
def test_small_ladders_are_trained_and_measured(tmp_path: object) -> None:
    small = replace(PARAMETERS, ladder_mechanisms=("linear",), ladder_settings=(("none", "fp32"),), seeds=(0,))
    climbs = ladder.measure(small, RunStore(tmp_path))  # type: ignore[arg-type]
    assert [climb.rung.rate for climb in climbs] == [0.01, 0.1]
    assert all(climb.bits < 9 and climb.largest >= 1 for climb in climbs)
