"""How far one gets on a classification task without what it is meant to need: the scores to read a model's beside.

- ``most_common``: the most common label of the training split, always.
- ``bag_of_tokens``: a logistic regression on how often each token occurs and on the length; it knows no order. Of a
  pair it sees both bags, their product and their difference, as the head of a classifier of pairs does.

Of choices the first is the most common place of the right candidate, and the second scores each candidate with its text
by a regression on whether it is right. Of spans there is nothing to fit: the first is the passage's first sentence, the
second the sentence that has most of the question's different characters for its length.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack

from transnormer_lib.data.examples import Examples
from transnormer_lib.data.task_kinds import chosen_rows
from transnormer_lib.data.tasks import TaskData
from transnormer_lib.training.metrics import scores, span_scores

LARGEST_FIT = 5_000  # training examples


@dataclass(frozen=True)
class Shortcuts:
    """The scores of both on one split, by metric."""

    most_common: Mapping[str, float]
    bag_of_tokens: Mapping[str, float]


def shortcuts(task: TaskData, split: str = "validation") -> Shortcuts:
    """Both, fitted on the task's training split (the second on ``LARGEST_FIT`` of its examples, drawn at random and
    always the same ones) and measured on ``split``. Seconds. Raises ValueError for no split."""
    from sklearn.linear_model import LogisticRegression  # here, because importing it takes two seconds
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MaxAbsScaler

    if split not in task.splits:
        raise ValueError(f"split={split!r}: must be one of {', '.join(map(repr, task.splits))}")
    train, held_out = task.splits["train"], task.splits[split]
    if task.kind == "span":
        return _of_spans(held_out)
    common = np.bincount(train.labels).argmax()
    index = chosen_rows(len(train), LARGEST_FIT, "shortcuts")
    model = make_pipeline(MaxAbsScaler(), LogisticRegression(C=0.1, max_iter=1000))
    bags = _bags(held_out, np.arange(len(held_out)), task.vocab_size)
    if task.kind == "choice":
        model.fit(_bags(train, index, task.vocab_size), _right(train.labels[index], train.sizes[index]))
        scored = np.split(model.decision_function(bags), held_out.sizes.cumsum()[:-1])
        predicted = np.array([of.argmax() for of in scored])
    else:
        model.fit(_bags(train, index, task.vocab_size), train.labels[index])
        predicted = model.predict(bags)
    return Shortcuts(
        scores(task.metrics, np.full(len(held_out), common), held_out.labels),
        scores(task.metrics, predicted, held_out.labels),
    )


def _right(labels: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """For every sequence of groups of these sizes, whether it is the right one."""
    right = np.zeros(sizes.sum(), np.bool_)
    right[sizes.cumsum() - sizes + labels] = True
    return right


def _of_spans(examples: Examples) -> Shortcuts:
    assert examples.passages is not None  # a task of spans
    first, alike, answers = [], [], []
    for question, passage, *references in examples.passages.texts:
        sentences = re.findall(r"[^。！？!?\n]+", passage) or [passage]
        first.append(sentences[0])
        alike.append(max(sentences, key=lambda of: len(set(of) & set(question)) / len(of) ** 0.5))
        answers.append(references)
    return Shortcuts(span_scores(first, answers), span_scores(alike, answers))


def _bags(examples: Examples, index: NDArray[np.int64], vocab_size: int) -> Any:
    """Sparse [n, features]: log(1 + count) of every token and log of the length."""
    of = examples.sequences_of(index)
    tokens = np.concatenate([examples.sequence(sequence) for sequence in of.tolist()]).astype(np.int64)
    lengths = examples.lengths[of]
    ends = np.concatenate([[0], lengths.cumsum()])
    counts = csr_matrix((np.ones(tokens.size), tokens, ends), shape=(of.size, vocab_size))
    counts.sum_duplicates()
    bags = hstack([counts.log1p(), csr_matrix(np.log1p(lengths)[:, None])]).tocsr()
    if not examples.pairs:
        return bags
    a, b = bags[::2], bags[1::2]
    return hstack([a, b, a.multiply(b), a - b]).tocsr()
