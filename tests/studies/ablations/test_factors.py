"""The two factors: every pair of mechanisms, all else equal; effects are differences of means over the other factor."""

from dataclasses import asdict, replace

import pytest

from transnormer_lib.models.architectures import architecture
from transnormer_lib.models.language_model import count_parameters
from transnormer_lib.studies.ablations import factors

PARAMETERS = factors.Parameters(
    early=("diag", "linear"),
    late=("norm", "linear", "softmax"),
    alone=("softmax/softmax", "diag/diag"),
    rotations=("none", "lrpe"),
    seeds=(3, 1),
    rates={"diag/norm": 0.02, "linear/linear+lrpe": 0.003},
    corpus="wikipedia",
    vocabulary="bytes",
    task="causal",
    dim=16,
    heads=2,
    layers=4,
    block_size=4,
    init="fairseq",
    length=16,
    steps=10,
    batch_size=2,
    accumulate=1,
    precision="fp32",
    learning_rate=0.01,
    schedule="cosine",
    warmup=2,
    clip_norm=1.0,
    dropout=0.0,
    validation_windows=2,
    bands=(),
)


def test_rows_differ_in_their_attention_and_rotation_alone() -> None:
    configs = [factors.model(row, PARAMETERS) for row in factors.rows(PARAMETERS)]
    assert len({repr(config) for config in configs}) == 2 * 8
    rest = [
        {k: v for k, v in asdict(c).items() if k not in ("attention", "attention_options", "rotary")} for c in configs
    ]
    assert all(fields == rest[0] for fields in rest)
    assert len({count_parameters(config) for config in configs if config.rotary == "none"}) == 1


@pytest.mark.parametrize(
    ("pair", "named"),
    {"diag/norm": "transnormer-t2", "linear/linear": "linear-matched", "softmax/softmax": "vanilla-matched"}.items(),
)
def test_three_pairs_are_the_paper_s_model_and_its_matched_controls(pair: str, named: str) -> None:
    size = {"kind": "decoder", "vocab_size": 258, "max_length": 16, "dim": 16, "heads": 2, "layers": 4, "block_size": 4}
    assert architecture(pair, **size) == architecture(named, **size)


def test_each_run_has_its_row_s_rate_and_a_name_of_its_own() -> None:
    runs = factors.runs(PARAMETERS)
    assert len({run.name for run in runs}) == len(runs) == 16 * 2
    rates = {run.name: run.optimizer.learning_rate for run in runs if run.seed == 1}
    assert rates["causal-diag-norm-seed1"] == 0.02
    assert rates["causal-linear-linear-lrpe-seed1"] == 0.003
    assert rates["causal-linear-linear-seed1"] == 0.01


def test_a_rate_of_no_row_is_refused() -> None:
    with pytest.raises(ValueError, match="rates='norm/diag': must be a row"):
        factors.runs(replace(PARAMETERS, rates={"norm/diag": 0.1}))


@pytest.mark.parametrize("name", ["diag/nothing", "/norm", "diag/norm/norm"])
def test_a_pair_of_unknown_mechanisms_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match="architecture='"):
        factors.runs(replace(PARAMETERS, alone=(name,)))


def test_an_additive_effect_is_found_in_each_factor_alone() -> None:
    early, late = {"diag": 0.0, "linear": 0.25}, {"norm": 1.0, "linear": 1.5, "softmax": 1.25}
    bits = {f"{e}/{last}": [a + b, a + b + 1] for e, a in early.items() for last, b in late.items()}
    locality = [w - b for b, w in zip(*(factors.over_late(bits, e, PARAMETERS) for e in early), strict=True)]
    norm, linear = (factors.over_early(bits, last, PARAMETERS) for last in ("norm", "linear"))
    assert locality == pytest.approx([0.25, 0.25])
    assert [w - b for b, w in zip(norm, linear, strict=True)] == pytest.approx([0.5, 0.5])
