"""Every kind of stored file, cut short or with one bit flipped: noticed and named in one line, never read unnoticed."""

import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from chaos_trials import Tried, trials
from command_deaths import UNREADABLE
from project_factory import STUDY, TINY, make_project, study_project
from report_factory import CLAIMS, THEORY, make_report
from training_cases import also_save_shards, config

from transnormer_lib import cli, sums
from transnormer_lib.data import cache, examples, fingerprints, token_files
from transnormer_lib.data.faults import DataFault
from transnormer_lib.ledger import kept
from transnormer_lib.ledger.judging import last_run, measurements
from transnormer_lib.project import Project, UserMistake, find_project
from transnormer_lib.report import pipeline, plan
from transnormer_lib.report.index import build_report
from transnormer_lib.report.train import runs_of
from transnormer_lib.training import carried, checkpoints, trainer
from transnormer_lib.training.store import RunStore
from transnormer_lib.training.stored_run import Run

SEEDS = range(4)


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Cut short, or with one bit flipped."""
    if draw.random() < 0.3:
        return content[: draw.randrange(len(content))]
    place = draw.randrange(len(content))
    return content[:place] + bytes([content[place] ^ (1 << draw.randrange(8))]) + content[place + 1 :]


def damages(path: Path, seed: int, count: int) -> Iterator[None]:
    """Damages a file again and again, and mends it in between."""
    content, draw = path.read_bytes(), random.Random(f"{path.name} {seed}")
    try:
        for _ in range(count):
            path.write_bytes(damaged(content, draw))
            yield
            path.write_bytes(content)
    finally:
        path.write_bytes(content)


def copy(tmp_path: Path, source: Path) -> Path:
    return Path(shutil.copytree(source, tmp_path / source.name))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return RunStore(tmp_path_factory.mktemp("store")).get(config(steps=2, gradients="norms"))


@pytest.mark.parametrize(
    "name", ["model.safetensors", "record.json", "config.json", "gradients.safetensors", "SHA256SUMS"]
)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_damaged_run_counts_as_missing_and_is_named(
    name: str, seed: int, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], tried: Tried
) -> None:
    count = trials(2, 25)
    path = copy(tmp_path, run.path) / name
    whole = path.read_bytes()
    for _ in damages(path, seed, count):
        found = RunStore(tmp_path).find(run.config)
        if found is not None:  # the line breaks of SHA256SUMS may be others
            assert name == "SHA256SUMS"
            assert path.read_text(errors="replace").split() == whole.decode().split()
            assert found.record == run.record
            continue
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"run {run.path.name}: ")
        assert line.endswith("; it counts as missing and is made again")
    tried(f"damaged {name} of a run", count)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Run]:
    """A project whose only notebook asks for one run, which its store has."""
    root = tmp_path_factory.mktemp("trained")
    project = study_project(root)
    project.values_path("quick", STUDY).write_text(
        yaml.safe_dump(TINY | {"architectures": ["linear"], "mixtures": [], "seeds": [0]})
    )
    (wanted,) = runs_of(project, "quick", STUDY)
    return project, RunStore(root / "runs").get(wanted)


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        ("plan", "quick: 1 runs, .* the store lacks 1, "),
        ("sweep --dry-run", "quick: 1 runs, 0 stored, 1 left, "),
        ("runs export {root}/records.json.gz", "runs: 0 records of 1 runs in "),
    ],
    ids=["plan", "sweep", "export"],
)
@pytest.mark.parametrize("name", ["record.json", "config.json", "SHA256SUMS", "model.safetensors"])
def test_a_damaged_run_is_named_and_missing_also_where_nothing_is_trained(
    command: str,
    missing: str,
    name: str,
    trained: tuple[Project, Run],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tried: Tried,
) -> None:
    project, run = trained
    monkeypatch.setenv("TRANSNORMER_RUNS", str(run.path.parent))
    monkeypatch.setattr(plan, "measure_device", lambda gpu: plan.Device("a device", 1e9))
    count, arguments = trials(6, 25), [*command.format(root=project.root).split(), "--root", str(project.root)]
    path, whole = run.path / name, (run.path / name).read_bytes()
    for _ in damages(path, 0, count):
        if name in ("model.safetensors", "SHA256SUMS"):  # these commands look at the size of weights alone
            path.write_bytes(whole[: max(len(path.read_bytes()) - 2, 0)])
        assert cli.main(arguments) == 0
        told = capsys.readouterr()
        (line,) = told.err.splitlines()
        assert line.startswith(f"run {run.path.name}: ")
        assert line.endswith("; it counts as missing")
        assert re.search(missing, told.out)
    tried(f"damaged {name} of a run where nothing is trained", count)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = RunStore(tmp_path_factory.mktemp("partial"), checkpoint_seconds=0.0)

    def stop(self: Any) -> None:
        raise InterruptedError

    with pytest.MonkeyPatch.context() as patched:
        also_save_shards(patched)
        patched.setattr(trainer._Training, "result", stop)
        with pytest.raises(InterruptedError):
            store.get(config(steps=2))
    (found,) = (store._partial(config(steps=2)) / "checkpoints").iterdir()
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_a_damaged_checkpoint_is_noticed(seed: int, checkpoint: Path, tmp_path: Path, tried: Tried) -> None:
    count = trials(2, 10)
    folder = copy(tmp_path, checkpoint)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    assert {path.name for path in files} >= {"history.pt", ".metadata", sums.FILE}
    for path in files:
        whole = path.read_bytes()
        for _ in damages(path, seed, count):
            if not checkpoints._damage(folder):
                assert path.name == sums.FILE
                assert path.read_text(errors="replace").split() == whole.decode().split()
        tried("damaged file of a checkpoint", count)
    assert checkpoints._damage(folder) == ""


def _tokens() -> object:
    lines = [f"line {number}" for number in range(50)]

    def encode(part: "pa.Array") -> Any:
        return np.frombuffer("".join(part.to_pylist()).encode(), np.uint8).astype(np.int32)

    tokens, tally = token_files.token_file("numbers", "1", lambda: [pa.array(lines)], encode)
    return tokens.tolist(), tally


def _examples() -> object:
    made = [examples.from_sequences([np.arange(n % 7 + 1) for n in range(40)], range(40), 300)]
    found, digest = examples.stored("numbers", "1", lambda: made)
    return found.tokens.tolist(), found.labels.tolist(), digest


def _features() -> object:
    path = cache.file_of("features", "1")
    cache.write_once(path, lambda partial: partial.write_bytes(bytes(range(256)) * 4))
    return path.read_bytes()


def _value() -> object:
    return cache.cached("value", "1", lambda: bytes(range(256)) * 4)


WRITERS: dict[str, tuple[Callable[[], object], str]] = {
    "a token file": (_tokens, "tokens/*.int32"),
    "the counts of a token file": (_tokens, "tokens/*.json"),
    "the tokens of examples": (_examples, "examples/*/tokens.bin"),
    "the labels of examples": (_examples, "examples/*/labels.npy"),
    "the digest of examples": (_examples, "examples/*/content.json"),
    "features": (_features, "features-1"),
    "the digest of features": (_features, "features-1.sha256"),
    "a value": (_value, "value-1"),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_what_is_damaged_in_the_cache_is_made_again_and_named(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tried: Tried
) -> None:
    monkeypatch.setenv("TRANSNORMER_CACHE", str(tmp_path))
    read, pattern = WRITERS[kind]
    expected, count = read(), trials(5, 100)
    (path,) = tmp_path.glob(pattern)
    whole = path.read_bytes()
    for number, _ in enumerate(damages(path, 0, count)):
        monkeypatch.setattr(cache, "_told", set())
        broken = path.read_bytes()
        assert read() == expected
        told = capsys.readouterr().err
        if path.read_bytes() == broken:  # it means the same: only space or a field's order in the JSON differs
            assert path.suffix == ".json"
            assert json.loads(broken) == json.loads(whole)
        else:
            assert told.endswith(": is damaged, or of an older version, and is made again\n"), f"trial {number}"
            assert told.count("\n") == 1
            assert path.read_bytes() == whole
    tried(f"damaged in the cache: {kind}", count)


def test_a_damaged_parquet_file_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tried: Tried
) -> None:
    monkeypatch.setenv("TRANSNORMER_CACHE", str(tmp_path / "cache"))
    path, count = tmp_path / "train.parquet", trials(5, 100)
    pq.write_table(pa.table({"text": [f"a text {number}" for number in range(200)]}), path)
    digest = fingerprints.verified(path)
    for _ in damages(path, 0, count):
        with pytest.raises(DataFault, match=r"train\.parquet: has sha256 .* \(recorded at first use\)"):
            fingerprints.verified(path)
    assert fingerprints.verified(path) == digest
    tried("damaged Parquet file", count)


@pytest.mark.parametrize("large", [False, True], ids=["a small file", "a large file"])
def test_a_bit_that_flips_under_the_same_size_and_time_is_noticed(
    large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tried: Tried
) -> None:
    """By the next process that reads the file; in a large file by ``transnormer data check``, which hashes again."""
    monkeypatch.setenv("TRANSNORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(fingerprints, "_checked", set())
    if large:
        monkeypatch.setattr(fingerprints, "_CHEAP", 100)
    path, draw, count = tmp_path / "data.bin", random.Random(0), trials(5, 100)
    path.write_bytes(whole := bytes(1000))
    digest, stat = fingerprints.verified(path), path.stat()
    for _ in range(count):
        place = draw.randrange(1000)
        path.write_bytes(whole[:place] + bytes([1 << draw.randrange(8)]) + whole[place + 1 :])
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        fingerprints._checked.clear()  # as a new process
        for _ in range(2):
            with pytest.raises(DataFault, match=r"data\.bin: has sha256 .* \(recorded at first use\)"):
                fingerprints.verified(path, rehash=large)
        if large:
            assert fingerprints.verified(path) == digest
    tried("bit flipped under the same size and time", count)


def test_a_damaged_fingerprint_never_stands_for_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tried: Tried
) -> None:
    monkeypatch.setenv("TRANSNORMER_CACHE", str(tmp_path / "cache"))
    path, count = tmp_path / "data.bin", trials(5, 100)
    path.write_bytes(bytes(1000))
    digest = fingerprints.verified(path)
    (record,) = (tmp_path / "cache" / "fingerprints").iterdir()
    whole = json.loads(record.read_text())
    for _ in damages(record, 0, count):
        monkeypatch.setattr(cache, "_told", set())
        broken = record.read_bytes()
        assert fingerprints.verified(path) == digest
        told = capsys.readouterr().err
        assert (
            told == f"{record}: is damaged, or of an older version, and is made again\n" or json.loads(broken) == whole
        )
    tried("damaged fingerprint", count)


@pytest.fixture
def report_dir(tmp_path: Path) -> Path:
    made = make_report(tmp_path)
    build_report(tmp_path, "quick", CLAIMS)
    return made


@pytest.mark.parametrize("name", [f"{THEORY}.ipynb", f"records/{THEORY}.json"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_damaged_notebook_or_record_is_named_and_never_judged(
    name: str, seed: int, report_dir: Path, tried: Tried
) -> None:
    def content() -> object:
        run = last_run(report_dir, THEORY)
        if run.executed is None:
            assert UNREADABLE.match(run.error or ""), run.error
            return None
        cells = [c for c in json.loads(run.executed.read_text())["cells"] if c["cell_type"] == "code"]
        return run.record, measurements(run.executed), [(c["source"], c["outputs"]) for c in cells]

    expected, count = content(), trials(5, 25)
    assert expected
    for _ in damages(report_dir / name, seed, count):
        # What is not noticed changes nothing that a page takes from the executed notebook, or only space.
        assert content() in (expected, None)
    tried("damaged notebook or record of a report", count)


PART = '{"cells": [{"cell_type": "code", "source": ["1"], "metadata": {"tags": ["parameters"]}}, %s]}'
NO_NOTEBOOKS = {
    "a list": "[]",
    "a number": "3",
    "no cells": "{}",
    "cells in a mapping": '{"cells": {"a": 1}}',
    "a cell that is none": PART % "3",
    "a cell without text": PART % '{"cell_type": "code"}',
    "a cell without type": PART % '{"source": ""}',
    "a text that is none": PART % '{"cell_type": "code", "source": 3}',
    "lines that are none": PART % '{"cell_type": "code", "source": [3]}',
    "metadata that are none": PART % '{"cell_type": "code", "source": "", "metadata": []}',
    "tags that are none": PART % '{"cell_type": "code", "source": "", "metadata": {"tags": 3}}',
    "deep": "[" * 10_000,
}


def planned(project: Project, capsys: pytest.CaptureFixture[str]) -> str | None:
    """The mistake that a report finds in a damaged notebook, which costs itself alone."""
    damaged, whole = pipeline.plan(project, "quick", ["01_a", "02_b"])
    assert whole.mistake is None
    shown = {fault.notebook for fault in build_report(project.root, "quick", []).failed}
    code = cli.main(["plan", "--root", str(project.root)])
    lines = capsys.readouterr().err.splitlines()
    assert (code, len(lines)) in ((0, 0), (2, 1))
    assert shown <= {"01_a"}
    return damaged.mistake


@pytest.mark.parametrize("kind", NO_NOTEBOOKS)
def test_a_source_that_is_no_notebook_costs_itself_alone(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = make_project(tmp_path, {"01_a": ["size"], "02_b": ["size"]})
    project.notebook_path("01_a").write_text(NO_NOTEBOOKS[kind])
    mistake = planned(project, capsys)
    assert mistake == "notebooks/01_a.ipynb: must be a notebook, JSON whose cells have a type and a text"


def test_a_damaged_source_notebook_costs_itself_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tried: Tried
) -> None:
    monkeypatch.setattr(plan, "measure_device", lambda gpu: plan.Device("a device", 1e9))
    cells = ["from transnormer_lib.studies import common\ncommon, size", "%time size"]
    project, count = make_project(tmp_path, {"01_a": cells, "02_b": ["size"]}), trials(20, 300)
    for _ in damages(project.notebook_path("01_a"), 0, count):
        mistake = planned(project, capsys)
        assert mistake is None or re.match(r"(notebooks/)?01_a(\.ipynb)?: [^\n]+$", mistake)
    tried("damaged source notebook", count)


@pytest.mark.parametrize("name", ["claims.json", "SHA256SUMS"])
def test_damaged_claims_are_refused_by_name_and_written_again(
    name: str, report_dir: Path, capsys: pytest.CaptureFixture[str], tried: Tried
) -> None:
    root, count = report_dir.parents[1], trials(5, 100)
    whole = (report_dir / "claims.json").read_bytes()
    for _ in damages(report_dir / name, 0, count):
        code = cli.main(["claims", "--root", str(root)])
        told = capsys.readouterr().err
        if code == 0:  # damage to the line of another file
            assert name == "SHA256SUMS"
            assert told == ""
            continue
        assert code == 2
        (line,) = told.splitlines()
        assert line.startswith("transnormer: reports/quick: ")
        assert line.endswith("; write it again: transnormer report --preset quick")
    (report_dir / "claims.json").write_bytes(whole[:-5])
    build_report(root, "quick", CLAIMS)
    assert (report_dir / "claims.json").read_bytes() == whole
    assert Project(root).report_dir("quick") == report_dir
    tried("damaged claims.json", count)


@pytest.mark.parametrize("name", ["09_ablations.json", "records.json.gz"])
def test_damaged_evidence_is_named_and_does_not_count(name: str, tmp_path: Path, tried: Tried) -> None:
    folder, count = tmp_path / "reports" / "kept" / "night", trials(5, 100)
    shutil.copytree(find_project().root / "reports" / "kept" / "night", folder)

    def read() -> object:
        if name == "records.json.gz":
            return carried.read(folder / name, RunStore(tmp_path / "runs"))
        return kept.read("night", name.removesuffix(".json"), Project(tmp_path))

    for _ in damages(folder / name, 0, count):
        with pytest.raises((UserMistake, ValueError), match=rf"{name} is not what was written"):
            read()
    assert not (tmp_path / "runs").exists()
    tried("damaged kept evidence", count)
