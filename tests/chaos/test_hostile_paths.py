"""Names that would leave their folder, reach a shell or be run are refused; text that is too deep or too large too."""

import ast
import gzip
import json
import re
import shlex
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from chaos_trials import Tried
from project_factory import make_project, write_notebook
from training_cases import config, whole_record

from transnormer_lib import sums
from transnormer_lib.cli import main
from transnormer_lib.data import hub, own_text, sources
from transnormer_lib.files import parse_json, read_object
from transnormer_lib.project import Project, UserMistake
from transnormer_lib.report import sweep
from transnormer_lib.report.parameters import declared
from transnormer_lib.training import carried
from transnormer_lib.training.identity import run_id
from transnormer_lib.training.store import RunStore

CHECKOUT = Path(__file__).resolve().parents[2]
OUTSIDE = [
    "../evil",
    "..",
    "/tmp/evil",
    "a/../../evil",
    "a/b",
    ".hidden",
    "-rf",
    "~/evil",
    "a\nb",
    "a b",
    "$(id)",
    "a;id",
]
OUTSIDE += ["`id`", "a|id", "a&id", "", "{x}", "a\x00b", "'a'", '"a"', "a\\b", "%2e%2e%2fevil", "*", "a\n"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_run_s_name_is_the_name_of_one_folder(name: str, tried: Tried) -> None:
    with pytest.raises(ValueError, match="name="):
        replace(config(), name=name)
    tried("hostile name")


@pytest.mark.parametrize("name", OUTSIDE)
def test_carried_records_are_put_nowhere_else(name: str, tmp_path: Path, tried: Tried) -> None:
    """As the name in the file, and as the name of the config."""
    run = config()
    record = whole_record(run)
    whole = {"config": asdict(run), "record": record}
    path, store = tmp_path / "records.json.gz", RunStore(tmp_path / "deep" / "runs")
    renamed = {**whole, "config": asdict(run) | {"name": name}}
    identity = run_id(run, record["data"], record["arithmetic"])
    for content in ({name: whole}, {name: renamed}, {identity.replace(run.name, name): renamed}, {identity: renamed}):
        path.write_bytes(gzip.compress(json.dumps(content).encode()))
        with pytest.raises(ValueError, match=r"holds no records of runs: .*(name=|its config is that of)"):
            carried.read(path, store)
    assert {found.name for found in tmp_path.rglob("*")} == {path.name}
    tried("hostile name", 4)


def test_whole_records_are_imported(tmp_path: Path) -> None:
    run = config()
    record = whole_record(run)
    name, path = run_id(run, record["data"], record["arithmetic"]), tmp_path / "records.json.gz"
    path.write_bytes(gzip.compress(json.dumps({name: {"config": asdict(run), "record": record}}).encode()))
    assert carried.read(path, RunStore(tmp_path / "runs")) == (1, 0)


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "a/../../evil", ".."])
def test_digests_name_no_file_elsewhere(name: str, tmp_path: Path, tried: Tried) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "evil").write_text("x")
    (tmp_path / "run" / sums.FILE).write_text(f"{'0' * 64}  {name}\n")
    with pytest.raises(ValueError, match="which is not in its folder"):
        sums.check(tmp_path / "run")
    tried("hostile name")


@pytest.mark.parametrize(
    "name", [name for name in OUTSIDE if name and "/" not in name and "\x00" not in name and name != ".."]
)
def test_a_folder_with_a_hostile_name_is_no_preset_and_no_notebook(name: str, tmp_path: Path, tried: Tried) -> None:
    """Both reach the shell of a workflow."""
    project = make_project(tmp_path, {"01_a": ["size"]})
    (tmp_path / "params" / name).mkdir()
    (tmp_path / "params" / name / "preset.yaml").write_text((tmp_path / "params/quick/preset.yaml").read_text())
    write_notebook(tmp_path / "notebooks" / f"02_{name}.ipynb", ["size"])
    assert (project.presets, project.notebooks) == (["quick"], ["01_a"])
    with pytest.raises(UserMistake, match="unknown"):
        project.preset(name)
    tried("hostile name")


@pytest.mark.parametrize("name", ["../../params/quick", "/tmp", "quick/", "quick/../quick", "."])
def test_a_preset_is_no_path(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], tried: Tried) -> None:
    project = make_project(tmp_path, {"01_a": ["size"]})
    for command in (["claims"], ["report"], ["plan"], ["sweep", "--dry-run"]):
        assert main([*command, "--preset", name, "--root", str(project.root)]) == 2
        assert "unknown" in capsys.readouterr().err
    tried("hostile name", 4)


def test_every_value_of_a_workflow_s_shell_is_quoted(tried: Tried) -> None:
    """``launcher`` and ``environment`` are several words each, quoted where they are made (``report.sweep``)."""
    text = (CHECKOUT / "Snakefile").read_text()
    options = re.findall(r'^OPTIONS = "(.*)"', text, re.MULTILINE)
    shells = re.findall(r"    shell:\n((?:        .+\n?)+)", text)
    assert len(shells) == 3
    values = [value for shell in (*options, *shells) for value in re.findall(r"\{([^{}]+)\}", shell)]
    quoted_before = {"config[launcher]", "config[environment]", "wildcards.share"}  # a share is digits alone
    assert [value for value in values if not value.endswith(":q") and value not in quoted_before] == []
    tried("hostile name", len(values))


@pytest.mark.parametrize("folder", ["a b", "a'b", "$(touch x)", "a;b"])
def test_a_sweep_s_words_are_quoted(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tried: Tried) -> None:
    project = make_project(tmp_path / folder, {"01_a": ["size"]})
    monkeypatch.setattr(sweep.sys, "executable", str(tmp_path / folder / "python"))
    plan = json.loads(sweep._write(project, "quick", {}, 2).read_text())
    assert shlex.split(plan["launcher"])[0] == str(tmp_path / folder / "python")
    assert all(re.fullmatch(r"\w+=\S+", word) for word in shlex.split(plan["environment"]))
    tried("hostile name")


def test_data_are_looked_for_under_names_that_stay_in_their_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tried: Tried
) -> None:
    monkeypatch.setenv("TRANSNORMER_DATA_ROOT", str(tmp_path))
    places = [path for one in hub.DATASETS.values() for split in one.splits.values() for path in split.files]
    names = [one.repository for one in hub.DATASETS.values()] + [place.path for place in places]
    assert [name for name in names if Path(name).is_absolute() or ".." in Path(name).parts] == []
    for name in ("../evil", "/etc", "wikitext/../../evil"):
        with pytest.raises(ValueError, match="name="):
            sources.locate(name, "train")
        with pytest.raises(ValueError, match="split="):
            sources.locate(next(iter(hub.DATASETS)), name)
    tried("hostile name", len(names) + 6)


@pytest.mark.parametrize(
    "name", ["../secret", "a/..", "./secret", "../secret:x", "a/b:..", "..:a", "~nobodyx/secret", ""]
)
def test_a_text_of_one_s_own_is_looked_for_in_its_root_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tried: Tried
) -> None:
    here, root = tmp_path / "some" / "where", tmp_path / "root"
    for folder in (here, root / "a" / "b"):
        folder.mkdir(parents=True)
    rows = "".join(f'{{"text": "text {number}"}}\n' for number in range(9))
    for place in (tmp_path / "secret", root, root / "secret"):
        place.mkdir(exist_ok=True)
        (place / "train.jsonl").write_text(rows)
    for number in range(9):
        (here / f"{number}.txt").write_text(f"text {number}")
    monkeypatch.chdir(here)
    monkeypatch.setenv("TRANSNORMER_DATA_ROOT", str(root))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    with pytest.raises(ValueError, match=f"^corpus={name!r}: must be "):
        own_text.documents(name)
    tried("hostile name")


CODE = [
    "().__class__", "[c for c in ().__class__.__base__.__subclasses__()]", "(lambda: 1)()", "int.__subclasses__()",
    "print('x')", "{**{}}", "(x := int)", "int if True else str", "f'{1}'", "list[int].__class__", "[*(1,)]",
    "10 ** 10",
]  # fmt: skip


@pytest.mark.parametrize("annotation", CODE)
def test_the_type_of_a_parameter_is_a_type_and_nothing_is_run(annotation: str, tmp_path: Path, tried: Tried) -> None:
    write_notebook(tmp_path / "notebooks" / "01_a.ipynb", ["x"], f"size: {annotation} = 3")
    with pytest.raises(UserMistake, match=r"parameter size: .*: must be a type"):
        declared(Project(tmp_path), "01_a")
    tried("hostile name")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000, "9" * 5_000])
def test_json_that_is_too_deep_or_no_number_is_refused(text: str, tmp_path: Path, tried: Tried) -> None:
    path = tmp_path / "hostile.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"nested too deeply|Exceeds the limit"):
        parse_json(text)
    assert read_object(path) is None
    assert main(["report", "--root", str(CHECKOUT), "--compare", str(path), str(path)]) == 2
    path.write_bytes(gzip.compress(text.encode()))
    with pytest.raises(ValueError, match="holds no records of runs"):
        carried.read(path, RunStore(tmp_path))
    tried("hostile name")


def test_records_that_unpack_to_too_much_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tried: Tried
) -> None:
    monkeypatch.setattr(carried, "_LARGEST", 1_000_000)
    path = tmp_path / "records.json.gz"
    path.write_bytes(gzip.compress(b"[" + b" " * 10_000_000 + b"]"))
    assert path.stat().st_size < 20_000
    with pytest.raises(ValueError, match="unpacked it takes more than 1,000,000 bytes"):
        carried.read(path, RunStore(tmp_path))
    tried("hostile name")


SOURCES = sorted([*(CHECKOUT / "transnormer_lib").rglob("*.py"), *(CHECKOUT / "kernels").rglob("*.py")])
SOURCES += sorted((CHECKOUT / "examples").glob("*.py"))
# What runs text or unpickles, with the one file that may, and why.
RUNS = {
    "eval": {"transnormer_lib/report/parameters.py"},  # of a type: names, subscripts and | alone
    "exec": set(), "compile": set(), "os.system": set(), "os.popen": set(), "pickle.load": set(), "pickle.loads": set(),
    "torch.load": set(), "joblib.load": set(), "np.load": set(), "pd.read_pickle": set(), "yaml.unsafe_load": set(),
    "yaml.full_load": set(), "marshal.loads": set(), "shelve.open": set(), "tarfile.open": set(),
    "shutil.unpack_archive": set(), "zipfile.ZipFile": set(), "subprocess.getoutput": set(), "os.execv": set(),
    "yaml.load": {"transnormer_lib/files.py"},  # by the safe loader
}  # fmt: skip


def test_no_source_runs_text_or_unpickles(tried: Tried) -> None:
    for path in SOURCES:
        name = path.relative_to(CHECKOUT).as_posix()
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            called, where = ast.unparse(call.func), f"{name}, line {call.lineno}: "
            if called in RUNS:
                assert name in RUNS[called] or _is_safe(called, call), where + called
            if called.startswith("subprocess."):
                assert not any(keyword.arg == "shell" for keyword in call.keywords), where + "a shell"
                assert not isinstance(call.args[0], ast.JoinedStr), where + "a command in one text"
    tried("source file read", len(SOURCES))


def _is_safe(called: str, call: ast.Call) -> bool:
    given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    return given.get("weights_only" if called == "torch.load" else "allow_pickle") in ("True", "False") and (
        given.get("weights_only") == "True" or given.get("allow_pickle") == "False"
    )


def test_servers_of_ours_listen_on_this_machine_alone(tried: Tried) -> None:
    for path in SOURCES:
        for host in re.findall(r"(?:HTTPServer|TCPServer|create_server)\(\s*\(([^,]+),", path.read_text()):
            assert host.strip("\"'") in ("127.0.0.1", "localhost"), path
            tried("server")
    options = re.findall(r"^LAB_ARGS.*|\t@\$\(BIN\)/jupyter lab.*", (CHECKOUT / "Makefile").read_text(), re.MULTILINE)
    assert len(options) == 2
    assert not re.search(r"ip=|token=|password=|allow_remote|allow_origin", " ".join(options))
