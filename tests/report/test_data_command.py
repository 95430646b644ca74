"""``transnormer data``: what a preset needs, where it is, and what is wrong with it."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from transnormer_lib.cli import main
from transnormer_lib.data import hub, wikitext
from transnormer_lib.data.tasks import task_names
from transnormer_lib.project import find_project
from transnormer_lib.report import data
from transnormer_lib.report.data import needs

SST2 = "nyu-mll/glue/sst2"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with two notebooks, a data root that holds a little SST-2, an empty cache, no network."""
    from huggingface_hub import constants

    notebooks = {
        "01_words": "corpus: str = 'wikipedia'\nvocabulary: str = 'bytes'",
        "02_tasks": "tasks: list[str] = ['sst2', 'listops']\ncorpus: str = 'wikipedia'",
    }
    (tmp_path / "notebooks").mkdir()
    for name, source in notebooks.items():
        cell = {"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": source, "id": "p"}
        cell |= {"execution_count": None, "outputs": []}
        (tmp_path / "notebooks" / f"{name}.ipynb").write_text(
            json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
        )
    for preset in ("quick", "paper"):
        folder = tmp_path / "params" / preset
        folder.mkdir(parents=True)
        (folder / "preset.yaml").write_text(
            f"scale: {preset}\ndescription: A test.\ndevice: cpu\nthreads: 1\n"
            "minutes_per_notebook: 1\nruns_per_job: 1\n"
        )
    (tmp_path / "params/paper/01_words.yaml").write_text("corpus: wikitext-103\nvocabulary: gpt2-bpe\n")
    put(tmp_path / "data", "train", ["good", "bad"], [1, 0])
    put(tmp_path / "data", "validation", ["good"], [1])
    monkeypatch.setenv("TRANSNORMER_DATA_ROOT", str(tmp_path / "data"))
    monkeypatch.setenv("TRANSNORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path


def needed(root: Path, **values: object) -> set[str]:
    """What notebook 01 needs where its parameters are these."""
    cell = {"cell_type": "code", "metadata": {"tags": ["parameters"]}, "id": "p", "execution_count": None}
    cell |= {
        "outputs": [],
        "source": "\n".join(f"{name}: {_type(value)} = {value!r}" for name, value in values.items()),
    }
    (root / "notebooks" / "01_words.ipynb").write_text(
        json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    )
    return set(needs(find_project(root), "quick", ["01_words"]))


def _type(value: object) -> str:
    return "str" if isinstance(value, str) else "list[str]"


def put(data: Path, split: str, sentences: list[str], labels: list[int]) -> None:
    path = data / SST2 / f"{split}-00000-of-00001.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"sentence": sentences, "label": labels}), path)


def test_a_preset_needs_what_its_parameters_name(root: Path) -> None:
    project = find_project(root)
    notebooks = project.notebooks
    assert needs(project, "quick", notebooks) == {"wikipedia": ("01_words", "02_tasks"), SST2: ("02_tasks",)}
    assert needs(project, "paper", ["01_words"]) == {
        wikitext.RAW: ("01_words",),
        hub.GPT2.repository: ("01_words",),
    }


GENERATED = {"listops", "trees-512", "pathfinder"}


@pytest.mark.parametrize("name", sorted({*task_names()} - GENERATED))
def test_every_task_that_is_not_generated_needs_something(name: str, root: Path) -> None:
    found = needed(root, task=name)
    assert found
    assert found <= {"wikipedia", "mnist-5k", "reviews-negative", "reviews-positive", *hub.DATASETS}


def test_a_corpus_of_speech_needs_its_data_set(root: Path) -> None:
    assert needed(root, corpus="librispeech-clean-100") == {"openslr/librispeech_asr/clean"}


def test_a_generated_task_needs_nothing(root: Path) -> None:
    assert needed(root, tasks=sorted(GENERATED)) == set()


@pytest.mark.parametrize(
    ("values", "beside"),
    [
        ({"vocabulary": "bytes"}, set()),
        ({"vocabulary": "bpe-512"}, {"wikipedia"}),
        ({"vocabulary": "gpt2-bpe"}, {wikitext.RAW, hub.GPT2.repository}),
        ({"vocabulary": "bpe-512", "corpus": "wikitext-103"}, {wikitext.RAW}),
        ({"base_vocabulary": "gpt2-bpe", "base_corpus": "wikitext-103"}, {wikitext.RAW, hub.GPT2.repository}),
        ({"base_vocabulary": "bpe-512", "base_corpus": "wikipedia"}, {"wikipedia"}),
    ],
)
def test_a_task_of_free_text_needs_what_its_byte_pairs_are_learned_on(values: dict, beside: set, root: Path) -> None:
    assert needed(root, task="sst2", **values) == {SST2, *beside}


def test_where_the_data_root_has_word_level_text_alone_it_is_listed_checked_and_not_fetched(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for split in ("train", "validation", "test"):
        path = root / "data" / wikitext.WORD_LEVEL / f"{split}-00000-of-00001.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"text": [" a line \n"]}), path)
    (root / "params/paper/01_words.yaml").write_text("corpus: wikitext-103\nvocabulary: bpe-512\n")
    options = ["--preset", "paper", "--root", str(root), "--only", "01"]
    assert main(["data", "list", *options]) == 0
    listed = capsys.readouterr().out
    assert "3 of 3 here" in listed
    assert listed.count(f"{wikitext.WORD_LEVEL}: word-level text, also stands in for {wikitext.RAW}") == 1
    assert main(["data", "fetch", *options]) == 0
    assert main(["data", "check", *options]) == 0


def test_the_listing_says_where_each_split_is_its_size_licence_and_fingerprint(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "list", "--preset", "quick", "--root", str(root), "--json"]) == 0
    rows = {(row["name"], row["split"]): row for row in json.loads(capsys.readouterr().out)}
    assert rows["wikipedia", ""]["place"] == "embedded"
    assert rows[SST2, "train"]["place"] == "data root"
    assert len(rows[SST2, "train"]["fingerprint"]) == 64
    assert all(row["licence"] and row["bytes"] and row["needed_by"] for row in rows.values())
    assert main(["data", "list", "--preset", "paper", "--root", str(root)]) == 0
    listed = capsys.readouterr().out
    assert f"absent     {wikitext.RAW} train" in listed
    assert "314 MB" in listed
    assert f"at {hub.GPT2.revision[:12]}" in listed


def test_every_data_set_is_listed_without_a_preset(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "list", "--root", str(root)]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in (*hub.DATASETS, hub.GPT2.repository, "wikipedia", "mnist-5k"))


def test_a_check_reads_everything_and_fails_for_what_is_wrong_or_lacking(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["data", "check", "--preset", "quick", "--root", str(root)]
    assert main(command) == 0
    assert "2 rows of 67,349 published from the data root" in capsys.readouterr().out
    put(root / "data", "train", ["good", "bad"], [1, 5])
    assert main(command) == 1
    assert "has sha256" in capsys.readouterr().err
    assert main([*command, "--accept"]) == 1
    assert "row 1, column 'label': expected a label in 0…1, found 5" in capsys.readouterr().err
    put(root / "data", "train", ["good", "bad"], [1, 1])
    assert main([*command, "--accept"]) == 0
    assert main(["data", "check", "--preset", "paper", "--root", str(root), "--only", "01"]) == 1


def test_a_check_finds_what_is_no_picture(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = root / "data" / "uoft-cs/cifar10/plain_text"
    folder.mkdir(parents=True)
    for split in ("train", "test"):
        table = pa.table({"img": [{"bytes": b"no picture", "path": ""}], "label": [1]})
        pq.write_table(table, folder / f"{split}-00000-of-00001.parquet")
    needed(root, task="image")
    assert main(["data", "check", "--preset", "quick", "--root", str(root), "--only", "01"]) == 1
    assert "row 0, column 'img': expected a 32 × 32 PNG or JPEG" in capsys.readouterr().err


def test_what_cannot_be_fetched_is_told_and_fails(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "fetch", "--preset", "quick", "--root", str(root)]) == 0
    assert main(["data", "fetch", "--preset", "paper", "--root", str(root)]) == 1
    assert "HF_HUB_OFFLINE forbids fetching it" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["fetch", "check"])
def test_an_interrupted_fetch_says_how_to_go_on(
    what: str, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(data, what, interrupted)
    assert main(["data", what, "--root", str(root)]) == 130
    goes_on = "; what is finished is kept, and the same command goes on from there" if what == "fetch" else ""
    assert capsys.readouterr().err == f"data: interrupted{goes_on}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fetch", "--json"], "json: belongs to data list"),
        (["list", "--accept"], "accept: belongs to data check"),
        (["list", "--only", "01"], "only: needs --preset"),
        (["list", "--preset", "huge"], "preset='huge': unknown"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], message: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", *arguments, "--root", str(root)]) == 2
    assert message in capsys.readouterr().err


def test_a_data_root_that_is_no_folder_is_a_mistake(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRANSNORMER_DATA_ROOT", str(root / "nowhere"))
    assert main(["data", "list", "--root", str(root)]) == 2
    assert "expected a folder" in capsys.readouterr().err
