"""The three ways to install agree: pyproject.toml, constraints.txt, environment.yml."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line)
REQUIREMENTS = [
    Requirement(line)
    for line in PROJECT["dependencies"] + [r for extra in PROJECT["optional-dependencies"].values() for r in extra]
]


# Everything that `make setup` does not install.
EXTRAS = {
    Requirement(line).name
    for extra, lines in PROJECT["optional-dependencies"].items()
    for line in lines
    if extra != "dev"
}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda r: r.name)
def test_every_dependency_is_pinned_within_its_range_and_installed_so(requirement: Requirement) -> None:
    pinned = {canonical(name): pin for name, pin in PINS.items()}[canonical(requirement.name)]
    assert pinned in requirement.specifier
    if requirement.marker is not None and not requirement.marker.evaluate():
        pytest.skip(f"not for this platform: {requirement.marker}")
    try:
        installed = version(requirement.name)
    except PackageNotFoundError:
        assert requirement.name in EXTRAS  # which other targets install where they are wanted
    else:
        assert installed.split("+")[0] == pinned


@pytest.mark.parametrize("section", ["dependencies", *PROJECT["optional-dependencies"]])
def test_every_dependency_has_its_reason_beside_it(section: str) -> None:
    text = (ROOT / "pyproject.toml").read_text()
    block = text.split(f"\n{section} = [\n")[1].split("\n]")[0]
    entries = [line for line in block.splitlines() if line.strip().startswith('"')]
    assert entries
    assert all(re.search(r'",\s+# \S', line) for line in entries), "a dependency without a reason"


def test_conda_environment_installs_what_make_setup_installs() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    conda = {Requirement(d).name: Requirement(d) for d in environment["dependencies"] if isinstance(d, str)}
    assert set(conda["python"].specifier) == set(SpecifierSet(PROJECT["requires-python"]))
    (pip,) = [d["pip"] for d in environment["dependencies"] if isinstance(d, dict)]
    arguments = dict(line.split() for line in pip)
    used = re.search(r"-c (\S+) -e '(\.\[dev\])'", (ROOT / "Makefile").read_text())
    assert used is not None
    assert (arguments["--constraint"], arguments["--editable"]) == used.groups()


def test_triton_is_the_release_that_torch_was_built_with() -> None:
    # A CUDA build of torch requires this very release of triton; the CPU build requires none.
    assert (PINS["torch"], PINS["triton"]) == ("2.13.0", "3.7.1")
