"""What a classifier that knows no order reaches."""

import numpy as np
import pytest

from transnormer_lib.analysis.shortcuts import shortcuts
from transnormer_lib.data.examples import from_groups, from_sequences
from transnormer_lib.data.sequences import encoded
from transnormer_lib.data.task_kinds import SpanRows
from transnormer_lib.data.tasks import TaskData, load_task
from transnormer_lib.data.vocabulary import ByteVocabulary


def task(sequences: list, labels: list[int], pairs: bool = False) -> TaskData:
    examples = from_sequences([np.array(s) for s in sequences], labels, 10)
    splits = {"train": examples, "validation": examples}
    return TaskData("x", "x", True, "embedded", pairs, 2, 10, 9, 9, splits, ("accuracy", "matthews"), "0")


RANDOM = np.random.default_rng(0)
LABELS = RANDOM.integers(2, size=400).tolist()


@pytest.mark.parametrize(
    "sequences",
    [
        pytest.param([RANDOM.permutation([1, 2, 3, 4, 5 + label]) for label in LABELS], id="a-token"),
        pytest.param([[1, 2] * (3 + 3 * label) for label in LABELS], id="the-length"),
    ],
)
def test_a_label_that_tokens_or_length_tell_is_found(sequences: list) -> None:
    assert shortcuts(task(sequences, LABELS)).bag_of_tokens["accuracy"] == 1.0


def test_a_pair_of_like_bags_is_found() -> None:
    sequences = []
    for label in LABELS:
        first = RANDOM.integers(4)
        sequences += [[first] * 5, [first if label else (first + 1) % 4] * 5]
    assert shortcuts(task(sequences, LABELS, pairs=True)).bag_of_tokens["accuracy"] == 1.0


def test_a_label_that_the_order_tells_is_not_found() -> None:
    sequences = [s for _ in range(200) for s in ([1, 2, 3], [3, 2, 1])]
    scores = shortcuts(task(sequences, [0, 1] * 200))
    assert scores.bag_of_tokens == {"accuracy": 0.5, "matthews": 0.0}


def test_a_candidate_that_holds_the_token_of_the_text_is_found_only_where_candidates_differ_in_it() -> None:
    marked = [[[1, 5] if place == label else [1, 6] for place in range(2 + label)] for label in LABELS]
    made = from_groups([[np.array(s) for s in group] for group in marked], np.array(LABELS), 10)
    splits = {"train": made, "validation": made}
    found = TaskData("x", "x", True, "embedded", False, 3, 10, 9, 9, splits, ("accuracy",), "0", kind="choice")
    scores = shortcuts(found)
    assert scores.bag_of_tokens["accuracy"] == 1.0
    assert scores.most_common["accuracy"] == max(np.bincount(LABELS)) / len(LABELS)


def test_of_a_passage_the_first_sentence_and_the_one_most_like_the_question_answer() -> None:
    rows = SpanRows(["谁爱读书？"], ["天下雨。小明爱读书。"], [[(4, "小明爱读书")]])
    made = encoded(rows, ByteVocabulary(), 90, joined=False)
    splits = {"train": made, "validation": made}
    metrics = ("score", "exact_match", "f1")
    found = TaskData("x", "x", True, "embedded", False, 2, 258, 257, 90, splits, metrics, "0", kind="span")
    scores = shortcuts(found)
    assert (scores.most_common["score"], scores.bag_of_tokens["score"]) == (0.0, 1.0)


def test_of_many_twins_both_labels_are_fitted() -> None:
    sequences = [s for _ in range(5_000) for s in ([1, 2], [1, 3])]  # 10,000 examples, twice those that are fitted
    assert shortcuts(task(sequences, [0, 1] * 5_000)).bag_of_tokens["accuracy"] == 1.0


def test_the_most_common_label_scores_its_share() -> None:
    scores = shortcuts(task([[1, 2]] * 10, [1] * 7 + [0] * 3))
    assert scores.most_common == {"accuracy": 0.7, "matthews": 0.0}


@pytest.mark.parametrize(
    ("name", "joined"), [("acceptability", False), ("sentence-order", True), ("articles-order", False)]
)
def test_the_order_tasks_need_order(name: str, joined: bool) -> None:
    data = load_task(name, limit={"train": 600, "test": 400}, joined=joined)
    assert shortcuts(data, "test").bag_of_tokens["accuracy"] == pytest.approx(0.5)


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(ValueError, match="split='test': must be one of 'train', 'validation'"):
        shortcuts(task([[1], [2]], [0, 1]), "test")
