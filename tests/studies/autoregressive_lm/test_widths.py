"""As models grow: which runs, at which rates, and what becomes of the leads."""

from dataclasses import replace

import pytest

from transnormer_lib.ledger import claims
from transnormer_lib.ledger.kept import Kept
from transnormer_lib.project import find_project
from transnormer_lib.report.parameters import resolve
from transnormer_lib.studies.autoregressive_lm import growth
from transnormer_lib.studies.autoregressive_lm import runs as study
from transnormer_lib.studies.common import plans, rates
from transnormer_lib.studies.common.parameters import read
from transnormer_lib.training.config import RunConfig

NOTEBOOK = "04_autoregressive_lm"
QUICK = read(study.Parameters, resolve(find_project(), "quick", NOTEBOOK))
T2, SOFTMAX, NORM, LINEAR = growth.ROWS
PARAMETERS = replace(
    QUICK, dim=16, seeds=(2, 1), rates_tried=(0.1, 0.001), rate_seeds=(7,), growth_dims=(8, 16, 32),
    rates={T2: 0.02}, growth_rates={f"32 {SOFTMAX}": 0.003},
)  # fmt: skip
LOSSES = {
    8: {T2: [3.0, 3.1], SOFTMAX: [3.2, 3.4]},
    32: {T2: [2.0, 2.1], SOFTMAX: [1.9, 2.1]},
}


def judged(parameters: growth.GrowthParameters) -> list[tuple[int, str, int, RunConfig]]:
    return [(dim, *run) for dim, search in growth.searches(parameters).items() for run in search.judged()]


def test_each_width_has_every_row_and_seed_at_its_own_rate() -> None:
    found = judged(PARAMETERS)
    assert [(dim, row, seed) for dim, row, seed, _ in found] == [
        (dim, row, seed) for dim in (8, 16, 32) for row in growth.ROWS for seed in (2, 1)
    ]
    assert all(run.model.dim == dim and run.model.rotary == "lrpe" for dim, _, _, run in found)
    rate = {(dim, row): run.optimizer.learning_rate for dim, row, _, run in found}
    default = QUICK.learning_rate
    assert rate == {(dim, row): default for dim in (8, 16, 32) for row in growth.ROWS} | {
        (16, T2): 0.02,
        (32, SOFTMAX): 0.003,
    }


def test_at_the_notebooks_width_the_runs_are_those_of_the_factors() -> None:
    factors = replace(PARAMETERS, pairs=growth.PAIRS, rotations=("lrpe",))
    own = {run.name: run for run in study.runs(replace(factors, growth_dims=(), growth_rates={}))}
    shared = [run for dim, _, _, run in judged(factors) if dim == 16]
    assert [own[run.name] for run in shared] == shared != []
    names = [run.name for run in study.runs(factors)]
    assert len(names) == len(set(names))


def test_a_search_names_the_runs_among_which_a_rate_was_chosen() -> None:
    searches = growth.searches(PARAMETERS).values()
    tried = [rates.flat(by_rate) for search in searches for by_rate in search.tried().values()]
    search = {run.name for runs in tried for run in runs}
    assert len(search) == 3 * 4 * 2
    assert {name for *_, run in judged(PARAMETERS) for name in run.rate_search} == search


@pytest.mark.parametrize("name", ["64 transnormer-t2+lrpe", "32 linear"], ids=["no width", "no row"])
def test_a_rate_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"growth_rates='{name}'".replace("+", r"\+")):
        growth.searches(replace(PARAMETERS, growth_rates={name: 0.1}))


def test_a_lead_is_the_difference_seed_by_seed_and_holds_if_the_largest_width_keeps_it() -> None:
    lead = growth.SOFTMAX_LEAD
    assert growth.leads(LOSSES, lead)[8] == pytest.approx([0.2, 0.3])
    sides = growth.comparisons(LOSSES)
    assert tuple(sides) == (*growth.AT_A_WIDTH, lead.claim)
    side = sides[lead.claim]
    assert list(side.better) == pytest.approx([-0.1, 0.0])
    assert list(side.worse) == pytest.approx([0.2, 0.3])
    assert side.higher_is_better
    assert sides["lead-at-smallest-width"].better == LOSSES[8][T2]
    assert growth.comparisons({8: LOSSES[8]}) == growth.comparisons({}) == {}
    assert [line["width"] for line in growth.table(LOSSES)] == [8, 32]


def test_each_claim_asks_that_both_of_its_rows_have_learned_at_every_width() -> None:
    every = {dim: by_row | {NORM: [2.5, 2.5], LINEAR: [2.6, 2.7]} for dim, by_row in LOSSES.items()}
    sides = growth.comparisons(every)
    assert tuple(sides) == growth.CLAIMS
    assert set(sides["norm-lead-holds-as-width-grows"].learned) == {
        f"{row}, width {dim}" for row in (NORM, LINEAR) for dim in (8, 32)
    }
    del every[32][NORM]
    assert set(growth.CLAIMS) - set(growth.comparisons(every)) == {
        "norm-lead-holds-as-width-grows",
        "locality-lead-holds-as-width-grows",
    }


def test_every_comparison_is_a_claim_and_the_primary_one_is_among_them() -> None:
    known = {claim.id: claim for claim in claims.load()}
    assert {known[name].notebook for name in growth.CLAIMS} == {NOTEBOOK}
    for name in ("plan_of_growth", "plan_of_growing_remedies"):
        plan = plans.table("autoregressive_lm", name)
        (primary,) = (line["the plan"] for line in plan if line["part"] == "primary")
        assert primary in growth.CLAIMS


# Leads of two seeds that fall by 0.1 and 0.2 with each doubling.
FALLING = {
    dim: {T2: [2.0, 2.0], SOFTMAX: [2.5 - 0.1 * doubling, 2.5 - 0.2 * doubling]}
    for doubling, dim in enumerate((8, 16, 32))
}


def test_the_lead_s_change_per_doubling_is_that_of_a_line_through_each_seed() -> None:
    change = growth.per_doubling(FALLING, growth.SOFTMAX_LEAD)
    assert change.mean == pytest.approx(-0.15)
    assert change.low == pytest.approx(-0.15 - 12.706 * 0.05, abs=1e-3)
    assert growth.lines(FALLING, growth.SOFTMAX_LEAD)[0] == pytest.approx([-0.1, -0.2])


@pytest.mark.parametrize(("sign", "way"), [(1.0, "it shrinks"), (-1.0, "it grows"), (0.0, "the interval holds zero")])
def test_the_way_of_the_lead_is_told_by_its_interval(sign: float, way: str) -> None:
    losses = {
        dim: {T2: [2.0] * 3, SOFTMAX: [2.5 - sign * (0.1 + 0.001 * seed) * doubling + 0.01 * seed for seed in range(3)]}
        for doubling, dim in enumerate((8, 16, 32))
    }
    told = growth.told(losses)
    assert "T2's lead over softmax attention changes by" in told
    assert f": {way}. " in told
    assert "From width 8 to 32" in growth.told(losses)


@pytest.mark.parametrize(("own", "start"), [(8, "dim32-"), (32, "")], ids=["a width beyond", "the notebook's width"])
def test_kept_widths_are_those_of_the_kept_claim_with_the_cost_of_ten_times_as_much(own: int, start: str) -> None:
    learned = {f"{name}, width {dim}": values for dim, by_row in FALLING.items() for name, values in by_row.items()}
    claims_kept = [
        {"id": growth.SOFTMAX_LEAD.claim, "measured": {"learned": learned}},
        {"id": growth.CLAIMS[-1], "measured": None},
    ]
    made = [
        {"name": f"causal-{of}{name}-lrpe-seed{seed}", "seconds": seconds, "flops": 3e12}
        for of, seconds in ((start, 720.0), ("dim16-", 1.0), ("recall-4-", 1.0))
        for name in ("transnormer-t2", "vanilla-matched")
        for seed in (1, 2, 100)
    ]
    asked = {"task": "causal", "dim": own, "seeds": [1, 2]}
    found = Kept("night", "night", NOTEBOOK, asked, claims_kept, made, "a machine", 1, "abc", "2026")
    assert growth.of_kept(found) == FALLING
    assert growth.next_decade(found) == (
        "Ten times the operations of the widest, 3·10¹³ a run, would take 8 core-hours for its 2 rows."
    )
    assert growth.of_kept(replace(found, claims=[])) == {}
