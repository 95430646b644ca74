"""Texts with candidates and questions about passages as sequences of tokens."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transnormer_lib.data.characters import CharacterVocabulary
from transnormer_lib.data.examples import END, START, Examples
from transnormer_lib.data.sequences import encoded, joined_pair, windows
from transnormer_lib.data.task_kinds import ChoiceRows, SpanRows
from transnormer_lib.data.vocabulary import ByteVocabulary, Vocabulary

SIGNS = "甲乙丙丁戊己庚é，"
VOCABULARIES = pytest.mark.parametrize(
    "words", [ByteVocabulary(), CharacterVocabulary(SIGNS[:5] + "?\n")], ids=["bytes", "characters"]
)
texts = st.text(SIGNS, min_size=1, max_size=60)


@st.composite
def asked(draw: st.DrawFn) -> tuple[str, int, str]:
    """A passage, and an answer that stands in it at this character."""
    passage = draw(texts)
    first = draw(st.integers(0, len(passage) - 1))
    return passage, first, passage[first : first + draw(st.integers(1, 12))]


def spans(passage: str, first: int, answer: str, words: Vocabulary, length: int, question: str = "?") -> Examples:
    return encoded(SpanRows([question], [passage], [[(first, answer)]]), words, length, joined=False)


def places_of(examples: Examples, sequence: int) -> np.ndarray:
    assert examples.passages is not None
    return examples.passages.places[examples.offsets[sequence] : examples.offsets[sequence + 1]]


def marked(examples: Examples) -> list[tuple[int, int]]:
    """First and last character of each marked span."""
    assert examples.passages is not None
    places, marks = examples.passages.places, examples.passages.marks
    starts, ends = (np.flatnonzero(marks & bit) for bit in (START, END))
    assert (
        np.searchsorted(examples.offsets, starts, "right") == np.searchsorted(examples.offsets, ends, "right")
    ).all()
    first = np.searchsorted(examples.offsets, starts[0], "right") - 1
    assert examples.labels.tolist() == [first]
    return list(zip(places[starts].tolist(), places[ends].tolist(), strict=True))


def texts_of(examples: Examples) -> set[str]:
    """The texts of the marked spans."""
    assert examples.passages is not None
    return {examples.passages.texts[0][1][a : b + 1] for a, b in marked(examples)}


@VOCABULARIES
@given(of=asked(), length=st.integers(60, 300))
def test_the_right_span_decodes_to_the_answer(words: Vocabulary, of: tuple[str, int, str], length: int) -> None:
    assert texts_of(spans(*of, words, length)) == {of[2]}  # half a window holds the longest answer


@VOCABULARIES
@given(of=asked(), length=st.integers(2, 80))
def test_of_an_answer_that_no_window_holds_the_most_is_marked(
    words: Vocabulary, of: tuple[str, int, str], length: int
) -> None:
    made = spans(*of, words, length)
    held = [np.isin(places_of(made, i), range(of[1], of[1] + len(of[2]))).sum() for i in range(len(made.lengths))]
    (part,) = texts_of(made)
    assert part in of[2]
    assert len(words.encode(part)) == max(held) or len(part.encode()) > max(held)  # a cut may fall within a character
    assert len(marked(made)) == (held.count(max(held)) if max(held) == len(words.encode(of[2])) else 1)


@VOCABULARIES
@given(of=asked(), length=st.integers(2, 80), question=texts)
def test_every_token_of_a_passage_is_read_and_no_sequence_is_too_long(
    words: Vocabulary, of: tuple[str, int, str], length: int, question: str
) -> None:
    made = spans(*of, words, length, question)
    assert made.lengths.max() <= length
    assert made.passages is not None
    assert set(made.passages.places.tolist()) == {-1, *range(len(of[0]))}
    assert made.passages.texts == ((question, of[0], of[2]),)


@given(size=st.integers(1, 300), room=st.integers(1, 100))
def test_windows_cover_everything_and_share_half(size: int, room: int) -> None:
    cuts = windows(size, room)
    assert sorted({place for a, b in cuts for place in range(a, b)}) == list(range(size))
    assert all(b - a == min(size, room) for a, b in cuts)
    assert all(b - c >= room // 2 for (_, b), (c, _) in pairwise(cuts))
    assert len(cuts) == 1 or size > room


@pytest.mark.parametrize(
    ("first", "answer", "found"),
    [(4, "乙", "乙"), (2, "乙丙", "乙丙"), (5, "巴黎", "己庚"), (99, "巴黎", "庚")],
    ids=["off-by-some", "right", "not-there", "beyond"],
)
def test_a_misplaced_answer_is_found_where_it_is_nearest(first: int, answer: str, found: str) -> None:
    made = spans("甲乙丙丁戊己庚", first, answer, CharacterVocabulary(SIGNS), 40)
    assert texts_of(made) == {found}


def test_of_two_occurrences_the_named_one_is_marked() -> None:
    made = spans("甲乙丙甲乙丙", 3, "甲乙", CharacterVocabulary(SIGNS), 40)
    assert marked(made) == [(3, 4)]


@given(a=st.integers(1, 80), b=st.integers(1, 30), length=st.integers(40, 90), data=st.data())
def test_the_centre_of_a_text_that_is_cut_is_kept(a: int, b: int, length: int, data: st.DataObject) -> None:
    centre = data.draw(st.integers(0, a - 1))
    joined = joined_pair(np.arange(a), np.array([-1]), np.full(b, -2), length, centre)
    assert centre in joined
    assert joined.size == min(a + b + 1, length)


@VOCABULARIES
def test_a_group_has_a_sequence_for_each_candidate_with_the_text_before_it(words: Vocabulary) -> None:
    rows = ChoiceRows(["甲乙", "丙"], [0, 0], [["丁", "甲甲"], ["乙", "丙", "丁"]], np.array([1, 2]))
    made = encoded(rows, words, 40, joined=False)
    assert made.sizes.tolist() == [2, 3]
    assert [words.decode(made.sequence(i)) for i in range(5)] == [
        "甲乙\n丁",
        "甲乙\n甲甲",
        "丙\n乙",
        "丙\n丙",
        "丙\n丁",
    ]
    assert made.labels.tolist() == [1, 2]
