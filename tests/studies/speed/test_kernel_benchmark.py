"""On a CPU the kernels' benchmark says what it leaves out, and measures the library's own form in its place."""

import json
from pathlib import Path

import pytest
import torch

from transnormer_lib.analysis import benchmarks
from transnormer_lib.cli import main
from transnormer_lib.studies.speed import kernel_benchmark


@pytest.fixture(autouse=True)
def no_gpu_and_a_short_library_part(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    asked: list[object] = []

    def attention(lengths: object, rounds: int) -> benchmarks.Benchmark:
        asked.append((lengths, rounds))
        return benchmarks.Benchmark("library", "softmax", (), ("a note",), {})

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(benchmarks, "attention", attention)
    return asked


@pytest.mark.slow
def test_the_command_runs_without_a_gpu_and_keeps_both_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], no_gpu_and_a_short_library_part: list[object]
) -> None:
    pytest.importorskip("triton", reason="triton has no build for this platform")
    path = tmp_path / "result.json"
    drawing = tmp_path / "result.svg"
    command = ["bench", "kernels", "--quick", "--repeats", "1", "--json", str(path), "--plot", str(drawing)]
    assert main(command) == 0
    assert no_gpu_and_a_short_library_part == [((256, 512), 1)]
    said = capsys.readouterr().out
    assert "No CUDA device" in said
    assert "left out: needs a CUDA device" in said
    assert "the library's chunked form: library" in said
    result = json.loads(path.read_text())
    assert result["library"]["notes"] == ["a note"]
    assert {row["status"] for case in result["cases"] for row in case["rows"]} == {"measured", "left out"}
    assert "</svg>" in drawing.read_text()


def test_chosen_cases_are_measured_without_the_library_part(no_gpu_and_a_short_library_part: list[object]) -> None:
    pytest.importorskip("triton", reason="triton has no build for this platform")
    result, right = kernel_benchmark.measure(only="decode", repeats=1, quick=True)
    assert [case["name"] for case in result["cases"]] == ["decode d64"]
    assert right
    assert no_gpu_and_a_short_library_part == []


def test_without_triton_the_library_part_is_measured_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_benchmark, "find_spec", lambda name: None)
    result, right = kernel_benchmark.measure(quick=True)
    assert "Triton is not installed" in capsys.readouterr().out
    assert right
    assert set(result) == {"cases", "library"}
