"""The two factors: every pair of mechanisms, all else equal; effects are differences of means over the other factor."""

from dataclasses import asdict, replace

import pytest

from transnormer_lib.ledger import claims
from transnormer_lib.models.architectures import architecture
from transnormer_lib.models.language_model import count_parameters
from transnormer_lib.project import find_project
from transnormer_lib.report.parameters import resolve
from transnormer_lib.studies.autoregressive_lm import factors
from transnormer_lib.studies.autoregressive_lm import runs as study
from transnormer_lib.studies.common import plans, rates
from transnormer_lib.studies.common.parameters import read

NOTEBOOK = "04_autoregressive_lm"
QUICK = read(study.Parameters, resolve(find_project(), "quick", NOTEBOOK))
PARAMETERS = replace(
    QUICK,
    architectures=("transnormer-t2",),
    controls=("linear-matched",),
    released=(),
    early=("diag", "linear"),
    late=("norm", "linear", "softmax"),
    pairs=("softmax/softmax", "diag/diag"),
    rotations=("none", "lrpe"),
    seeds=(3, 1),
    rates={"transnormer-t2": 0.02, "linear-matched+lrpe": 0.003},
    rates_tried=(0.1, 0.001),
    rate_seeds=(7,),
)


def test_rows_differ_in_their_attention_and_rotation_alone() -> None:
    configs = study.models(PARAMETERS)
    assert len({repr(config) for config in configs.values()}) == len(configs) == 2 * 8
    own = ("attention", "attention_options", "rotary")
    rest = [{k: v for k, v in asdict(config).items() if k not in own} for config in configs.values()]
    assert all(fields == rest[0] for fields in rest)
    assert len({count_parameters(config) for config in configs.values() if config.rotary == "none"}) == 1


@pytest.mark.parametrize(
    ("pair", "named"),
    {"diag/norm": "transnormer-t2", "linear/linear": "linear-matched", "softmax/softmax": "vanilla-matched"}.items(),
)
def test_a_pair_with_a_name_of_its_own_is_that_architecture(pair: str, named: str) -> None:
    size = {"kind": "decoder", "vocab_size": 258, "max_length": 16, "dim": 16, "heads": 2, "layers": 4, "block_size": 4}
    assert architecture(pair, **size) == architecture(named, **size)
    assert factors.row(pair) == named


def test_each_judged_run_has_its_row_s_rate_and_names_the_search() -> None:
    runs = {(row, seed): run for row, seed, run in study.search(PARAMETERS).judged()}
    assert len({run.name for run in runs.values()}) == len(runs) == 16 * 2
    rate = {row: run.optimizer.learning_rate for (row, _), run in runs.items()}
    assert (rate["transnormer-t2"], rate["linear-matched+lrpe"], rate["diag/linear"]) == (0.02, 0.003, 0.01)
    assert runs["diag/linear", 3].rate_search == ("causal-diag-linear-lr0.1-seed7", "causal-diag-linear-lr0.001-seed7")


def test_the_search_is_trained_first_and_differs_from_the_judged_runs_in_rate_seed_and_name_alone() -> None:
    every = study.runs(PARAMETERS)
    search, judged = every[: 16 * 2], every[16 * 2 :]
    assert {run.seed for run in search} == {7}
    assert {run.seed for run in judged} == {3, 1}
    for run, other in zip(search[::2], judged[::2], strict=True):
        same = replace(run, name=other.name, seed=other.seed, optimizer=other.optimizer, rate_search=other.rate_search)
        assert same == other


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rates": {"norm/nothing": 0.1}}, "rates='norm/nothing': must be one of"),
        ({"rate_seeds": (1, 7)}, r"rate_seeds=\[1, 7\]: must not hold 1, which is judged"),
        ({"pairs": ("diag/nothing",)}, "architecture='nothing'"),
        ({"pairs": ("/norm",)}, "architecture=''"),
        ({"pairs": ("diag/norm/norm",)}, "architecture='norm/norm'"),
    ],
    ids=["a rate of no row", "a seed that is judged", "no mechanism", "no early one", "three"],
)
def test_a_mistake_is_refused_by_name(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        study.runs(replace(PARAMETERS, **changes))


def test_the_lowest_mean_loss_chooses_the_rate_and_one_that_diverged_never_does() -> None:
    class Stored:
        def __init__(self, bits: float | None) -> None:
            finished = {"status": "finished", "validation": [{"bits_per_token": bits}]}
            self.record = finished if bits is not None else {"status": "diverged"}

    search = {0.1: [Stored(1.0), Stored(None)], 0.01: [Stored(3.0), Stored(2.0)], 0.001: [Stored(2.0), Stored(4.0)]}
    assert rates.lowest(search) == 0.01
    assert rates.lowest({0.1: [Stored(None)]}) is None
    assert rates.lowest({}) is None


def test_an_additive_effect_is_found_in_each_factor_alone() -> None:
    early, late = {"diag": 0.0, "linear": 0.25}, {"norm": 1.0, "linear": 1.5, "softmax": 1.25}
    bits = {
        factors.row(f"{e}/{last}"): [a + b, a + b + 1] for e, a in early.items() for last, b in late.items()
    }  # fmt: skip
    locality = [w - b for b, w in zip(*(factors.over_late(bits, e, PARAMETERS) for e in early), strict=True)]
    norm, linear = (factors.over_early(bits, last, PARAMETERS) for last in ("norm", "linear"))
    assert locality == pytest.approx([0.25, 0.25])
    assert [w - b for b, w in zip(norm, linear, strict=True)] == pytest.approx([0.5, 0.5])


def test_every_comparison_is_a_claim_and_the_primary_one_is_among_them() -> None:
    known = {claim.id: claim for claim in claims.load()}
    named = [f"{claim}{end}" for claim in factors.CLAIMS for end in ("", "-lrpe")]
    assert {known[name].notebook for name in named} == {NOTEBOOK}
    (primary,) = (line["the plan"] for line in plans.table("autoregressive_lm") if line["part"] == "primary")
    assert primary in factors.CLAIMS
    bits = {row: [float(n), n + 1.0] for n, row in enumerate(study.models(PARAMETERS))}
    found = {name for rotation in ("none", "lrpe") for name in factors.comparisons(bits, PARAMETERS, rotation)}
    assert found == set(named)
    assert factors.comparisons({"transnormer-t2": [1.0]}, QUICK) == {}


def test_one_remedy_each_says_which_effect_is_larger() -> None:
    loss = {"diag/norm": 1.0, "diag/linear": 1.25, "linear/norm": 1.75, "linear/linear": 2.5}
    bits = {factors.row(pair): [value] for pair, value in loss.items()}
    two = replace(PARAMETERS, late=("norm", "linear"))
    locality = factors.over_late(bits, "linear", two)[0] - factors.over_late(bits, "diag", two)[0]
    norm = factors.over_early(bits, "linear", two)[0] - factors.over_early(bits, "norm", two)[0]
    better, worse = factors.comparisons(bits, two)["locality-alone-over-norm-alone"]
    assert locality - norm == pytest.approx(worse[0] - better[0])
