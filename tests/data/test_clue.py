"""CLUE's tasks: from the columns of the Hub's tables to texts, with toy tables and the sample of a data root."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chinese_data import PLACES, needs_chinese, reading_rows, write_reading_tables

from transnormer_lib.data import clue, hub, tasks
from transnormer_lib.data.faults import DataFault
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


def test_an_answer_of_c3_is_chosen_among_its_own_two_to_four() -> None:
    rows = clue.answers_to_choose(batch(**reading_rows("c3", 3)))
    assert rows.texts[0] == "男：你去哪儿？\n女：我去北京。"
    assert rows.candidates[0] == ["女的去哪儿？\n北京", "女的去哪儿？\n上海"]
    assert [len(candidates) for candidates in rows.candidates] == [2, 3, 4]
    right = [candidates[label] for candidates, label in zip(rows.candidates, rows.labels, strict=True)]
    assert right == [f"女的去哪儿？\n{place}" for place in ("北京", "上海", "南京")]


def test_every_gap_of_chid_is_an_example_with_its_own_mark_and_all_idioms() -> None:
    rows = clue.idioms_to_choose(batch(**reading_rows("chid", 2)))
    assert list(rows.texts[:3]) == ["先到____，再到...。", "先到...，再到____。", "后来____。"]
    assert [text[centre : centre + 4] for text, centre in zip(rows.texts, rows.centres, strict=True)] == ["____"] * 6
    assert rows.candidates == [list(PLACES)] * 6
    assert rows.labels.tolist() == [0, 3, 7, 1, 4, 8]


def test_a_question_of_cmrc_has_its_references_with_their_places() -> None:
    rows = clue.spans_to_mark(batch(**reading_rows("cmrc2018", 1)))
    assert (rows.questions, rows.passages) == (["小明住在哪里？"], ["小明住在北京。"])
    assert rows.answers == [[(4, "北京"), (3, "在北京")]]


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("c3", {"answer": ["巴黎"]}, "clue/clue/c3: answer '巴黎': must be one of '北京', '上海'"),
        ("chid", {"content": [["没有#idiom1#"]]}, "clue/clue/chid: 1 gaps: must be as many as 3 answers"),
        (
            "cmrc2018",
            {"answers": [{"text": [""], "answer_start": [0]}]},
            "clue/clue/cmrc2018: question '小明住在哪里？'",
        ),
    ],
    ids=["no-such-answer", "gaps", "empty-answer"],
)
def test_a_row_that_cannot_be_asked_is_named(name: str, changed: dict, message: str) -> None:
    makers = {"c3": clue.answers_to_choose, "chid": clue.idioms_to_choose, "cmrc2018": clue.spans_to_mark}
    with pytest.raises(DataFault, match=message):
        makers[name](batch(**reading_rows(name, 1) | changed))


@pytest.fixture
def reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_reading_tables(tmp_path)
    monkeypatch.setenv("TRANSNORMER_DATA_ROOT", str(tmp_path))
    monkeypatch.setenv("TRANSNORMER_CACHE", str(tmp_path / "cache"))
    tasks._load.cache_clear()


@pytest.mark.parametrize(
    ("name", "kind", "examples", "sizes"),
    [("c3", "choice", 12, {2, 3, 4}), ("chid", "choice", 36, {10}), ("cmrc2018", "span", 12, {1})],
)
@pytest.mark.usefixtures("reading")
def test_the_tables_of_the_reading_tasks_become_groups(name: str, kind: str, examples: int, sizes: set[int]) -> None:
    task = load_task(name)
    train = task.splits["train"]
    assert (task.kind, len(train), set(train.sizes.tolist())) == (kind, examples, sizes)
    assert task.notes  # a sample: the published table has more rows


@pytest.mark.usefixtures("reading")
def test_of_texts_with_several_gaps_no_limit_can_be_taken() -> None:
    with pytest.raises(ValueError, match=r"limit=.*: a row of task 'chid' holds several examples; it is read whole"):
        load_task("chid", limit={"train": 5})


@pytest.mark.usefixtures("reading")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocabulary": "bpe-300"}, "vocabulary='bpe-300': task 'cmrc2018' marks characters; must be"),
        ({"length": 1}, "length=1: must be a whole number of at least 2"),
    ],
    ids=["byte-pairs", "no-room"],
)
def test_a_span_cannot_be_marked_in_every_way(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_task("cmrc2018", **options)


def test_every_task_of_table_5_has_a_loader_and_its_data_on_the_hub() -> None:
    names = {task.name for task in clue.TASKS}
    assert len(names) == 9
    assert all(f"{clue.REPOSITORY}/{name}" in hub.DATASETS for name in names)


@pytest.mark.parametrize("name", [task.name for task in clue.TASKS if task.kind == "label"])
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
