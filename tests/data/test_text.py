"""A corpus: splits, tokens, counts and fingerprint belong together."""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transnormer_lib.data import wikipedia
from transnormer_lib.data.corpora import load_text_corpus
from transnormer_lib.data.text import TextCorpus, build_corpus

DOCUMENTS = {
    "train": ["The cat sat on the mat. " * 40, "Über den Wolken, über dem Meer. " * 40],
    "validation": ["The rat sat on the hat. "],
    "test": ["Über der Katze. ", "On the mat."],
}
NAMES = ["bytes", "bpe-280"]


def corpus_of(
    documents: Mapping[str, list[str]] = DOCUMENTS,
    vocabulary: str = "bytes",
    source: str = "s",
    rule: str = "r",
) -> TextCorpus:
    return build_corpus("toy", documents, vocabulary, source, rule)


@pytest.mark.slow
@pytest.mark.parametrize("vocabulary", ["bytes", "bpe-300"])
def test_the_tokens_of_a_split_decode_to_its_articles(vocabulary: str) -> None:
    corpus = load_text_corpus("wikipedia", vocabulary)
    splits = wikipedia.split_articles(wikipedia.load_articles()[0])
    for name, members in splits.items():
        whole = corpus.vocabulary.decode(corpus.tokens[name])
        assert whole == "".join(f"{article.title}\n\n{article.text}\n\n\n" for article in members)


@pytest.mark.parametrize("vocabulary", NAMES)
def test_counts_are_those_of_the_text(vocabulary: str) -> None:
    corpus = corpus_of(vocabulary=vocabulary)
    for name, texts in DOCUMENTS.items():
        counts = corpus.counts[name]
        assert counts.documents == len(texts)
        assert counts.words == len(" ".join(texts).split())
        assert counts.bytes == len("".join(texts).encode())
        assert counts.tokens == len(corpus.tokens[name])


@pytest.mark.parametrize("vocabulary", NAMES)
def test_bits_per_byte_and_word_perplexity_share_out_the_whole_loss(vocabulary: str) -> None:
    corpus = corpus_of(vocabulary=vocabulary)
    total_nats = 100.0
    text = "".join(DOCUMENTS["test"])
    mean = total_nats / len(corpus.tokens["test"])
    assert corpus.bits_per_byte(mean, "test") == pytest.approx(total_nats / math.log(2) / len(text.encode()))
    assert corpus.word_perplexity(mean, "test") == pytest.approx(math.exp(total_nats / len(text.split())))


def test_a_byte_model_that_knows_nothing_needs_eight_bits_per_byte() -> None:
    assert corpus_of().bits_per_byte(math.log(256), "validation") == pytest.approx(8.0)


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(ValueError, match="split='valid': must be one of 'train', 'validation', 'test'"):
        corpus_of().bits_per_byte(1.0, "valid")


@pytest.mark.parametrize("vocabulary", NAMES)
def test_equal_inputs_give_an_equal_fingerprint(vocabulary: str) -> None:
    assert corpus_of(vocabulary=vocabulary).fingerprint == corpus_of(vocabulary=vocabulary).fingerprint


@given(split=st.sampled_from(list(DOCUMENTS)), data=st.data())
def test_the_fingerprint_changes_with_any_one_character(split: str, data: st.DataObject) -> None:
    documents = {name: list(texts) for name, texts in DOCUMENTS.items()}
    which = data.draw(st.integers(0, len(documents[split]) - 1))
    text = documents[split][which]
    place = data.draw(st.integers(0, len(text) - 1))
    documents[split][which] = text[:place] + "#" + text[place + 1 :]
    assert corpus_of(documents).fingerprint != corpus_of().fingerprint


def test_the_fingerprint_covers_source_split_rule_vocabulary_and_where_documents_end() -> None:
    joined = {**DOCUMENTS, "test": ["".join(DOCUMENTS["test"])]}
    swapped = {**DOCUMENTS, "validation": DOCUMENTS["test"], "test": DOCUMENTS["validation"]}
    corpora = [
        corpus_of(),
        corpus_of(source="other"),
        corpus_of(rule="other"),
        corpus_of(joined),
        corpus_of(swapped),
        *(corpus_of(vocabulary=name) for name in ("bpe-280", "bpe-281")),
    ]
    assert len({corpus.fingerprint for corpus in corpora}) == len(corpora)


def test_a_bpe_vocabulary_is_learned_from_train_alone() -> None:
    changed = {**DOCUMENTS, "validation": ["xyzxyz " * 200], "test": ["qwqw " * 200]}
    fingerprints = {corpus_of(texts, "bpe-280").vocabulary.fingerprint for texts in (DOCUMENTS, changed)}
    assert len(fingerprints) == 1
    more = {**DOCUMENTS, "train": ["xyzxyz " * 200, *DOCUMENTS["train"]]}
    assert corpus_of(more, "bpe-280").vocabulary.fingerprint not in fingerprints


@pytest.mark.slow
@pytest.mark.parametrize("vocabulary", ["bytes", "bpe-300"])
def test_a_cold_and_a_warm_cache_give_the_same_corpus(
    vocabulary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load_text_corpus("wikipedia", vocabulary)
    monkeypatch.setenv("TRANSNORMER_CACHE", str(tmp_path))
    for again in (load_text_corpus.__wrapped__("wikipedia", vocabulary) for _ in ("cold", "warm")):
        assert again.fingerprint == first.fingerprint
        assert again.counts == first.counts
        for name in first.tokens:
            assert np.array_equal(again.tokens[name], first.tokens[name])


def test_a_corpus_is_loaded_once_and_cannot_be_written_to() -> None:
    corpus = load_text_corpus("wikipedia", "bytes")
    assert load_text_corpus("wikipedia", "bytes") is corpus
    with pytest.raises(ValueError, match="read-only"):
        corpus.tokens["train"][0] = 1


@pytest.mark.parametrize(
    ("name", "vocabulary", "message"),
    [
        ("wikitext", "bytes", "corpus='wikitext': must be 'wikipedia'"),
        ("wikipedia", "words", "vocabulary='words': must be 'bytes', 'bpe-N' with N"),
    ],
)
def test_unknown_names_are_refused(name: str, vocabulary: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_text_corpus(name, vocabulary)
