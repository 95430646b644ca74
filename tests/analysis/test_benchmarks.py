"""A benchmark's figures are consistent. No test asserts their size, which is a property of the machine."""

import json
import os
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest

from transnormer_lib import studies
from transnormer_lib.analysis import benchmarks, cpu_costs
from transnormer_lib.analysis.benchmarks import Benchmark
from transnormer_lib.attention import blockwise
from transnormer_lib.cli import main
from transnormer_lib.project import Project
from transnormer_lib.report.parameters import resolve


@pytest.fixture(scope="module")
def attention() -> Benchmark:
    return benchmarks.attention([64, 128], rounds=3)


@pytest.fixture
def no_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out the longer measurements, which are tested elsewhere."""
    monkeypatch.setattr(cpu_costs, "ratios", lambda *_: [])


@pytest.mark.slow
def test_ratios_are_medians_of_ratios_within_a_round(attention: Benchmark) -> None:
    for length in (64, 128):
        timings = {t.name: t for t in attention.timings if t.length == length}
        assert timings.keys() - {benchmarks.PEER} == {"softmax", "norm", "linear", "diag"}
        assert timings["softmax"].times_faster == 1.0
        for t in timings.values():
            ratios = [r / o for r, o in zip(timings["softmax"].seconds, t.seconds, strict=True)]
            assert t.times_faster == statistics.median(ratios)
            assert len(t.seconds) == 3


def test_text_and_json_agree(attention: Benchmark) -> None:
    values = json.loads(attention.as_json())
    assert [t["name"] for t in values["timings"]] == [t.name for t in attention.timings]
    assert len(attention.as_text().splitlines()) == 2 + len(attention.timings) + len(attention.notes)


def test_ratios_name_both_sides_and_hold_a_value_for_each_round(attention: Benchmark) -> None:
    ratios = attention.details["ratios"]
    assert len({ratio["name"] for ratio in ratios}) == len(ratios) == 12
    for ratio in ratios:
        assert len(ratio["values"]) == 3
        assert ratio["median"] == statistics.median(ratio["values"]) > 0
        assert sum(note.startswith(ratio["name"]) for note in attention.notes) == 1


def test_a_quotient_is_taken_within_its_round(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {"own": [6.0, 8.0], "other": [3.0, 2.0]}
    monkeypatch.setattr(cpu_costs, "interleaved", lambda steps, rounds, repeats: seconds)
    found = cpu_costs._quotients({"own": int, "other": int}, "other", 2, own=1.0, other=2.0)
    assert found == {"own": (1.0, 2.0), "other": (1.0, 1.0)}


@pytest.mark.usefixtures("no_costs")
def test_memory_per_token_of_norm_attention_does_not_grow_with_the_length() -> None:
    memory = benchmarks.attention([256, 1024], rounds=1).details["bytes_per_token"]
    assert memory[1024] <= 1.1 * memory[256]


@pytest.mark.slow
def test_a_training_benchmark_measures_every_architecture_and_where_the_time_goes() -> None:
    told: list[str] = []
    result = benchmarks.training([32], rounds=1, tokens=64, told=told.append)
    assert [line.partition(",")[0] for line in told] == [
        "length 1 of 1", "step of the quick preset 1 of 2", "step of the quick preset 2 of 2"
    ]  # fmt: skip
    names = ["vanilla", "linear", "transnormer-t1", "transnormer-t2"]
    assert [t.name for t in result.timings] == names
    assert [(share["step"], share["name"]) for share in result.details["quick"]] == [
        (step, name) for step, (_, names) in benchmarks.QUICK.items() for name in names
    ]
    for row, timing in zip(result.details["throughput"], result.timings, strict=True):
        assert (row["name"], row["length"]) == (timing.name, timing.length)
        assert row["tokens_per_second"] == 64 / timing.median
        assert row["peak_bytes"] > 0
    for share in (*result.details["throughput"], *result.details["quick"]):
        assert 0 < share["input_share"] < 1
    for share in result.details["quick"]:
        assert 0 < share["matrix_products"] < 1
        assert len(share["others"]) == 10
        assert share["matrix_products"] + sum(share["others"].values()) <= 1 + 1e-9


@pytest.mark.parametrize("notebook", ["02_gradient_stability", "03_attention_dilution", "04_autoregressive_lm"])
def test_the_quick_steps_are_those_of_the_quick_preset(notebook: str) -> None:
    checkout = Path(__file__).resolve().parents[2]
    runs = studies.runs(notebook, resolve(Project(checkout), "quick", notebook))
    sizes = {title: size for title, (size, _) in benchmarks.QUICK.items()}
    for run in runs:
        model, data = run.model, run.data
        size = sizes[f"{data.batch_size} x {data.length} tokens, {data.task}"]
        assert (model.kind, model.layers, model.dim, model.heads) == (size.kind, size.layers, size.dim, size.heads)
        assert size.rotary in {other.model.rotary for other in runs}


@pytest.mark.usefixtures("no_costs")
@pytest.mark.parametrize(("option", "threads"), [([], "2"), (["--threads", "3"], "3")], ids=["preset", "option"])
def test_threads_come_from_the_preset_unless_the_option_is_given(
    option: list[str], threads: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preset = tmp_path / "params" / "mine" / "preset.yaml"
    preset.parent.mkdir(parents=True)
    (tmp_path / "notebooks").mkdir()
    quick = Path(__file__).resolve().parents[2] / "params" / "quick" / "preset.yaml"
    preset.write_text(quick.read_text().replace("threads: 1", "threads: 2"))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    command = ["bench", "attention", "--lengths", "16", "--repeats", "1", "--preset", "mine", "--root", str(tmp_path)]
    assert main([*command, *option]) == 0
    assert os.environ["OMP_NUM_THREADS"] == threads


@pytest.mark.usefixtures("no_costs")
def test_the_command_prints_the_table_and_writes_the_same_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "new" / "attention.json"
    assert main(["bench", "attention", "--lengths", "16,32", "--repeats", "1", "--json", str(file)]) == 0
    values, (text, told) = json.loads(file.read_text()), capsys.readouterr()
    assert [line.partition(", ")[0] for line in told.splitlines()] == [
        f"bench attention: {what} {number} of 2" for what in ("length", "memory at length") for number in (1, 2)
    ]
    assert text.startswith(values["title"])
    assert [t["length"] for t in values["timings"]] == [16] * 4 + [32] * 4
    for t in values["timings"]:
        softmax = next(s for s in values["timings"] if s["length"] == t["length"] and s["name"] == "softmax")
        assert t["times_faster"] == softmax["median"] / t["median"]  # of a single round
        assert f"{1e3 * t['median']:9.2f}" in text


@pytest.mark.slow
@pytest.mark.parametrize("products", [True, False], ids=["bf16-products", "no-bf16-products"])
@pytest.mark.parametrize(
    "measure",
    [
        lambda: main(["bench", "attention", "--lengths", "128", "--repeats", "1"]),
        lambda: 0 if benchmarks.training([32], rounds=1, tokens=64).timings else 1,
        lambda: main(["bench", "kernels", "--quick", "--repeats", "1", "--only", "decode"]),
    ],
    ids=["attention", "training", "kernels"],
)
def test_a_benchmark_ends_well_on_any_cpu(
    measure: Callable[[], int], products: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blockwise, "_BFLOAT16_PRODUCTS", products)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    assert measure() == 0
