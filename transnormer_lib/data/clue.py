"""CLUE's tasks (Xu et al. 2020), the nine of Table 5 of the GAU paper.

Scores are those of the validation split, accuracies but for CMRC; CLUE's server keeps the labels of the test splits. A
pair of texts is read as one sequence with a newline between the two (``load_task(..., joined=True)``), as elsewhere
here.

- CSL asks whether all of a paper's keywords are real ones. They are joined by semicolons, before the abstract, so that
  cutting a long abstract does not cut them.
- WSC asks whether a pronoun means a noun of the text. The noun is put in square brackets, the pronoun between
  underscores. As on the Hub, label 0 is "true".
- C3 asks a question about a text or a dialogue; the answer is one of two to four. Each is read after text and question.
- CHID has texts with gaps and ten idioms for all gaps of a row. Each gap is an example, so that the published rows hold
  several, and the accuracy is over gaps; no idiom is kept from being chosen twice. The gap is marked by four
  underscores, other gaps by three dots, and each idiom is read after the text, cut around the gap where it is too long.
- CMRC asks for a span of a passage; its score is the mean of exact match and F1 (``training.metrics.span_scores``).
  ``data.sequences`` says how a long passage is read, which is not as usual. The first reference is trained.
"""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from transnormer_lib.data.faults import DataFault
from transnormer_lib.data.task_kinds import ChoiceRows, Rows, SpanRows, TaskDefinition, TextRows
from transnormer_lib.data.task_tables import labels_of, table_reader, text_rows

if TYPE_CHECKING:
    import pyarrow as pa

REPOSITORY = "clue/clue"
LENGTH = 512  # Table 6
_CHID_GAPS = 577_000  # training examples; CLUE's Table 1 prints 577K
_GAP = re.compile(r"#idiom\d+#")
_THIS_GAP, _OTHER_GAP = "____", "..."


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


def answers_to_choose(batch: "pa.RecordBatch") -> ChoiceRows:
    """C3's rows: the text, then the question with each answer. Raises DataFault if the answer is not among them."""
    texts = ["\n".join(map(str.strip, lines)) for lines in batch.column("context").to_pylist()]
    questions, choices, answers = (batch.column(name).to_pylist() for name in ("question", "choice", "answer"))
    for choice, answer in zip(choices, answers, strict=True):
        if answer not in choice:
            raise DataFault(f"{REPOSITORY}/c3: answer {answer!r}: must be one of {', '.join(map(repr, choice))}")
    labels = [choice.index(answer) for choice, answer in zip(choices, answers, strict=True)]
    candidates = [[f"{question}\n{one}" for one in choice] for question, choice in zip(questions, choices, strict=True)]
    return ChoiceRows(texts, [0] * len(texts), candidates, np.array(labels, np.int64))


def idioms_to_choose(batch: "pa.RecordBatch") -> ChoiceRows:
    """CHID's rows, one for each gap: the text with its gaps marked, then each idiom.

    Raises DataFault if a row has not as many answers as gaps.
    """
    texts, centres, candidates, labels = [], [], [], []
    columns = (batch.column(name).to_pylist() for name in ("content", "candidates", "answers"))
    for content, idioms, answers in zip(*columns, strict=True):
        gaps = [(text, gap) for text in content for gap in _GAP.finditer(text)]
        if len(gaps) != len(answers["candidate_id"]):
            raise DataFault(f"{REPOSITORY}/chid: {len(gaps)} gaps: must be as many as {len(answers['text'])} answers")
        for text, gap in gaps:
            before, after = (_GAP.sub(_OTHER_GAP, part) for part in (text[: gap.start()], text[gap.end() :]))
            texts.append(f"{before}{_THIS_GAP}{after}")
            centres.append(len(before))
        candidates += [idioms] * len(gaps)
        labels += answers["candidate_id"]
    return ChoiceRows(texts, centres, candidates, np.array(labels, np.int64))


def spans_to_mark(batch: "pa.RecordBatch") -> SpanRows:
    """CMRC's rows. Raises DataFault for a question without an answer."""
    questions, passages, answers = (batch.column(name).to_pylist() for name in ("question", "context", "answers"))
    found = [list(zip(of["answer_start"], of["text"], strict=True)) for of in answers]
    for question, of in zip(questions, found, strict=True):
        if not of or not all(text for _, text in of):
            raise DataFault(f"{REPOSITORY}/cmrc2018: question {question!r}: must have an answer, and none empty")
    return SpanRows(questions, passages, found)


def _task(
    name: str,
    title: str,
    columns: Sequence[str],
    classes: int = 2,
    *,
    made_of: "Callable[[pa.RecordBatch], Rows]" = text_rows,
    labelled: bool = True,
    **facts: Any,
) -> TaskDefinition:
    source = f"{REPOSITORY}/{name}"
    read = table_reader(name, source, columns, __file__, made_of=made_of, labelled=labelled)
    return TaskDefinition(name, title, read, classes, LENGTH, source=source, splits=("train", "validation"), **facts)


_PAIR = ("sentence1", "sentence2")
TASKS = (
    _task("afqmc", "AFQMC: do the two questions to a bank mean the same?", _PAIR, pairs=True),
    _task("csl", "CSL: are all of the keywords those of the abstract?", ("keyword", "abst"), pairs=True,
          made_of=keywords_first),
    _task("iflytek", "IFLYTEK: which of 119 kinds of app is described?", ("sentence",), 119),
    _task("tnews", "TNEWS: which of 15 sections does the headline belong to?", ("sentence",), 15),
    _task("cluewsc2020", "WSC: does the pronoun mean the noun?", ("text", "target"), made_of=spans_marked),
    _task("cmnli", "CMNLI: does the first sentence entail the second?", _PAIR, 3, pairs=True),
    _task("cmrc2018", "CMRC: which span of the passage answers the question?", ("context", "question", "answers"),
          made_of=spans_to_mark, labelled=False, kind="span", metrics=("score", "exact_match", "f1")),
    _task("chid", "CHID: which of ten idioms fills the gap?", ("candidates", "content", "answers"), 10,
          made_of=idioms_to_choose, labelled=False, kind="choice", train_examples=_CHID_GAPS),
    _task("c3", "C3: which of up to four answers is right?", ("context", "question", "choice", "answer"), 4,
          made_of=answers_to_choose, labelled=False, kind="choice"),
)  # fmt: skip
