"""The search finds breaks on its own and reports none for bounds that hold."""

import ast
import json
import math

import pytest
import torch

from transnormer_lib.analysis import bounds_attention, bounds_matrix, bounds_norm
from transnormer_lib.analysis.bound_search import Bound, Budget, search, size_grid
from transnormer_lib.analysis.kernel_maps import KERNELS

SIZES = size_grid([(1, 1), (2, 1), (2, 2), (3, 2), (4, 3)])


def run(bound: Bound, structured: bool = False, sizes=SIZES, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    return search(bound, sizes, trials=600, ascent_steps=60, generator=generator, structured=structured)


BREAKABLE = [
    bounds_attention.softmax_row_norm("published"),
    bounds_attention.softmax_score("published"),
    bounds_attention.linear_score(KERNELS["1+elu"], "published"),
    bounds_attention.linear_score(KERNELS["relu"], "published"),
    bounds_attention.linear_jacobian(KERNELS["elu"]),
    bounds_attention.linear_jacobian_c3(KERNELS["elu"], "published"),
    bounds_attention.linear_query(KERNELS["relu"], "weights"),
    bounds_attention.linear_key(KERNELS["elu"], "loss"),
    bounds_norm.norm_score("rms-outside", "published", 1e-8),
    bounds_norm.norm_score("rms", "published", 1e-8, gain=True),
    bounds_matrix.upstream_bound("published"),
]


@pytest.mark.slow
@pytest.mark.parametrize("bound", BREAKABLE, ids=lambda bound: bound.name)
def test_random_starts_and_ascent_find_a_break_without_structured_starts(bound):
    check = run(bound)
    assert not check.holds
    assert check.counter_example is not None
    again = bound.ratio_at(check.counter_example.inputs)
    assert again == pytest.approx(check.counter_example.ratio, rel=1e-9)
    assert again > 1


def test_the_break_of_eq_59_is_found_at_two_and_three_keys_and_not_at_four():
    check = run(bounds_attention.softmax_score("published"))
    assert check.at(n=2) == pytest.approx(math.sqrt(2), rel=1e-3)
    assert check.at(n=3) == pytest.approx(2 / math.sqrt(3), rel=1e-3)
    assert 0.99 < check.at(n=4) <= 1 + 1e-9
    assert check.margin == 1 - check.at(n=2) < -0.41
    assert check.counter_example is not None
    assert check.counter_example.sizes["n"] == 2


@pytest.mark.parametrize("shrink", [0.9, 0.99], ids=lambda x: f"constant×{x}")
def test_a_constant_one_percent_below_sharp_breaks(shrink):
    true = bounds_attention.softmax_jacobian()
    wrong = Bound("eq-9 too small", true.shapes, lambda x: true.ratio(x) / shrink)
    assert not run(wrong).holds


@pytest.mark.parametrize(
    "bound",
    [
        bounds_attention.softmax_score("sharp"),
        bounds_attention.linear_query(KERNELS["1+elu"], "loss"),
        bounds_attention.linear_key(KERNELS["1+elu"], "weights"),
        bounds_norm.norm_score("rms", "sharp", 1e-8),
        bounds_matrix.upstream_bound("repaired"),
    ],
    ids=lambda bound: bound.name,
)
def test_the_full_search_approaches_a_sharp_constant_without_exceeding_it(bound):
    check = run(bound, structured=True)
    assert check.holds
    assert check.counter_example is None
    assert check.ratio > 0.97
    assert check.margin == max(0.0, 1 - check.ratio)


def test_ascent_improves_on_its_starting_points():
    bound = bounds_attention.softmax_score("sharp")
    ratios = [
        search(bound, SIZES[-1:], trials=50, ascent_steps=steps, generator=torch.Generator().manual_seed(3)).ratio
        for steps in (0, 60)
    ]
    assert ratios[0] < ratios[1]


def test_the_same_generator_gives_the_same_search():
    bound = bounds_attention.softmax_score("published")
    first, second = (run(bound, structured=True, sizes=SIZES[1:3], seed=7) for _ in range(2))
    assert json.dumps(first.tightest.record()) == json.dumps(second.tightest.record())
    assert first.searched == second.searched


def test_a_record_is_json_and_leaves_large_inputs_out():
    case = run(bounds_attention.softmax_jacobian(), sizes=size_grid([(2, 1), (100, 1)])).cases[1]
    assert case.record()["inputs"] == {}
    assert json.loads(json.dumps(case.record(limit=100)))["inputs"]["s"] == case.inputs["s"].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("bound", BREAKABLE, ids=lambda bound: bound.name)
def test_a_recorded_counter_example_breaks_the_bound_when_typed_in(bound):
    case = run(bound, structured=True).counter_example
    assert case is not None
    typed = {}
    for name, value in case.record()["inputs"].items():
        # Only numbers of at most six digits stay numbers, which a report prints exactly.
        value = ast.literal_eval(value) if isinstance(value, str) else json.loads(f"{value}")
        typed[name] = torch.tensor(value, dtype=torch.float64)
    assert bound.ratio_at(typed) == pytest.approx(case.ratio, rel=1e-9)
    assert case.ratio > 1.01


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trials": 0}, "trials=0"),
        ({"ascent_steps": -1}, "ascent_steps=-1"),
        ({"sizes": []}, "at least one size"),
    ],
    ids=lambda x: str(x),
)
def test_an_empty_budget_is_refused(change, message):
    arguments = {"sizes": SIZES, "trials": 10, "ascent_steps": 1, "generator": torch.Generator(), **change}
    with pytest.raises(ValueError, match=message):
        search(bounds_attention.softmax_jacobian(), **arguments)


@pytest.mark.parametrize("pair", [[0, 1], [1], [1, 2, 3]], ids=str)
def test_a_size_that_is_no_pair_of_positive_integers_is_refused(pair):
    with pytest.raises(ValueError, match="pair"):
        size_grid([pair])


def test_an_attack_on_several_bounds_holds_only_if_all_do_and_keeps_every_case():
    budget = Budget([(1, 1), (2, 1), (2, 2), (3, 2)], 300, 30, [0])
    bounds = [bounds_attention.softmax_score("sharp"), bounds_attention.softmax_score("published")]
    holds, breaks, both = budget.attack(bounds[0]), budget.attack(bounds[1]), budget.attack(*bounds)
    assert holds.holds
    assert both.holds is False
    assert both.searched == holds.searched + breaks.searched
    assert [case.ratio for case in both.cases] == [case.ratio for check in (holds, breaks) for case in check.cases]
    assert both.ratio == max(holds.ratio, breaks.ratio)
    evidence = json.loads(json.dumps(both.evidence()))
    assert evidence["counter_example"]["sizes"]["n"] == 2
    assert evidence["margin"] < 0
    with pytest.raises(ValueError, match=r"bounds=\(\)"):
        budget.attack()


def test_a_budget_searches_once_per_seed():
    bound = bounds_attention.softmax_score("sharp")
    one, two = (Budget([[2, 1]], 100, 5, seeds).attack(bound) for seeds in ([0], [0, 1]))
    assert two.searched == 2 * one.searched
    assert two.ratio >= one.ratio
    with pytest.raises(ValueError, match=r"seeds=\[\]"):
        Budget([[2, 1]], 100, 5, []).attack(bound)
