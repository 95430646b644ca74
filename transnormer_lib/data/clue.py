"""CLUE's tasks (Xu et al. 2020) that a classifier of sequences carries: six of the nine in Table 5 of the GAU paper.

Scores are accuracies on the validation split; CLUE's server keeps the labels of the test splits. A pair of texts is
read as one sequence with a newline between the two (``load_task(..., joined=True)``), as elsewhere here.

- CSL asks whether all of a paper's keywords are real ones. They are joined by semicolons, before the abstract, so that
  cutting a long abstract does not cut them.
- WSC asks whether a pronoun means a noun of the text. The noun is put in square brackets, the pronoun between
  underscores. As on the Hub, label 0 is "true".

The other three need more than one label per sequence, which this library's classifier does not have: CMRC (a span of
the text: average of exact match and F1), CHID (idioms chosen among ten candidates for several gaps) and C3 (an answer
chosen among two to four). ``hub`` describes their data, ``ABSENT`` says what they lack.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from transnormer_lib.data.task_kinds import TaskDefinition, TextRows
from transnormer_lib.data.task_tables import labels_of, table_reader, text_rows

if TYPE_CHECKING:
    import pyarrow as pa

REPOSITORY = "clue/clue"
LENGTH = 512  # Table 6
# Tasks of Table 5 without a loader here, and why.
ABSENT = {
    "cmrc2018": "it needs a head that marks a span of the text, which this library's classifier is not",
    "chid": "it needs a head that scores candidates for gaps of a text, which this library's classifier is not",
    "c3": "it needs a head that scores two to four candidates, which this library's classifier is not",
}


def keywords_first(batch: "pa.RecordBatch") -> TextRows:
    """CSL's rows: the keywords, then the abstract."""
    keywords = ["；".join(map(str.strip, words)) for words in batch.column("keyword").to_pylist()]
    return TextRows(keywords, [text.strip() for text in batch.column("abst").to_pylist()], labels_of(batch))


def spans_marked(batch: "pa.RecordBatch") -> TextRows:
    """WSC's rows: the text with its noun in square brackets and its pronoun between underscores."""
    targets = batch.column("target").to_pylist()
    texts = [_marked(text, target) for text, target in zip(batch.column("text").to_pylist(), targets, strict=True)]
    return TextRows(texts, None, labels_of(batch))


def _marked(text: str, target: dict[str, Any]) -> str:
    spans = []
    for name, (before, after) in (("span1", "[]"), ("span2", "__")):
        start = target[f"{name}_index"]
        spans.append((start, start + len(target[f"{name}_text"]), before, after))
    for start, end, before, after in sorted(spans, reverse=True):  # from the end, so that places before stay
        text = f"{text[:start]}{before}{text[start:end]}{after}{text[end:]}"
    return text.strip()


def _task(
    name: str,
    title: str,
    columns: Sequence[str],
    classes: int = 2,
    *,
    pairs: bool = False,
    made_of: "Callable[[pa.RecordBatch], TextRows]" = text_rows,
) -> TaskDefinition:
    source = f"{REPOSITORY}/{name}"
    read = table_reader(name, source, columns, __file__, made_of=made_of)
    return TaskDefinition(name, title, read, classes, LENGTH, source, pairs=pairs, splits=("train", "validation"))


_PAIR = ("sentence1", "sentence2")
TASKS = (
    _task("afqmc", "AFQMC: do the two questions to a bank mean the same?", _PAIR, pairs=True),
    _task("csl", "CSL: are all of the keywords those of the abstract?", ("keyword", "abst"), pairs=True,
          made_of=keywords_first),
    _task("iflytek", "IFLYTEK: which of 119 kinds of app is described?", ("sentence",), 119),
    _task("tnews", "TNEWS: which of 15 sections does the headline belong to?", ("sentence",), 15),
    _task("cluewsc2020", "WSC: does the pronoun mean the noun?", ("text", "target"), made_of=spans_marked),
    _task("cmnli", "CMNLI: does the first sentence entail the second?", _PAIR, 3, pairs=True),
)  # fmt: skip
