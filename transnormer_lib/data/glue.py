"""Six tasks of GLUE (Wang et al., 2019), those of Table 5, as the Hub's ``nyu-mll/glue`` has them.

Every task has ``train`` and ``validation``, on which the paper reports. The labels of the test sets are not public but
for MRPC's, and no test set is read. MNLI has two validation splits: ``validation_matched``, which is ``validation``
too, and ``validation_mismatched``. As published, CoLA's train and validation share 16 sentences; they are left as they
are.

The metric of a task is the paper's: Matthews correlation for CoLA, F1 for MRPC, accuracy for the others (QQP too, whose
official score is F1). The paper fine-tunes a RoBERTa-shaped encoder and so reads a pair as one sequence
(RoBERTa: ``<s> a </s></s> b </s>``, at most 512 tokens); ``load_task(..., joined=True)`` puts a newline between the
two, since the vocabularies here have no such specials.
"""

from collections.abc import Callable
from functools import partial

from transnormer_lib.data.task_kinds import SplitReader, TaskDefinition, chosen_rows
from transnormer_lib.data.task_tables import table_reader, text_rows

LENGTH = 512  # RoBERTa's longest input
_REPOSITORY = "nyu-mll/glue"


def _reader(task: str, columns: tuple[str, ...]) -> Callable[[str, int | None], SplitReader]:
    def read(split: str, limit: int | None) -> SplitReader:
        pick = partial(chosen_rows, limit=limit, key=f"{task} {split}") if limit else None
        return table_reader(f"{_REPOSITORY}/{task}", split, columns, text_rows, __file__, pick)

    return read


def _task(
    name: str, title: str, columns: tuple[str, ...], metrics: tuple[str, ...] = ("accuracy",), classes: int = 2
) -> TaskDefinition:
    mnli = name == "mnli"
    return TaskDefinition(
        name,
        title,
        _reader(name, columns),
        classes,
        LENGTH,
        source=f"{_REPOSITORY}/{name}",
        pairs=len(columns) == 2,
        splits=("train", "validation_matched", "validation_mismatched") if mnli else ("train", "validation"),
        aliases={"validation": "validation_matched"} if mnli else {},
        metrics=metrics,
    )


TASKS = (
    _task("mnli", "MNLI: does the premise entail the hypothesis?", ("premise", "hypothesis"), classes=3),
    _task("qnli", "QNLI: does the sentence answer the question?", ("question", "sentence")),
    _task("qqp", "QQP: do the two questions ask the same?", ("question1", "question2"), ("accuracy", "f1")),
    _task("sst2", "SST-2: is the review's sentence positive?", ("sentence",)),
    _task("mrpc", "MRPC: do the two sentences say the same?", ("sentence1", "sentence2"), ("f1", "accuracy")),
    _task("cola", "CoLA: is the sentence acceptable English?", ("sentence",), ("matthews", "accuracy")),
)
