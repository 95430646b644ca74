"""The kernels' benchmark is drawn from its JSON alone, wherever it was measured."""

from pathlib import Path
from typing import Any

import pytest
from matplotlib import pyplot as plt

pytest.importorskip("triton", reason="triton has no build for this platform")

from transnormer_kernels.bench import results
from transnormer_kernels.bench.cases import gpu_cases
from transnormer_kernels.bench.contestants import contestants

from transnormer_lib.cli import main
from transnormer_lib.studies.speed import kernel_figures


@pytest.fixture
def result() -> dict[str, Any]:
    """Invented times: one contestant is wrong, one failed, one was left out."""
    cases = []
    for case in gpu_cases()[:2]:
        values = results.case_values(case, copy_rate=4e12)
        for place, name in enumerate(("transnormer", "fla chunk, full stack", "fla chunk, bare", "eager")):
            median = (1.25 + place) * values["floor_seconds"]
            row = {"name": name, "status": "measured", "reason": None, "computes": {}, "errors": {"o": 1e-3}}
            row |= {"bounds": {"o": 2e-3}, "worst": "o", "seconds": dict.fromkeys(("min", "median", "max"), median)}
            row |= {"how": "cuda graph", "note": "", "of_floor": values["floor_seconds"] / median}
            values["rows"].append(row)
        values["rows"][2] |= {"status": "wrong", "reason": "o is off", "errors": {"o": None}}
        values["rows"].append({"name": "compiled", "status": "failed", "reason": "RuntimeError: no"})
        values["rows"].append({"name": "SDPA softmax", "status": "left out", "reason": "needs a CUDA device"})
        values["comparisons"] = results.compare(case, values)
        cases.append(values)
    return {
        "schema": results.SCHEMA, "device": "Invented GPU", "driver": None, "versions": {"torch": "2.11"},
        "commit": None, "date": "2026-01-02T03:04:05+00:00", "quick": False, "copy_bytes_per_second": 4e12,
        "cases": cases,
    }  # fmt: skip


def test_rows_are_those_that_were_timed(result: dict[str, Any]) -> None:
    timed = kernel_figures.rows(result)
    assert list(timed.contestant.unique()) == ["transnormer", "fla chunk, full stack", "fla chunk, bare", "eager"]
    assert timed.times_floor.tolist() == pytest.approx([1.25, 2.25, 3.25, 4.25] * 2)
    assert (timed.status == "wrong").sum() == 2
    assert timed.error.isna().sum() == 2


def test_a_kernel_stands_beside_the_fastest_other_that_computes_the_same(result: dict[str, Any]) -> None:
    first, second = result["cases"]
    first["rows"][1]["computes"] = {"norm": "none"}  # the fastest other, of another function
    second["rows"][3]["seconds"] = {"median": second["rows"][0]["seconds"]["median"] / 2}
    pairs = kernel_figures.beside(result)
    assert pairs["fastest other"].tolist() == ["eager", "eager"]  # and none whose result is wrong
    assert pairs["times as fast as it"].tolist() == pytest.approx([4.25 / 1.25, 0.5])
    assert pairs["% of memory speed"].tolist() == pytest.approx([80, 80])
    said = kernel_figures.beaten(result)
    assert said == f"Faster than all others that compute the same in 1 of 2 cases; slower in {second['name']} (eager)."


def test_a_case_in_which_nobody_else_was_timed_has_no_rival(result: dict[str, Any]) -> None:
    for case in result["cases"]:
        case["rows"] = case["rows"][:1]
    assert kernel_figures.beside(result)["fastest other"].isna().all()
    assert kernel_figures.beaten(result) == "Faster than all others that compute the same in 0 of 0 cases."


def test_a_case_that_is_lost_to_a_wrong_result_or_even_is_not_counted_as_won(result: dict[str, Any]) -> None:
    first, second = result["cases"]
    first["rows"][0]["status"] = "wrong"
    second["rows"][1]["seconds"] = {"median": 1.005 * second["rows"][0]["seconds"]["median"]}
    assert kernel_figures.beaten(result) == (
        "Faster than all others that compute the same in 0 of 2 cases; "
        f"as fast in {second['name']} (fla chunk, full stack); "
        f"without a right result in {first['name']} (fla chunk, full stack)."
    )
    assert kernel_figures.beside(result)["this project, µs"].isna().tolist() == [True, False]


def test_a_result_names_its_machine_and_what_was_not_installed(result: dict[str, Any]) -> None:
    result |= {"driver": "1.2", "versions": {"torch": "2.11", "flash-attn": None}}
    said = "Invented GPU, driver 1.2, 2026-01-02: torch 2.11; not installed: flash-attn."
    assert kernel_figures.machine(result) == said
    assert kernel_figures.machine(result | {"quick": True}) == f"{said} A quick run, whose times are no result."


def test_every_contestant_has_a_family(result: dict[str, Any]) -> None:
    for contestant in contestants():
        assert kernel_figures._family(contestant.name)[0] != "others", contestant.name
    assert kernel_figures._family("flash-attn varlen") == kernel_figures._family("SDPA flash")


def test_the_figure_names_cases_and_families_and_marks_what_is_wrong(result: dict[str, Any]) -> None:
    figure = kernel_figures.speed(result)
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [case["name"] for case in result["cases"]]
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend[:2] == ["this project's kernels", "flash-linear-attention"]
    assert "computes something wrong" in legend
    assert "Invented GPU" in axes.get_title()
    plt.close(figure)


def test_nothing_timed_is_nothing_to_draw(result: dict[str, Any]) -> None:
    for case in result["cases"]:
        case["rows"] = case["rows"][-1:]
    with pytest.raises(ValueError, match="nothing in it was timed"):
        kernel_figures.speed(result)


def test_a_result_measured_elsewhere_is_shown_and_drawn(
    result: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, drawing = tmp_path / "result.json", tmp_path / "result.svg"
    results.write(result, path)
    assert main(["bench", "kernels", "--read", str(path), "--plot", str(drawing)]) == 0
    said = capsys.readouterr().out
    assert "80% of the floor" in said
    assert "WRONG: o is off" in said
    assert "failed: RuntimeError: no" in said
    assert "1.80 x as fast as fla chunk, full stack" in said
    assert "</svg>" in drawing.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "training", "--quick"], "quick: belongs to bench kernels, not to bench training"),
        (["bench", "attention", "--only", "x"], "only: belongs to bench kernels"),
        (["bench", "kernels", "--read", "nothing.json"], "nothing.json: cannot be read as a result"),
        (["bench", "kernels", "--only", "no such case"], "no case contains it"),
        (["bench", "kernels", "--only", "decode", "--lengths", "64"], "lengths=[64]: the cases"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_results_that_are_kept_are_read_by_the_names_of_their_files(tmp_path: Path, result: dict[str, Any]) -> None:
    assert kernel_figures.kept(tmp_path / "nowhere") == {}
    path = tmp_path / results.file_name(result)
    results.write(result, path)
    (tmp_path / "other.json").write_text("{}")
    assert kernel_figures.kept(tmp_path) == {path.stem: results.read(path)}


def test_the_figure_in_words_gives_this_projects_share_of_the_floor_per_case(result: dict[str, Any]) -> None:
    said = kernel_figures.in_words(result)
    assert [case["name"] in said for case in result["cases"]] == [True, True]
    assert said.count(": 80%") == 2  # 1 / 1.25


def test_the_shares_of_the_floor_that_the_kernels_reach_are_their_ends(result: dict[str, Any]) -> None:
    result["cases"][1]["rows"][0]["of_floor"] = 0.5
    low, high = result["cases"][1]["name"], result["cases"][0]["name"]
    assert kernel_figures.reached(result) == (f"This project's kernels reach 50% ({low}) to 80% ({high}) of its speed.")
    for case in result["cases"]:
        case["rows"][0]["status"] = "failed"
    assert kernel_figures.reached(result) == "This project's kernels were not timed."
