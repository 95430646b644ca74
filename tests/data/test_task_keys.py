"""Which code the kept examples of a task depend on."""

from pathlib import Path
from types import ModuleType

import pytest

from transnormer_lib.data import (
    cache,
    chunks,
    examples,
    glue,
    listops,
    lra,
    pathfinder,
    sentences,
    sequences,
    tables,
    task_kinds,
    task_tables,
    tasks,
    vocabulary,
    wikipedia,
)
from transnormer_lib.data.tasks import load_task


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "module"),
    [
        *(
            (name, module)
            for name in ("listops", "pathfinder")
            for module in (lra, chunks, examples, task_kinds, tasks)
        ),
        ("listops", listops),
        ("pathfinder", pathfinder),
        ("sentence-order", sentences),
        ("sentence-order", wikipedia),
        ("sentence-order", vocabulary),
        ("digits", lra),
        ("cola", glue),
        ("cola", sequences),
        ("cola", task_tables),
        ("cola", tables),
        ("cola", vocabulary),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__.split(".")[-1],
)
def test_an_edit_of_the_code_that_decides_the_bytes_makes_them_anew(
    name: str, module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path / "nyu-mll/glue/cola"
    folder.mkdir(parents=True)
    for split in ("train", "validation"):
        pq.write_table(pa.table({"sentence": ["a"], "label": [1]}), folder / f"{split}-00000-of-00001.parquet")
    monkeypatch.setenv("TRANSNORMER_DATA_ROOT", str(tmp_path))
    keys: list[str] = []

    class Stop(Exception):
        pass

    def stored(_name: str, key: str, _make: object) -> None:
        keys.append(key)
        raise Stop

    monkeypatch.setattr(examples, "stored", stored)
    for edited in (None, module.__file__, None):
        monkeypatch.setattr(cache, "code_version", lambda file, edited=edited: str(file == edited))
        sentences._source.cache_clear()
        with pytest.raises(Stop):
            load_task(name)
    sentences._source.cache_clear()
    assert keys[0] == keys[2] != keys[1]
