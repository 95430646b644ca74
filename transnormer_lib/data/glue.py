"""Six tasks of GLUE (Wang et al., 2019), those of Table 5, from the Hub's ``nyu-mll/glue``.

Every task has ``train`` and ``validation``, on which the paper reports. No test set is read: only MRPC's has public
labels. MNLI has two validation splits: ``validation_matched``, also called ``validation``, and
``validation_mismatched``. As published, CoLA's train and validation share 16 sentences.

The metric of a task is the paper's: Matthews correlation for CoLA, F1 for MRPC, accuracy for the others (also for QQP,
whose official score is F1). The paper fine-tunes a RoBERTa-shaped encoder, which reads a pair as one sequence of at
most 512 tokens (``<s> a </s></s> b </s>``); ``load_task(..., joined=True)`` puts a newline between the two instead,
since the vocabularies here have no such special tokens.
"""

from transnormer_lib.data.task_kinds import TaskDefinition
from transnormer_lib.data.task_tables import table_reader

LENGTH = 512  # RoBERTa's longest input


def _task(
    name: str, title: str, columns: tuple[str, ...], metrics: tuple[str, ...] = ("accuracy",), classes: int = 2
) -> TaskDefinition:
    mnli, source = name == "mnli", f"nyu-mll/glue/{name}"
    return TaskDefinition(
        name,
        title,
        table_reader(name, source, columns, __file__),
        classes,
        LENGTH,
        source,
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
