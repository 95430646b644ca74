"""The packages import in one direction, and the command line imports nothing heavy before it must."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_imports_follow_the_layers() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout


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
