"""CLUE's tasks: from the columns of the Hub's tables to texts, with toy tables and the sample of a data root."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chinese_data import needs_chinese

from transnormer_lib.data import clue, hub
from transnormer_lib.data.tasks import load_task, task_definition
from transnormer_lib.data.vocabulary import ByteVocabulary


def batch(**columns: list) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_the_keywords_of_csl_come_before_the_abstract() -> None:
    rows = clue.keywords_first(batch(keyword=[["水声 ", "信道"], ["好"]], abst=["摘要一", " 摘要二"], label=[1, 0]))
    assert (list(rows.first), list(rows.second or [])) == (["水声；信道", "好"], ["摘要一", "摘要二"])
    assert rows.labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("noun", "pronoun", "marked"),
    [(0, 3, "[小明]说_他_累"), (3, 0, "_小明_说[他]累")],
    ids=["noun-first", "pronoun-first"],
)
def test_the_noun_and_the_pronoun_of_wsc_are_marked_in_either_order(noun: int, pronoun: int, marked: str) -> None:
    text, length = "小明说他累", {0: 2, 3: 1}
    target = {
        "span1_text": text[noun : noun + length[noun]], "span1_index": noun,
        "span2_text": text[pronoun : pronoun + length[pronoun]], "span2_index": pronoun,
    }  # fmt: skip
    assert clue.spans_marked(batch(text=[text], target=[target], label=[0])).first == [marked]


def test_every_task_of_table_5_has_a_loader_or_a_reason_and_its_data_on_the_hub() -> None:
    names = {task.name for task in clue.TASKS} | set(clue.ABSENT)
    assert len(names) == 9
    assert all(f"{clue.REPOSITORY}/{name}" in hub.DATASETS for name in names)
    assert not {task.name for task in clue.TASKS} & set(clue.ABSENT)


@pytest.mark.parametrize("name", [task.name for task in clue.TASKS])
def test_a_table_as_the_hub_has_it_becomes_a_task(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    definition = task_definition(name)
    target = {"span1_text": "小明", "span1_index": 0, "span2_text": "他", "span2_index": 3}
    values = {"keyword": ["水声"], "target": target}
    folder = tmp_path / hub.DATASETS[definition.source].repository / name
    folder.mkdir(parents=True)
    for split in ("train", "validation"):
        table = {
            column.name: [n % definition.classes for n in range(12)]
            if column.kind == "label"
            else [values.get(column.name, "小明说他累")] * 12
            for column in hub.DATASETS[definition.source].columns
        }
        pq.write_table(pa.table(table), folder / f"{split}-00000-of-00001.parquet")
    monkeypatch.setenv("TRANSNORMER_DATA_ROOT", str(tmp_path))
    monkeypatch.setenv("TRANSNORMER_CACHE", str(tmp_path / "cache"))
    task = load_task(name, joined=definition.pairs)
    assert (len(task.splits["validation"]), task.classes, task.metrics) == (12, definition.classes, ("accuracy",))
    assert "小明" in ByteVocabulary().decode(task.splits["train"].sequence(0)) or name == "csl"


@needs_chinese
def test_the_real_tnews_has_fifteen_balanced_sections_where_it_is_there(real_root: Path) -> None:
    if not (real_root / "clue/clue/tnews").is_dir():
        pytest.skip("the data root has no TNEWS")
    task = load_task("tnews", "chars-2000", 48, corpus="reviews")
    counts = np.bincount(task.splits["train"].labels, minlength=15)
    assert counts.min() > 0.5 * counts.mean()
    assert task.splits["train"].lengths.max() <= 48
