"""The two-sided n-gram model against its definition, at places that are masked as a model sees them."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transnormer_lib.data.batches import IGNORE, Batch, evaluation_windows
from transnormer_lib.data.corpora import load_text_corpus
from transnormer_lib.data.masking import MaskingConfig
from transnormer_lib.data.ngrams import fit_ngrams, ngram_baselines
from transnormer_lib.data.text import TextCorpus, build_corpus
from transnormer_lib.data.two_sided_ngrams import UNSEEN, TwoSidedModel, fit_two_sided, two_sided_bits

V = 5
streams = st.lists(st.integers(0, V - 1), min_size=3, max_size=60)
neighbours = st.integers(UNSEEN, V)  # V: a token that the training text never has


def smoothed(followers: Iterable[int], token: int, lower: float) -> float:
    """One step of Witten-Bell smoothing: the tokens that were seen in a context, and p without that context."""
    counts = Counter(followers)
    if not counts:
        return lower
    return (counts[token] + len(counts) * lower) / (counts.total() + len(counts))


def probability(train: Sequence[int], token: int, left: int, right: int) -> float:
    """p(w | l, r) of the module's docstring, from the whole text for every probability."""
    inner, pairs = range(1, len(train) - 1), range(1, len(train))
    alone = smoothed(train, token, 1 / (V + 1))
    after = smoothed((train[at] for at in pairs if train[at - 1] == left), token, alone)
    before = smoothed((train[at - 1] for at in pairs if train[at] == right), token, alone)
    if UNSEEN in (left, right):
        return after if right == UNSEEN else before  # beside a neighbour that cannot be seen no token was seen either
    between = (train[at] for at in inner if (train[at - 1], train[at + 1]) == (left, right))
    return smoothed(between, token, (after + before) / 2)


def fitted(train: Sequence[int], size: int = V + 1) -> TwoSidedModel:
    return fit_two_sided(np.array(train, np.int32), vocabulary_size=size)


def everywhere(model: TwoSidedModel, left: int, right: int) -> np.ndarray:
    """[V]: the probability of every token between two neighbours."""
    ids = np.arange(model.vocabulary_size)
    return model.probabilities(ids, np.full_like(ids, left), np.full_like(ids, right))


@given(train=streams, left=neighbours, right=neighbours)
def test_probabilities_are_those_of_the_definition_and_sum_to_one(train: list[int], left: int, right: int) -> None:
    found = everywhere(fitted(train), left, right)
    expected = [probability(train, token, left, right) for token in range(V + 1)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert found.sum() == pytest.approx(1.0, abs=1e-12)
    assert found.min() > 0


@given(train=streams, token=st.integers(0, V - 1))
def test_with_one_neighbour_it_is_the_bigram_of_that_side_and_with_none_the_unigram(
    train: list[int], token: int
) -> None:
    model, text = fitted(train), np.array(train, np.int32)
    for reading, sides in ((text, (token, UNSEEN)), (text[::-1], (UNSEEN, token))):
        grams = fit_ngrams(reading, order=2, vocabulary_size=V + 1)
        rows = [np.exp(grams.log_probabilities(np.array([token, other], np.int32))[:, 1]) for other in range(V + 1)]
        unigram, bigram = np.transpose(rows)
        np.testing.assert_allclose(everywhere(model, *sides), bigram, rtol=1e-12)
        np.testing.assert_allclose(everywhere(model, UNSEEN, UNSEEN), unigram, rtol=1e-12)


def toy() -> TextCorpus:
    documents = {"train": ["the cat sat on the mat " * 20], "validation": ["the rat sat "], "test": ["a mat "]}
    return build_corpus("toy", documents, "bytes", "s", "r")


def window(corpus: TextCorpus, seen: str, text: str) -> Batch:
    """What a model sees of ``text``: ``_`` is a mask, a capital letter a place that is selected but not masked."""
    ids = [corpus.vocabulary.mask_id if sign == "_" else ord(sign.lower()) for sign in seen]
    targets = [ord(t) if sign == "_" or sign.isupper() else IGNORE for sign, t in zip(seen, text, strict=True)]
    return {"input_ids": torch.tensor([ids]), "targets": torch.tensor([targets])}


def in_text(model: TwoSidedModel, place: str) -> float:
    """p of the middle letter; a neighbour ``_`` cannot be seen."""
    left, token, right = (UNSEEN if sign == "_" else ord(sign) for sign in place)
    return model.probabilities(*(np.array([one]) for one in (token, left, right))).item()


@pytest.mark.parametrize(
    ("seen", "place"),
    [("th_ cat", "he "), ("t__ cat", "_e "), ("th__cat", "he_"), ("t___cat", "_e_")],
    ids=["both", "right", "left", "none"],
)
def test_a_masked_neighbour_is_left_out(seen: str, place: str) -> None:
    corpus = toy()
    batch = window(corpus, seen, "the cat")
    batch["targets"] = torch.where(torch.arange(7) == 2, batch["targets"], IGNORE)
    model = fit_two_sided(corpus.tokens["train"], vocabulary_size=corpus.vocabulary.size)
    expected = -math.log2(in_text(model, place))
    assert two_sided_bits(corpus, [batch], MaskingConfig()) == pytest.approx(expected)


def test_nothing_is_seen_beyond_the_ends_of_a_sequence() -> None:
    corpus = toy()
    model = fit_two_sided(corpus.tokens["train"], vocabulary_size=corpus.vocabulary.size)
    expected = -math.log2(in_text(model, "_th")), -math.log2(in_text(model, "he_"))
    found = two_sided_bits(corpus, [window(corpus, "_h_", "the")], MaskingConfig())
    assert found == pytest.approx(sum(expected) / 2)


@pytest.mark.parametrize("there", ["E", "X"], ids=["kept", "random"])
def test_a_token_in_the_selected_place_is_trusted_by_bayes_rule(there: str) -> None:
    corpus, masking = toy(), MaskingConfig(masked=0.5, random=0.2)
    model = fit_two_sided(corpus.tokens["train"], vocabulary_size=corpus.vocabulary.size)
    between = everywhere(model, ord("h"), ord(" "))
    likelihood = np.full(corpus.vocabulary.size, 0.2 / 256)
    likelihood[ord(there.lower())] += 0.3
    posterior = likelihood * between / (likelihood @ between)
    found = two_sided_bits(corpus, [window(corpus, f"th{there} cat", "the cat")], masking)
    assert found == pytest.approx(-math.log2(posterior[ord("e")]))


def test_every_selected_place_of_all_batches_counts_alike() -> None:
    corpus = toy()
    first, second = window(corpus, "th_ ca_", "the cat"), window(corpus, "_he cat", "the cat")
    two, one = (two_sided_bits(corpus, [batch], MaskingConfig()) for batch in (first, second))
    assert two_sided_bits(corpus, [first, second], MaskingConfig()) == pytest.approx((2 * two + one) / 3)


def test_on_held_out_bytes_the_right_neighbour_is_worth_more_than_a_second_left_one() -> None:
    corpus, masking = load_text_corpus("wikipedia", "bytes"), MaskingConfig()

    def bits(batch_size: int, masking: MaskingConfig = masking) -> float:
        shape = {"length": 32, "batch_size": batch_size, "limit": 1024}
        batches = evaluation_windows(corpus.tokens["validation"], **shape, masked=(corpus.vocabulary, masking))
        return two_sided_bits(corpus, batches, masking)

    _, bigram, trigram = (gram.nats_per_token / math.log(2) for gram in ngram_baselines(corpus)["validation"])
    two_sided, masks_alone = bits(1024), bits(1024, MaskingConfig(masked=1.0, random=0.0))
    assert 2.4 < two_sided < masks_alone < trigram < bigram
    assert two_sided == bits(1024)
    assert two_sided == pytest.approx(bits(100), abs=1e-12)


@pytest.mark.parametrize(
    ("tokens", "size", "message"),
    [
        ([0, 1], 5, "tokens: has 2, must have at least 3"),
        ([0, 1, 5], 5, r"tokens=5: must be in \[0, 5\)"),
        ([0, 1, 2], 0, "vocabulary_size=0: must be a whole number of at least 1"),
        ([0, 1, 2], 2_100_000, r"vocabulary_size=2100000: its third power must be below 2 \*\* 63"),
    ],
)
def test_wrong_arguments_are_named_with_value_and_rule(tokens: list[int], size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fitted(tokens, size)


def test_batches_without_a_selected_token_are_refused() -> None:
    corpus = toy()
    for batches in ([], [window(corpus, "the cat", "the cat")]):
        with pytest.raises(ValueError, match="batches: must have at least one selected token"):
            two_sided_bits(corpus, batches, MaskingConfig())
