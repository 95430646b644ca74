"""The notebooks that read real data run end to end on samples; what cannot be measured says why."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
SAMPLES = Path(__file__).with_name("samples")
NOTEBOOKS = sorted(path.stem for path in SAMPLES.glob("0*.yaml"))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def report(sample_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a report on the samples, with small parameter files."""
    root = tmp_path_factory.mktemp("project")
    shutil.copytree(SAMPLES, root / "params" / "quick")
    shutil.copy(CHECKOUT / "Snakefile", root / "Snakefile")
    (root / "notebooks").mkdir()
    for name in NOTEBOOKS:
        shutil.copy(CHECKOUT / "notebooks" / f"{name}.ipynb", root / "notebooks")
    environment = {
        "TRANSNORMER_DATA_ROOT": str(sample_root),
        "TRANSNORMER_CACHE": str(root / "cache"),
        "TRANSNORMER_RUNS": str(root / "runs"),
        "HF_HUB_OFFLINE": "1",
    }
    command = [sys.executable, "-m", "transnormer_lib.cli", "report", "--cores", "1", "--root", str(root)]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, done.stdout + done.stderr
    return root / "reports" / "quick"


def claims_of(report: Path, notebook: str) -> list[dict[str, Any]]:
    """The claims of one notebook."""
    return [claim for claim in json.loads((report / "claims.json").read_text()) if claim["notebook"] == notebook]


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_every_notebook_runs_on_real_data(report: Path, notebook: str) -> None:
    record = json.loads((report / "records" / f"{notebook}.json").read_text())
    assert record["status"] == "ok"
    assert record["provenance"]["data"]
    assert (report / f"{notebook}.html").exists()


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_every_claim_of_a_notebook_is_measured_or_says_why_not(report: Path, notebook: str) -> None:
    claims = claims_of(report, notebook)
    assert claims
    assert any(claim["verdict"] != "not run" for claim in claims)
    assert all(claim["verdict"] != "not run" or claim["reason"] for claim in claims)


def test_differences_from_the_published_data_are_reported(report: Path) -> None:
    for notebook in NOTEBOOKS:
        assert "sample: " in (report / f"{notebook}.html").read_text(), notebook


def test_absent_data_cost_only_the_claims_about_them(report: Path) -> None:
    lacking = {
        "06_glue": ("table-5-mnli-mm", "validation_mismatched"),
        "07_lra": ("table-6-retrieval", "OpenNLPLab/lra"),
    }
    for notebook, (name, reason) in lacking.items():
        (claim,) = [claim for claim in claims_of(report, notebook) if claim["id"] == name]
        assert claim["verdict"] == "not run"
        assert reason in claim["reason"]
