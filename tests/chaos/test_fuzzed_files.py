"""Any file that a person or a crash may leave: read as it is meant, or refused in one line that names file and rule."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import yaml
from chaos_trials import Tried, cases
from hypothesis import given
from hypothesis import strategies as st
from mutations import NUMBERS, broken, junk, spoiled
from project_factory import CHECKOUT
from refusals import Refused, outcome
from training_cases import config

from transnormer_lib import cli
from transnormer_lib.checks import check_amounts
from transnormer_lib.files import read_yaml
from transnormer_lib.ledger import claims, theses
from transnormer_lib.papers import tables
from transnormer_lib.project import Project
from transnormer_lib.report import plan
from transnormer_lib.report.parameters import declared, resolve
from transnormer_lib.strict import from_plain
from transnormer_lib.training.config import RunConfig
from transnormer_lib.training.setup import parameters_of

CHECKED = Project(CHECKOUT)
STUDIES = CHECKOUT / "transnormer_lib" / "studies"
PAPERS = CHECKOUT / "transnormer_lib" / "papers"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy of the notebooks and of the quick preset."""
    root = tmp_path_factory.mktemp("project")
    shutil.copytree(CHECKOUT / "notebooks", root / "notebooks")
    shutil.copytree(CHECKOUT / "params" / "quick", root / "params" / "quick")
    return Project(root)


def of_type(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a parameter's type, most of which its study cannot mean."""
    arguments = get_args(kind)
    if get_origin(kind) is Literal:
        return st.sampled_from(arguments)
    if get_origin(kind) is list:
        return st.lists(of_type(arguments[0]), max_size=3)
    if get_origin(kind) is dict:
        return st.dictionaries(st.sampled_from(["", "x", "linear", "norm-t2"]), of_type(arguments[1]), max_size=2)
    whole = [number for number in NUMBERS if isinstance(number, int)]
    names = st.sampled_from(
        ["", "x", "linear", "vanilla", "transnormer-t2", "diag/norm", "lrpe", "quick", "a/b/c", "\x00"]
    )
    return {int: st.sampled_from(whole), float: st.sampled_from(NUMBERS), str: names, bool: st.booleans()}.get(
        kind, junk
    )


COMMANDS = ("plan", "sweep --dry-run")


@pytest.mark.parametrize("notebook", CHECKED.notebooks)
def test_any_parameter_file_is_planned_or_refused(
    notebook: str, project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tried: Tried
) -> None:
    monkeypatch.setattr(plan, "measure_device", lambda gpu: plan.Device("a device", 1e9))
    monkeypatch.setenv("TRANSNORMER_RUNS", str(project.root / "runs"))
    count, known, file = 0, declared(project, notebook), project.values_path("quick", notebook)
    sound = file.read_bytes() if file.exists() else b""

    @cases(6, 60, notebook)
    @given(data=st.data())
    def one(data: st.DataObject) -> None:
        nonlocal count
        count += 1
        if data.draw(st.integers(0, 3)) == 0:
            file.write_bytes(data.draw(broken(sound or b"seeds: [0]\n")))
        else:
            chosen = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=2, unique_by=lambda p: p.name))
            values = {p.name: data.draw(st.one_of(of_type(p.type), of_type(p.type), junk)) for p in chosen}
            file.write_text(yaml.safe_dump(values, allow_unicode=True), encoding="utf-8")
        codes = set()
        for command in COMMANDS:
            code = cli.main([*command.split(), "--only", notebook, "--root", str(project.root)])
            assert (code, len(capsys.readouterr().err.splitlines())) in ((0, 0), (2, 1))
            codes.add(code)
        if codes == {0}:
            values = resolve(project, "quick", notebook)
            assert set(values) == {p.name for p in known}
            check_amounts("values", values)

    try:
        one()
    finally:
        file.write_bytes(sound)
    tried("a parameter file", count)


def test_any_preset_is_read_or_refused(project: Project, tried: Tried) -> None:
    count, file = 0, project.root / "params" / "quick" / "preset.yaml"
    sound = file.read_bytes()

    @cases(10, 200)
    @given(data=st.data())
    def one(data: st.DataObject) -> None:
        nonlocal count
        count += 1
        whole = yaml.safe_dump(data.draw(spoiled(yaml.safe_load(sound)))).encode()
        file.write_bytes(data.draw(st.one_of(st.just(whole), broken(sound))))
        outcome(lambda: project.preset("quick"))

    try:
        one()
    finally:
        file.write_bytes(sound)
    tried("a preset's description", count)


@pytest.mark.parametrize("study", sorted(path.parent.name for path in STUDIES.glob("*/claims.yaml")))
def test_any_claims_are_read_or_refused(study: str, tmp_path: Path, tried: Tried) -> None:
    count, folder = 0, tmp_path / study
    folder.mkdir()
    for file in (STUDIES / study).glob("plan*.yaml"):
        shutil.copy(file, folder)
    sound = (STUDIES / study / "claims.yaml").read_bytes()
    content = read_yaml(STUDIES / study / "claims.yaml")
    some = {**content, "claims": content["claims"][:4]}
    twice = {**content, "claims": [*content["claims"][:4], *content["claims"][:1]]}

    either = st.one_of(spoiled(some), spoiled(some), spoiled(twice))

    @cases(4, 50, study)
    @given(data=st.data())
    def one(data: st.DataObject) -> None:
        nonlocal count
        count += 1
        as_text = data.draw(st.integers(0, 3)) == 0
        text = data.draw(broken(sound)) if as_text else yaml.safe_dump(data.draw(either)).encode()
        (folder / "claims.yaml").write_bytes(text)
        found = outcome(lambda: claims.load(tmp_path, CHECKED))
        if isinstance(found, Refused):
            assert study in found
        else:
            assert len(found) == len(read_yaml(folder / "claims.yaml")["claims"])

    one()
    tried("a file of claims", count)


@pytest.mark.parametrize("paper", sorted(path.parent.name for path in PAPERS.glob("*/theses.yaml")))
def test_any_theses_are_read_or_refused(paper: str, tmp_path: Path, tried: Tried) -> None:
    count, known = 0, claims.load()
    sound = (PAPERS / paper / "theses.yaml").read_bytes()
    content = yaml.safe_load(sound)[:3]
    path = tmp_path / paper / "theses.yaml"
    path.parent.mkdir()

    @cases(6, 150, paper)
    @given(data=st.data())
    def one(data: st.DataObject) -> None:
        nonlocal count
        count += 1
        as_text = data.draw(st.integers(0, 3)) == 0
        text = data.draw(broken(sound)) if as_text else yaml.safe_dump(data.draw(spoiled(content))).encode()
        path.write_bytes(text)
        found = outcome(lambda: theses.read(path, known))
        if isinstance(found, Refused):
            assert paper in found

    one()
    tried("a file of theses", count)


@pytest.mark.parametrize("table", ["table_1", "table_4"])
def test_any_published_table_is_read_or_refused(table: str, tmp_path: Path, tried: Tried) -> None:
    count, file = 0, PAPERS / "transnormer" / "tables" / f"{table}.yaml"
    path = tmp_path / file.name

    @cases(6, 120, table)
    @given(content=spoiled(yaml.safe_load(file.read_bytes())))
    def one(content: Any) -> None:
        nonlocal count
        count += 1
        path.write_text(yaml.safe_dump(content), encoding="utf-8")
        outcome(lambda: tables.read(path, "transnormer"))

    one()
    tried("a published table", count)


def test_any_run_is_described_or_refused(tried: Tried) -> None:
    count = 0
    sound = json.loads(json.dumps([asdict(config("transnormer-t2")), asdict(config("flash", "masked"))]))

    @cases(40, 800)
    @given(data=st.data())
    def one(data: st.DataObject) -> None:
        nonlocal count
        count += 1
        values = data.draw(spoiled(data.draw(st.sampled_from(sound))))
        if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
            return
        found = outcome(lambda: from_plain(RunConfig, values))
        if not isinstance(found, Refused):
            outcome(lambda: parameters_of(found))

    one()
    tried("the description of a run", count)
