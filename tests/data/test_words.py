"""Words: the fast way and the plain way agree, and the number of ids follows from the text."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transnormer_lib.data.vocabulary import PUBLISHED_SIZES
from transnormer_lib.data.words import END, UNKNOWN, WordVocabulary, split_words, words_by_frequency

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Z", "C")), min_size=1, max_size=5)
LINES = st.lists(st.lists(WORDS, max_size=6).map(lambda words: "".join(f" {word}" for word in words) + " \n"))


def vocabulary_of(lines: list[str]) -> WordVocabulary:
    counts: dict[str, int] = {}
    for word in (word for line in lines for word in line.split()):
        counts[word] = counts.get(word, 0) + 1
    return WordVocabulary(words_by_frequency(counts, len(lines)))


@given(lines=st.lists(st.text(st.characters(codec="utf-8"))))
def test_words_are_those_that_python_splits(lines: list[str]) -> None:
    words, counts = split_words(pa.array(lines, pa.large_string()))
    assert words.to_pylist() == [word for line in lines for word in line.split()]
    assert counts.tolist() == [len(line.split()) for line in lines]


@given(lines=LINES)
def test_known_lines_come_back_as_they_were_and_both_encoders_agree(lines: list[str]) -> None:
    vocabulary = vocabulary_of(lines)
    tokens = vocabulary.encode_lines(pa.array(lines, pa.large_string()))
    assert vocabulary.decode(tokens) == "".join(lines)
    assert np.array_equal(tokens, vocabulary.encode("".join(lines)))


def test_ids_follow_frequency_and_an_unknown_word_has_its_own() -> None:
    vocabulary = vocabulary_of([" the cat the rat \n", " the cat \n", " a <unk> \n"])
    assert vocabulary.words == [END, "the", "cat", UNKNOWN, "a", "rat"]
    assert vocabulary.decode(vocabulary.encode("the dog\n")) == " the <unk> \n"


@pytest.mark.parametrize("words", [2, 6, 7, 100])
def test_rows_are_words_and_two_special_ids_filled_up_to_a_multiple_of_eight(words: int) -> None:
    vocabulary = WordVocabulary([UNKNOWN, END, *map(str, range(words - 2))])
    assert vocabulary.text_size == words
    assert (vocabulary.pad_id, vocabulary.mask_id) == (words, words + 1)
    assert vocabulary.size % 8 == 0
    assert words + 2 <= vocabulary.size < words + 10


def test_the_published_number_of_rows_follows_from_the_words_of_the_whole_text() -> None:
    whole = WordVocabulary([UNKNOWN, END, *map(str, range(267_733))])
    assert whole.size == PUBLISHED_SIZES["wikitext-103-words"]


@pytest.mark.parametrize("words", [["a", "a", UNKNOWN, END], ["a", END], ["a", UNKNOWN]])
def test_a_list_of_words_that_is_none_is_refused(words: list[str]) -> None:
    with pytest.raises(ValueError, match="words: "):
        WordVocabulary(words)
