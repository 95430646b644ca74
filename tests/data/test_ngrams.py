"""N-gram baselines against their definition."""

import math
from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transnormer_lib.data import ngrams
from transnormer_lib.data.corpora import load_text_corpus
from transnormer_lib.data.ngrams import fit_ngrams, ngram_baselines
from transnormer_lib.data.text import build_corpus

V = 5
streams = st.lists(st.integers(0, V - 1), min_size=4, max_size=60).map(lambda ids: np.array(ids, np.int32))
orders = st.integers(1, 4)


def witten_bell(train: list[int], history: tuple[int, ...], token: int) -> float:
    """The recursion of the module's docstring, with dictionaries, one probability at a time."""
    lower = 1 / V if not history else witten_bell(train, history[1:], token)
    if history == () and not train:
        return lower
    after: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for end in range(len(history), len(train)):
        after[tuple(train[end - len(history) : end])][train[end]] += 1
    followers = after[history]
    if not followers:
        return lower
    types = len(followers)
    return (followers[token] + types * lower) / (followers.total() + types)


@given(train=streams, held_out=streams, order=orders)
def test_probabilities_are_those_of_the_definition(train: np.ndarray, held_out: np.ndarray, order: int) -> None:
    rows = fit_ngrams(train, order=order, vocabulary_size=V).log_probabilities(held_out)
    tokens = held_out.tolist()
    for k in range(1, order + 1):
        expected = [
            math.log(witten_bell(train.tolist(), tuple(tokens[max(0, t - k + 1) : t]), tokens[t]))
            for t in range(len(tokens))
        ]
        np.testing.assert_allclose(rows[k - 1], expected, rtol=1e-12)


@given(train=streams, context=st.lists(st.integers(0, V - 1), max_size=6), order=orders)
def test_the_probabilities_after_any_context_sum_to_one(train: np.ndarray, context: list[int], order: int) -> None:
    model = fit_ngrams(train, order=order, vocabulary_size=V)
    nats_V = [model.log_probabilities(np.array([*context, token], np.int32))[-1, -1] for token in range(V)]
    assert np.exp(nats_V).sum() == pytest.approx(1.0, abs=1e-12)


@given(train=streams, order=orders)
def test_a_token_never_seen_has_a_finite_loss(train: np.ndarray, order: int) -> None:
    unseen = np.full(6, V, np.int32)
    rows = fit_ngrams(train, order=order, vocabulary_size=V + 1).log_probabilities(unseen)
    assert np.isfinite(rows).all()


@given(train=streams, order=st.integers(2, 4))
def test_lower_orders_do_not_depend_on_the_highest(train: np.ndarray, order: int) -> None:
    high = fit_ngrams(train, order=order, vocabulary_size=V).nats_per_token(train)
    low = fit_ngrams(train, order=order - 1, vocabulary_size=V).nats_per_token(train)
    np.testing.assert_array_equal(high[:-1], low)


def test_a_higher_order_fits_the_training_text_better() -> None:
    corpus = load_text_corpus("wikipedia", "bytes")
    tokens = corpus.tokens["train"][:300_000]
    nats = fit_ngrams(tokens, order=4, vocabulary_size=corpus.vocabulary.size).nats_per_token(tokens)
    assert (np.diff(nats) < 0).all()


def test_a_text_that_repeats_is_learned() -> None:
    tokens = np.tile(np.arange(V, dtype=np.int32), 2000)
    unigram, bigram = fit_ngrams(tokens, order=2, vocabulary_size=V).nats_per_token(tokens)
    assert unigram == pytest.approx(math.log(V), rel=1e-6)
    assert bigram < 0.01


def test_a_unigram_of_noise_needs_the_entropy_of_the_noise() -> None:
    shares = np.array([0.5, 0.25, 0.125, 0.0625, 0.0625])
    rng = np.random.default_rng(0)
    train, held_out = (rng.choice(V, size=200_000, p=shares).astype(np.int32) for _ in range(2))
    nats = fit_ngrams(train, order=3, vocabulary_size=V).nats_per_token(held_out)
    np.testing.assert_allclose(nats / math.log(2), 1.875, atol=0.01)


def test_on_held_out_bytes_context_helps_up_to_the_4_gram() -> None:
    baselines = ngram_baselines(load_text_corpus("wikipedia", "bytes"), order=4)["validation"]
    bits = [baseline.bits_per_byte for baseline in baselines]
    assert all(better < worse for worse, better in pairwise(bits))
    assert bits[0] < 8.0
    assert bits[-1] > 1.0  # printed English holds about one bit per character (Shannon 1951)


@pytest.mark.parametrize("vocabulary", ["bytes", "bpe-262"])
def test_baselines_report_one_loss_in_every_unit(vocabulary: str) -> None:
    documents = {
        "train": ["the cat sat on the mat " * 50],
        "validation": ["the rat sat "],
        "test": ["a mat "],
    }
    corpus = build_corpus("toy", documents, vocabulary, "s", "r")
    model = fit_ngrams(corpus.tokens["train"], order=3, vocabulary_size=corpus.vocabulary.size)
    baselines = ngram_baselines(corpus, ["test"], order=3)["test"]
    assert [baseline.order for baseline in baselines] == [1, 2, 3]
    for baseline, total in zip(baselines, -model.log_probabilities(corpus.tokens["test"]).sum(axis=1), strict=True):
        assert baseline.nats_per_token == pytest.approx(total / len(corpus.tokens["test"]))
        assert baseline.bits_per_byte == pytest.approx(total / math.log(2) / len("a mat "))
        assert baseline.word_perplexity == pytest.approx(math.exp(total / 2))


@pytest.mark.parametrize(
    ("tokens", "order", "size", "message"),
    [
        ([0, 1], 0, 5, "order=0: must be a whole number of at least 1"),
        ([0, 1], 1, 0, "vocabulary_size=0: must be a whole number of at least 1"),
        ([0, 1], 3, 5, "tokens: has 2, must have at least order=3"),
        ([0, 5], 1, 5, r"tokens=5: must be in \[0, 5\)"),
        ([0, -1], 1, 5, r"tokens=-1: must be in \[0, 5\)"),
        ([0, 1], 6, 2050, r"order=6: vocabulary_size \*\* order must be below 2 \*\* 63"),
    ],
)
def test_wrong_arguments_are_named_with_value_and_rule(tokens: list[int], order: int, size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_ngrams(np.array(tokens, np.int32), order=order, vocabulary_size=size)


def test_several_splits_are_measured_from_one_count(monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = build_corpus(
        "toy", {"train": ["the cat sat "] * 9, "validation": ["a rat "], "test": ["the mat "]}, "bytes", "s", "r"
    )
    alone = {split: ngram_baselines(corpus, [split])[split] for split in ("validation", "test")}
    fits = []
    monkeypatch.setattr(ngrams, "fit_ngrams", lambda *args, **rest: fits.append(1) or fit_ngrams(*args, **rest))
    assert ngram_baselines(corpus, ("validation", "test")) == alone
    assert len(fits) == 1


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(ValueError, match="split='dev': must be one of"):
        ngram_baselines(load_text_corpus("wikipedia", "bytes"), ["dev"])
