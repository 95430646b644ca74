"""The packages import in one direction, and the command line imports nothing heavy before it must."""

import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_imports_follow_the_layers() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout


def test_no_module_imports_itself_in_a_circle() -> None:
    """Imports inside functions and for type checkers count too."""
    graph = grimp.build_graph("transnormer_lib", "transnormer_kernels", cache_dir=None)
    TopologicalSorter({m: graph.find_modules_directly_imported_by(m) for m in graph.modules}).prepare()


@pytest.mark.parametrize("module", ["transnormer_lib", "transnormer_lib.cli", "transnormer_lib.studies"])
def test_light_modules_bring_no_heavy_ones(module: str) -> None:
    heavy = (
        "torch",
        "numpy",
        "pandas",
        "scipy",
        "matplotlib",
        "nbconvert",
        "papermill",
        "snakemake",
        "pydantic",
    )
    code = f"import sys, {module}; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
