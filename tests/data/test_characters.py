"""Characters as tokens, and the words that a segmenter finds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transnormer_lib.data import characters
from transnormer_lib.data.characters import UNKNOWN, CharacterVocabulary, most_frequent
from transnormer_lib.data.text import build_corpus
from transnormer_lib.data.vocabulary import check_name, is_learned, vocabulary_size

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
LETTERS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=UNKNOWN), max_size=40)


@given(known=LETTERS, text=ANY_TEXT)
def test_known_characters_come_back_and_the_others_become_the_unknown_one(known: str, text: str) -> None:
    words = CharacterVocabulary("".join(dict.fromkeys(known)))
    ids = words.encode(text)
    assert ids.dtype == np.int32
    assert words.decode(ids) == "".join(sign if sign in known else UNKNOWN for sign in text)


def test_the_most_frequent_characters_are_taken_and_ties_go_by_code_point() -> None:
    assert most_frequent(["好好好不不", "书大"], 4).characters == "好不书"  # 书 U+4E66 before 大 U+5927
    assert most_frequent(["好"], 9).name == "chars-2"


def test_a_character_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="characters: must be distinct; 3 given, 2 distinct"):
        CharacterVocabulary("好不好")


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        CharacterVocabulary("好").encode("\ud800")


def test_the_size_is_known_from_the_name_with_pad_and_mask() -> None:
    assert vocabulary_size("chars-2000") == 2002
    assert CharacterVocabulary("好不").size == vocabulary_size("chars-3")


@pytest.mark.parametrize("name", ["chars-1", "chars-0", "chars-", "chars-x", "chars-02"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(
        ValueError, match="must be 'bytes', 'bpe-N' with N at least 256, or 'chars-N' with N at least 2"
    ):
        check_name(name)


def test_learned_vocabularies_are_those_that_depend_on_a_text() -> None:
    assert [is_learned(name) for name in ("bytes", "bpe-512", "chars-9", "gpt2-bpe")] == [False, True, True, False]


def test_the_fingerprint_depends_on_the_order_of_the_characters() -> None:
    assert CharacterVocabulary("好不").fingerprint != CharacterVocabulary("不好").fingerprint


class Segmenter:
    """Cuts a text after every full stop: stands in for rjieba."""

    @staticmethod
    def cut(text: str) -> list[str]:
        return [part for piece in text.split("。") for part in (piece, "。") if part][
            : -1 if text[-1] != "。" else None
        ]


@pytest.fixture
def _with_segmenter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(characters, "segmenter", lambda: Segmenter)
    monkeypatch.setattr(characters, "segmenter_version", lambda: "stand-in")


@pytest.mark.usefixtures("_with_segmenter")
def test_words_begin_where_the_segmenter_says_in_every_text() -> None:
    assert characters.word_starts(["好书。大", "不好"]).tolist() == [True, False, True, True, True, False]


@pytest.mark.usefixtures("_with_segmenter")
def test_a_corpus_of_characters_knows_its_words_and_its_fingerprint_depends_on_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    documents = {split: ["好书。大", "不好"] for split in ("train", "validation", "test")}
    corpus = build_corpus("toy", documents, "chars-4", "source", "rule")
    assert corpus.word_starts["train"].tolist() == [True, False, True, True, True, False]
    assert corpus.tokens["train"].shape == corpus.word_starts["train"].shape
    assert not build_corpus("toy", documents, "bytes", "source", "rule").word_starts
    monkeypatch.setattr(characters, "segmenter_version", lambda: "another")
    monkeypatch.setattr(Segmenter, "cut", staticmethod(list))
    assert build_corpus("toy", documents, "chars-4", "source", "rule").fingerprint != corpus.fingerprint


@pytest.mark.usefixtures("_with_segmenter")
def test_a_text_with_too_few_characters_is_refused() -> None:
    documents = {split: ["好"] for split in ("train", "validation", "test")}
    with pytest.raises(ValueError, match="vocabulary='chars-9': the training text has only 1 characters"):
        build_corpus("toy", documents, "chars-9", "source", "rule")
