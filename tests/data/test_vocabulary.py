"""Vocabularies lose nothing."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transnormer_lib.data import vocabulary
from transnormer_lib.data.vocabulary import BPEVocabulary, ByteVocabulary, Vocabulary, train_bpe

TEXTS = [
    "the cat sat on the mat; the rat sat on the hat. " * 30,
    "Ångström, naïve café, übermäßig, 東京, 12345\n\n  two  spaces\tand a tab " * 20,
]
VOCABULARIES = [ByteVocabulary(), train_bpe(TEXTS, 300)]
both = pytest.mark.parametrize("words", VOCABULARIES, ids=lambda words: words.name)


@both
@given(text=st.text())
def test_decoding_gives_the_text_back(words: Vocabulary, text: str) -> None:
    assert words.decode(words.encode(text)) == text


@both
@pytest.mark.parametrize(
    "text", ["", " ", "\n", "\r\n", "\x00", "a\u0301", "\U0001f600", " the", "<|endoftext|>", "[MASK]"]
)
def test_decoding_gives_unusual_text_back(words: Vocabulary, text: str) -> None:
    assert words.decode(words.encode(text)) == text


@both
@given(text=st.text())
def test_encoding_gives_text_ids_only(words: Vocabulary, text: str) -> None:
    tokens = words.encode(text)
    assert tokens.dtype == np.int32
    assert tokens.ndim == 1
    assert ((tokens >= 0) & (tokens < words.text_size)).all()


@both
@given(texts=st.lists(st.text(), max_size=5))
def test_texts_encoded_together_are_the_texts_encoded_alone(words: Vocabulary, texts: list[str]) -> None:
    alone = [token for text in texts for token in words.encode(text).tolist()]
    assert words.encode_all(texts).tolist() == alone


@both
def test_special_ids_are_distinct_ids_above_the_text(words: Vocabulary) -> None:
    assert sorted({words.pad_id, words.mask_id}) == list(range(words.text_size, words.size))


@both
def test_special_ids_stand_for_no_text(words: Vocabulary) -> None:
    tokens = [words.mask_id, *words.encode("a cat").tolist(), words.pad_id]
    assert words.decode(tokens) == "a cat"


@both
def test_ids_outside_the_vocabulary_are_refused(words: Vocabulary) -> None:
    for token in (-1, words.size):
        with pytest.raises(ValueError, match=rf"tokens={token}: must be in \[0, {words.size}\)"):
            words.decode([0, token])


@both
def test_what_are_no_ids_is_refused(words: Vocabulary) -> None:
    for tokens in ([0.5], [[1, 2]]):
        with pytest.raises(ValueError, match="tokens: must be integers of shape"):
            words.decode(tokens)


@both
def test_text_that_utf_8_cannot_encode_is_refused(words: Vocabulary) -> None:
    with pytest.raises(UnicodeEncodeError):
        words.encode("\ud800")


@both
def test_the_size_is_known_from_the_name(words: Vocabulary) -> None:
    assert vocabulary.vocabulary_size(words.name) == words.size


@pytest.mark.parametrize("name", ["", "byte", "bpe", "bpe-", "bpe-255", "bpe-0512", "bpe-1e3", "BPE-512"])
def test_a_name_that_is_no_vocabulary_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"vocabulary='.*': must be 'bytes', 'bpe-N' with N"):
        vocabulary.vocabulary_size(name)


def test_bpe_makes_a_text_shorter_than_its_bytes() -> None:
    bpe = VOCABULARIES[1]
    assert len(bpe.encode(TEXTS[0])) < 0.6 * len(TEXTS[0])


def test_a_stored_bpe_vocabulary_is_the_same_one() -> None:
    bpe = VOCABULARIES[1]
    assert isinstance(bpe, BPEVocabulary)
    again = BPEVocabulary(bpe.definition)
    assert again.fingerprint == bpe.fingerprint
    assert again.encode(TEXTS[1]).tolist() == bpe.encode(TEXTS[1]).tolist()


def test_fingerprints_tell_vocabularies_apart() -> None:
    prints = [words.fingerprint for words in (*VOCABULARIES, train_bpe(TEXTS, 270), train_bpe(TEXTS[:1], 270))]
    assert len(set(prints)) == 4


@pytest.mark.parametrize("threads", ["1", "4"])
def test_training_bpe_is_the_same_in_every_process(threads: str) -> None:
    script = (
        "import sys; from transnormer_lib.data.vocabulary import train_bpe\n"
        f"print(train_bpe({TEXTS!r}, 300).fingerprint)\n"
    )
    environment = {"RAYON_NUM_THREADS": threads, "PYTHONUTF8": "1"}
    result = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == VOCABULARIES[1].fingerprint


def test_too_few_pieces_are_refused() -> None:
    with pytest.raises(ValueError, match="pieces=255: must be at least 256"):
        train_bpe(TEXTS, 255)


def test_more_pieces_than_the_text_gives_are_refused() -> None:
    with pytest.raises(ValueError, match="pieces=1000: the texts give only 258"):
        train_bpe(["aaa"], 1000)
