"""The classification tasks made of the embedded articles."""

from collections import Counter

import numpy as np
import pytest

from transnormer_lib.data import sentences, wikipedia
from transnormer_lib.data.sources import SPLITS
from transnormer_lib.data.wikipedia import Article

TWINS = {
    "acceptability": sentences.acceptability,
    "letter-order": sentences.letter_order,
    "spelling": sentences.spelling,
    "same-article": sentences.same_article,
    "sentence-order": sentences.sentence_order,
    "articles-order": sentences.articles_order,
    "articles-same": sentences.articles_same,
}
ORDER = ("acceptability", "letter-order", "spelling", "sentence-order", "articles-order")
SAME = ("same-article", "articles-same")


@pytest.fixture(scope="module")
def articles() -> dict[str, list[Article]]:
    return wikipedia.split_articles(wikipedia.load_articles()[0])


@pytest.fixture(scope="module")
def twins(articles: dict[str, list[Article]]) -> dict[str, dict[str, list[sentences.Twins]]]:
    """By task and split. Validation and test alone: what holds for them holds for train, by the same code."""
    return {name: {split: list(make(articles[split])) for split in SPLITS[1:]} for name, make in TWINS.items()}


def texts(row: sentences.Row) -> list[str]:
    return [text for text in row[:2] if text is not None]


@pytest.mark.parametrize("name", TWINS)
def test_the_labels_are_balanced(name: str, twins: dict) -> None:
    for members in twins[name].values():
        assert all((one[2], other[2]) == (1, 0) for one, other in members)
        assert len(members) >= 200  # a score has a standard error of 2.5 points at most


@pytest.mark.parametrize("name", ORDER)
def test_twins_differ_in_their_order_alone(name: str, twins: dict) -> None:
    """So a classifier that ignores the order is right in exactly half of the cases."""
    for members in twins[name].values():
        for one, other in members:
            assert texts(one) != texts(other)
            assert Counter(" ".join(texts(one)).encode()) == Counter(" ".join(texts(other)).encode())


def changed_words(one: str, other: str) -> list[tuple[str, str]]:
    pairs = zip(one.split(" "), other.split(" "), strict=True)
    return [(ours, theirs) for ours, theirs in pairs if ours != theirs]


@pytest.mark.parametrize("name", ["letter-order", "spelling"])
def test_a_misspelt_word_keeps_its_ends_and_its_letters(name: str, twins: dict) -> None:
    for (written, _, _), (misspelt, _, _) in twins[name]["test"]:
        for ours, theirs in changed_words(written, misspelt):
            assert sorted(ours) == sorted(theirs)
            assert (ours[0], ours[-1]) == (theirs[0], theirs[-1])


def test_spelling_changes_fewer_words_than_letter_order(twins: dict) -> None:
    changed = {
        name: sum(len(changed_words(one[0], other[0])) for one, other in twins[name]["test"])
        for name in ("letter-order", "spelling")
    }
    assert 0.15 < changed["spelling"] / changed["letter-order"] < 0.35


@pytest.mark.parametrize("name", SAME)
def test_one_text_of_a_pair_says_nothing(name: str, twins: dict) -> None:
    """Each first and each second text is in as many pairs of one label as of the other."""
    for members in twins[name].values():
        for position in (0, 1):
            by_label = [
                Counter(row[position] for twin in members for row in twin if row[2] == label) for label in (0, 1)
            ]
            assert by_label[0] == by_label[1]


@pytest.mark.parametrize("name", SAME)
def test_the_label_says_whether_both_are_of_one_article(name: str, twins: dict, articles: dict) -> None:
    for split, members in twins[name].items():
        whole = [" ".join(article.text.split()) for article in articles[split]]
        # Passages leave lines without a full stop out, so their beginnings are looked for.
        beginnings = {text[:40] for twin in members for row in twin for text in texts(row)}
        homes = {start: {i for i, article in enumerate(whole) if start in article} for start in beginnings}
        for a, b, label in (row for twin in members for row in twin):
            one, other = homes[a[:40]], homes[b[:40]]
            assert one
            assert other
            if len(one) == len(other) == 1:  # few beginnings are those of sentences of several articles
                assert (one == other) == bool(label)


@pytest.mark.parametrize("name", SAME)
def test_no_two_texts_of_an_article_are_paired_twice(name: str, twins: dict) -> None:
    for members in twins[name].values():
        together = Counter(frozenset(texts(one)) for one, _ in members)
        assert max(together.values()) == 1


@pytest.mark.parametrize("name", TWINS)
def test_a_task_is_the_same_each_time_it_is_made(name: str, twins: dict, articles: dict) -> None:
    assert list(TWINS[name](articles["test"])) == twins[name]["test"]


@pytest.mark.parametrize("name", TWINS)
def test_no_sentence_of_a_test_article_is_in_train(name: str, twins: dict, articles: dict) -> None:
    train = {sentence for article in articles["train"] for p in sentences.paragraphs_of(article.text) for sentence in p}
    for one, _ in twins[name]["test"]:
        for text in texts(one):
            assert not train & set(sentences._SENTENCE_END.split(text))


def test_every_sentence_is_a_whole_one_of_the_text(twins: dict, articles: dict) -> None:
    text = "\n".join(article.text for article in articles["test"])
    for (sentence, _, _), _ in twins["acceptability"]["test"]:
        assert sentence in text
        assert sentence[0].isupper()
        assert sentence[-1] in ".!?"
        assert len(sentence.encode()) <= sentences.SENTENCE_BYTES


def test_a_corrupted_sentence_keeps_its_first_and_last_word(twins: dict) -> None:
    for (sentence, _, _), (corrupted, _, _) in twins["acceptability"]["test"]:
        assert sentence.split(" ")[0] == corrupted.split(" ")[0]
        assert sentence.split(" ")[-1] == corrupted.split(" ")[-1]


def test_neighbours_stand_side_by_side_in_the_text(twins: dict, articles: dict) -> None:
    text = "\n".join(article.text for article in articles["test"])
    for (a, b, _), _ in twins["sentence-order"]["test"]:
        assert f"{a} {b}" in text


@pytest.mark.parametrize("name", ["articles-order", "articles-same"])
def test_passages_have_the_length_they_should(name: str, twins: dict) -> None:
    lengths = [len(text.encode()) for twin in twins[name]["test"] for row in twin for text in texts(row)]
    assert 500 <= min(lengths) <= max(lengths) <= sentences.PASSAGE_BYTES


def test_no_sentence_is_in_two_passages(articles: dict) -> None:
    for article in articles["test"]:
        paragraphs = Counter(s for p in sentences.paragraphs_of(article.text) for s in p)
        passages = Counter(s for p in sentences.passages_of(article) for s in p)
        assert passages <= paragraphs


@pytest.mark.parametrize(
    ("paragraph", "number"),
    [
        ("It began in 1990. Then it ended.", 2),
        ("Written by J. R. R. Tolkien in 600 B.C.E. Nobody knows.", 1),
        ('He said "no." She left! Why? Nobody knows.', 4),
        ("one sentence without capitals. and another", 1),
    ],
)
def test_where_a_sentence_ends(paragraph: str, number: int) -> None:
    found = sentences._SENTENCE_END.split(paragraph)
    assert len(found) == number
    assert " ".join(found) == paragraph


@pytest.mark.parametrize("name", TWINS)
def test_a_limit_takes_whole_twins_and_one_at_least(name: str) -> None:
    (task,) = (task for task in sentences.TASKS if task.name == name)
    (least,) = task.read("test", 1).parts()
    assert sorted(least.labels) == [0, 1]
    (rows,) = task.read("test", 41).parts()
    assert np.bincount(rows.labels).tolist() == [20, 20]
    assert (rows.second is not None) == task.pairs
