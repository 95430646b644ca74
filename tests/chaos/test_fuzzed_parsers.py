"""Every reader of files, given bytes that nobody wrote: what the file means, nothing, or one line that names it."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from chaos_trials import Tried, cases
from hypothesis import given
from mutations import broken, spoiled
from project_factory import CHECKOUT
from refusals import Refused, outcome
from report_factory import CLAIMS, record_json
from training_cases import config

from transnormer_lib.data.hub import Column
from transnormer_lib.data.own_text import documents
from transnormer_lib.data.tables import read_batches
from transnormer_lib.files import read_object, read_yaml
from transnormer_lib.ledger import kept
from transnormer_lib.ledger.judging import Run, judge_claims, last_run, read_judged, read_notebook
from transnormer_lib.models.architectures import architecture
from transnormer_lib.models.generation import Generation
from transnormer_lib.models.language_model import LanguageModel, build_model
from transnormer_lib.project import Project
from transnormer_lib.training import carried
from transnormer_lib.training.store import RunStore

Reader = Callable[[Path], Any]


def _tried(kind: str, sound: bytes, path: Path, read: Reader, tried: Tried, full: int = 400) -> list[Any]:
    """The outcomes of ``read`` on broken forms of ``sound``, written to ``path``."""
    found: list[Any] = []

    @cases(20, full, kind, path.name)
    @given(content=broken(sound))
    def one(content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        found.append(outcome(lambda: read(path)))

    one()
    tried(kind, len(found))
    return found


KEPT = CHECKOUT / "reports" / "kept" / "night" / "09_ablations.json"
CLAIMS_JSON = json.dumps(
    [
        {"id": f"c{n}", "notebook": "01_a", "locus": "Eq. 9", "verdict": "trend", "scale": "quick", "measured": n}
        | {"reason": "é", "seeds": [0], "source": "run", "anchor": "#"}
        for n in range(4)
    ]
).encode()


def test_yaml_is_a_value_or_refused_by_the_files_name(tmp_path: Path, tried: Tried) -> None:
    sound = b"a: &one {b: 1.0e-3, c: [1, 2]}\n? d\n: {<<: *one, e: 'x'}\nf: |\n  text\n  more\n"
    for line in _tried("YAML", sound, tmp_path / "mine.yaml", read_yaml, tried, 1500):
        assert not isinstance(line, Refused) or "mine.yaml: " in line


def test_a_json_object_is_read_or_counts_as_missing(tmp_path: Path, tried: Tried) -> None:
    sound = json.dumps(record_json("01_a")).encode()
    found = _tried("JSON", sound, tmp_path / "x.json", read_object, tried, 800)
    assert all(one is None or isinstance(one, dict) for one in found)


def test_judged_claims_are_read_or_refused(tmp_path: Path, tried: Tried) -> None:
    for found in _tried("a claims.json", CLAIMS_JSON, tmp_path / "quick" / "claims.json", read_judged, tried):
        assert "claims.json" in found if isinstance(found, Refused) else isinstance(found, list)


def test_a_kept_result_is_read_or_refused(tmp_path: Path, tried: Tried) -> None:
    whole = json.loads(KEPT.read_bytes())
    small = json.dumps({**whole, "claims": whole["claims"][:2], "runs": whole["runs"][:1]} | {"exhibits": []}).encode()
    path = kept.folder(Project(tmp_path)) / "night" / "09_ablations.json"
    (tmp_path / "notebooks").mkdir()
    found = _tried(
        "a kept result", small, path, lambda _: kept.larger("quick", "09_ablations", Project(tmp_path)), tried
    )
    assert all("09_ablations.json" in one for one in found if isinstance(one, Refused))


@pytest.mark.parametrize("file", ["01_theory.ipynb", "records/01_theory.json"])
def test_a_report_is_judged_whatever_its_files_hold(file: str, tmp_path: Path, tried: Tried) -> None:
    import nbformat
    from report_factory import MEASURED, THEORY
    from report_factory import executed_notebook as executed

    path = tmp_path / "01_theory.ipynb"
    nbformat.write(executed(THEORY, MEASURED[THEORY]), path)
    record = tmp_path / "records" / "01_theory.json"
    record.parent.mkdir()
    record.write_text(json.dumps(record_json(THEORY)))
    sound = (tmp_path / file).read_bytes()

    def judged(_: Path) -> Any:
        assert isinstance(last_run(tmp_path, THEORY), Run)
        read_notebook(path)
        return judge_claims(tmp_path, "quick", CLAIMS, [THEORY], [])

    for found in _tried("a file of a report", sound, tmp_path / file, judged, tried, 300):
        assert [claim["id"] for claim in found.claims]


def test_carried_records_are_read_or_refused(tmp_path: Path, tried: Tried) -> None:
    store = RunStore(tmp_path / "runs", checkpoint_seconds=1e9)
    path = tmp_path / "runs.json.gz"
    carried.write([store.get(config(steps=1, validation_windows=1))], path)
    text, packed = gzip.decompress(path.read_bytes()), path.read_bytes()
    other = RunStore(tmp_path / "other")
    _tried("carried records", packed, path, lambda file: carried.read(file, other), tried, 200)

    def packed_first(file: Path) -> tuple[int, int]:
        file.write_bytes(gzip.compress(file.read_bytes(), mtime=0))
        return carried.read(file, other)

    _tried("carried records", text, path, packed_first, tried, 200)


def test_a_stored_run_is_whole_or_counts_as_missing(tmp_path: Path, tried: Tried) -> None:
    store = RunStore(tmp_path / "runs", checkpoint_seconds=1e9)
    run = store.get(config(steps=1, validation_windows=1))
    for file in sorted(path.name for path in run.path.iterdir()):
        sound = (run.path / file).read_bytes()
        for found in _tried("a stored run's file", sound, run.path / file, lambda _: store.find(run.config), tried, 60):
            assert found is None or found.record == run.record
        (run.path / file).write_bytes(sound)
    assert store.find(run.config) is not None


def test_a_saved_generation_goes_on_or_is_refused(tmp_path: Path, tried: Tried) -> None:
    shape: dict[str, Any] = {"vocab_size": 19, "max_length": 24, "dim": 16, "heads": 2, "layers": 2, "block_size": 5}
    model = build_model(architecture("transnormer-t2", kind="decoder", **shape), seed=1).eval()
    path = tmp_path / "generation.safetensors"
    Generation(model, [torch.tensor([1, 2, 3])], 4).save(path)
    _tried("a saved generation", path.read_bytes(), path, lambda file: list(Generation.load(file, model)), tried)


def test_a_shared_model_is_loaded_or_refused(tmp_path: Path, tried: Tried) -> None:
    shape: dict[str, Any] = {"vocab_size": 19, "max_length": 24, "dim": 16, "heads": 2, "layers": 1, "block_size": 5}
    model = build_model(architecture("transnormer-t2", kind="decoder", **shape), seed=1)
    model.save_pretrained(tmp_path / "model")
    for file in sorted(path.name for path in (tmp_path / "model").iterdir()):
        path = tmp_path / "model" / file
        sound = path.read_bytes()
        _tried(
            "a shared model's file", sound, path, lambda _: LanguageModel.from_pretrained(tmp_path / "model"), tried, 60
        )
        path.write_bytes(sound)


COLUMNS = [Column("sentence", "text"), Column("label", "label", labels=(0, 1))]


@pytest.mark.parametrize("kind", ["tsv", "parquet"])
def test_rows_of_data_are_read_or_the_file_is_named(kind: str, tmp_path: Path, tried: Tried) -> None:
    path = tmp_path / f"train-00000-of-00001.{kind}"
    names = ("sentence", "label") if kind == "tsv" else ()
    if kind == "tsv":
        path.write_text("A sentence.\t1\nAnother, é.\t0\n" * 20, encoding="utf-8")
    else:
        table = pa.table({"sentence": [f"A sentence {n}." for n in range(40)], "label": [n % 2 for n in range(40)]})
        pq.write_table(table, path)

    def read(file: Path) -> int:
        return sum(batch.num_rows for batch in read_batches(file, COLUMNS, names, rows=8))

    for found in _tried(f"rows of a .{kind} file", path.read_bytes(), path, read, tried, 800):
        assert str(path) in found if isinstance(found, Refused) else found >= 0


@pytest.mark.parametrize("suffix", [".txt", ".jsonl"])
def test_a_text_of_ones_own_is_split_or_the_file_is_named(suffix: str, tmp_path: Path, tried: Tried) -> None:
    path = tmp_path / f"mine{suffix}"
    lines = [f"Paragraph {n}, é." for n in range(25)]
    text = "\n\n".join(lines) if suffix == ".txt" else "\n".join(json.dumps({"text": line}) for line in lines)
    full = 600 if suffix == ".txt" else 60  # the other's reader starts anew for every file
    for found in _tried("a text of one's own", text.encode(), path, lambda file: documents(str(file)), tried, full):
        assert str(path) in found if isinstance(found, Refused) else all(found.values())


def test_claims_json_of_another_form_is_refused(tmp_path: Path, tried: Tried) -> None:
    count, path = 0, tmp_path / "claims.json"

    @cases(20, 200)
    @given(judged=spoiled(json.loads(CLAIMS_JSON)))
    def one(judged: Any) -> None:
        nonlocal count
        count += 1
        path.write_text(json.dumps(judged))
        found = outcome(lambda: read_judged(path))
        assert isinstance(found, Refused) or all(isinstance(entry, dict) for entry in found)

    one()
    tried("a claims.json", count)
