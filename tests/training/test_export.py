"""An exported run is the model that was trained, with its vocabulary and a card from its record."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from training_cases import classifier, config, fake_task

from transnormer_lib.cli import main
from transnormer_lib.models.classifier import Classifier
from transnormer_lib.models.language_model import LanguageModel
from transnormer_lib.models.text import stream
from transnormer_lib.training.export import export
from transnormer_lib.training.store import RunStore
from transnormer_lib.training.stored_run import Run

PARTS = {"README.md", "SHA256SUMS", "config.json", "model.safetensors"}


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    return RunStore(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module", params=["bytes", "bpe-300"])
def run(request: pytest.FixtureRequest, store: RunStore, tmp_path_factory: pytest.TempPathFactory) -> Run:
    text = tmp_path_factory.mktemp("text") / "tale.txt"
    text.write_text("".join(f"Once upon a time there was a number {n}, and it grew.\n\n" for n in range(300)))
    base, pieces = config(steps=2, measured_at_end=("test",)), {"bytes": 258, "bpe-300": 302}[request.param]
    run = store.get(
        replace(
            base,
            name=request.param,
            model=replace(base.model, vocab_size=pieces),
            data=replace(base.data, corpus=str(text), vocabulary=request.param),
        )
    )
    text.unlink()  # whoever loads the model does not have it
    return run


def test_an_exported_model_writes_what_its_run_writes_in_a_fresh_process(run: Run, tmp_path: Path) -> None:
    export(run, tmp_path / "model")
    code = (
        "from transnormer_lib.models.language_model import LanguageModel\n"
        "from transnormer_lib.models.text import stream\n"
        "model = LanguageModel.from_pretrained('model')\n"
        "print(ascii(''.join(stream(model, 'Once ', 60, seed=4))))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ascii(run.generate("Once ", 60, seed=4))


def test_exporting_twice_gives_equal_bytes(run: Run, tmp_path: Path) -> None:
    for name in ("first", "second"):
        export(run, tmp_path / name)
    first = content(tmp_path / "first")
    assert set(first) == PARTS | ({"tokenizer.json"} if run.config.name == "bpe-300" else set())
    assert content(tmp_path / "second") == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "second"]


def test_the_card_says_what_the_record_says(run: Run, tmp_path: Path) -> None:
    export(run, tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    made, data = run.record["provenance"], run.record["data"][run.config.data.source]
    for fact in (
        f"# {run.config.name}",
        f"{run.parameters:,} parameters",
        f"{run.validation['bits_per_byte']:.4g}",
        f"{run.record['at_end']['test']['bits_per_byte']:.4g}",
        f"2 steps of 4 sequences, {run.record['tokens']:,} tokens",
        made["device"],
        made["versions"]["torch"],
        made["commit"] or "unknown",
        data,
        "pipeline_tag: text-generation",
        "whose licence is not known to the library",
        "## Limits",
    ):
        assert fact in card


def test_the_code_on_the_card_loads_the_model(run: Run, tmp_path: Path) -> None:
    export(run, tmp_path / "model")
    (code,) = re.findall(r"```python\n(.*?)```", (tmp_path / "model" / "README.md").read_text(), re.DOTALL)
    environment = os.environ | {"PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path / "model", env=environment, capture_output=True, check=True)
    assert done.stdout.decode() == run.generate("The ", 100)


def test_a_known_text_brings_its_licence(store: RunStore, tmp_path: Path) -> None:
    export(store.get(config(steps=2)), tmp_path / "model")
    assert "whose licence is CC BY-SA 3.0 and GFDL." in (tmp_path / "model" / "README.md").read_text()


def test_a_classifier_is_exported_too(store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_task(monkeypatch)
    run = store.get(classifier(steps=2))
    export(run, tmp_path / "model")
    loaded = Classifier.from_pretrained(tmp_path / "model")
    assert loaded.whole_config() == run.model().whole_config()
    with pytest.raises(ValueError, match="kind='encoder': only a decoder writes text"):
        stream(loaded, "The ")  # type: ignore[arg-type]


def test_a_model_without_a_vocabulary_writes_no_text(run: Run, tmp_path: Path) -> None:
    model = run.model()
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="vocabulary=None: the model knows ids and no text"):
        stream(LanguageModel.from_pretrained(tmp_path), "The ")


def test_the_command_exports_and_names_the_files(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "below" / "model"
    assert main(["export", run.config.name, str(folder), "--store", str(run.path.parent)]) == 0
    assert capsys.readouterr().out == f"exported: {', '.join(sorted(content(folder)))} in {folder}\n"


@pytest.mark.parametrize(
    ("name", "folder", "message"),
    [
        ("no-such-run", "model", "run='no-such-run': no such run in"),
        ("bytes", ".", "exists; name a new one"),
        ("bytes", "file", "exists; name a new one"),
        ("bytes", "file/model", "File exists"),
    ],
    ids=["an unknown run", "a folder that exists", "a file", "below a file"],
)
def test_a_mistake_is_one_line_and_exit_code_two(
    name: str, folder: str, message: str, store: RunStore, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    capsys.readouterr()
    named = str(run.path) if name == "bytes" else name
    assert main(["export", named, str(tmp_path / folder), "--store", str(store.root)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("transnormer: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(("file", "message"), [("record.json", "is not what was written"), ("model.safetensors", "")])
def test_a_damaged_run_is_not_exported(
    file: str, message: str, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / run.path.name
    shutil.copytree(run.path, copy)
    with (copy / file).open("ab") as damaged:
        damaged.write(b" ")
    assert main(["export", str(copy), str(tmp_path / "model")]) == 1
    error = capsys.readouterr().err
    assert f"{file} {message}" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "model").exists()


def test_a_run_that_did_not_finish_is_not_exported(run: Run, tmp_path: Path) -> None:
    failed = Run(run.path, run.config, run.record | {"status": "diverged"})
    with pytest.raises(RuntimeError, match="diverged after 2 steps"):
        export(failed, tmp_path / "model")
    assert not (tmp_path / "model").exists()
