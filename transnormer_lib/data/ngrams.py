"""N-gram language models on the same tokens as the neural models: the baselines of every comparison.

Interpolated Witten-Bell smoothing (Witten & Bell 1991, method C; the recursion as in Chen & Goodman 1999):

    p_0(w) = 1 / V
    p_k(w | h) = (c(h w) + t(h) p_{k-1}(w | h')) / (c(h) + t(h))

h: the k - 1 tokens before w; h': h without its first token; c(h w): count in the training tokens; c(h): its sum over
w; t(h): number of distinct tokens seen after h; V: vocabulary size. For an unseen context p_k = p_{k-1}. The weights
follow from the counts, so nothing is tuned; p_k sums to one over the vocabulary, and no token has probability zero.

Contexts cross document borders, as the training windows of the neural models do. These models read from left to right;
``two_sided_ngrams`` has the one for masked language models.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transnormer_lib.checks import check_choice, check_count
from transnormer_lib.data.text import TextCorpus
from transnormer_lib.data.vocabulary import Tokens, check_tokens

Keys = NDArray[np.int64]  # an n-gram as one number, base V, the oldest token most significant


@dataclass(frozen=True)
class Counts:
    """How often each token w follows each context h, keys sorted. Build it with :func:`count`."""

    ngrams: Keys  # [n], h V + w
    counts: NDArray[np.int64]  # [n], c(h w)
    contexts: Keys  # [m], h
    totals: NDArray[np.int64]  # [m], c(h)
    types: NDArray[np.int64]  # [m], t(h)


@dataclass(frozen=True)
class NgramModel:
    """Interpolated models of all orders up to ``order``. Build it with :func:`fit_ngrams`."""

    order: int
    vocabulary_size: int  # V
    orders: tuple[Counts, ...]

    def log_probabilities(self, tokens: Tokens) -> NDArray[np.float64]:
        """[order, T] nats: row k - 1 holds log p_k of each token given the k - 1 tokens before it.

        The first tokens have fewer predecessors and use the highest order that these allow. Raises ValueError for a
        token outside the vocabulary.
        """
        check_tokens(tokens, self.vocabulary_size)
        p_T = np.full(tokens.size, 1 / self.vocabulary_size)
        rows = np.empty((self.order, tokens.size))
        for k, counts in enumerate(self.orders, start=1):
            keys = _keys(tokens, k, self.vocabulary_size)
            p_T[k - 1 :] = witten_bell(counts, keys, p_T[k - 1 :], self.vocabulary_size)
            rows[k - 1] = np.log(p_T)
        return rows

    def nats_per_token(self, tokens: Tokens) -> NDArray[np.float64]:
        """[order]: the mean loss of the 1-gram, 2-gram, … on ``tokens`` [T], T at least 1."""
        if not tokens.size:
            raise ValueError("tokens: must hold at least one token")
        return -self.log_probabilities(tokens).mean(axis=1)


def fit_ngrams(tokens: Tokens, *, order: int, vocabulary_size: int) -> NgramModel:
    """Count the n-grams of ``tokens`` [T], T at least ``order``.

    Raises ValueError if a number is out of range, or an n-gram of this order does not fit into 63 bits.
    """
    check_count("order", order)
    check_count("vocabulary_size", vocabulary_size)
    if vocabulary_size**order >= 2**63:
        raise ValueError(f"order={order!r}: vocabulary_size ** order must be below 2 ** 63")
    check_tokens(tokens, vocabulary_size)
    if tokens.size < order:
        raise ValueError(f"tokens: has {tokens.size}, must have at least order={order}")
    orders = (count(_keys(tokens, k, vocabulary_size), vocabulary_size) for k in range(1, order + 1))
    return NgramModel(order, vocabulary_size, tuple(orders))


@dataclass(frozen=True)
class Baseline:
    """One n-gram model's result on one split."""

    order: int  # 1 unigram, 2 bigram, …
    nats_per_token: float
    bits_per_byte: float
    word_perplexity: float


def ngram_baselines(
    corpus: TextCorpus, splits: Sequence[str] = ("validation",), *, order: int = 3
) -> dict[str, list[Baseline]]:
    """The 1-gram to ``order``-gram models counted on train, measured on the whole of each split.

    V includes the special ids, so that these models predict over the same ids as the neural ones.
    """
    for split in splits:
        check_choice("split", split, corpus.tokens)
    model = fit_ngrams(corpus.tokens["train"], order=order, vocabulary_size=corpus.vocabulary.size)
    return {
        split: [
            Baseline(k, nats, corpus.bits_per_byte(nats, split), corpus.word_perplexity(nats, split))
            for k, nats in enumerate(model.nats_per_token(corpus.tokens[split]).tolist(), start=1)
        ]
        for split in splits
    }


def _keys(tokens: Tokens, order: int, vocabulary_size: int) -> Keys:
    """[T - order + 1]: every n-gram of the tokens, in order."""
    keys = np.zeros(max(tokens.size - order + 1, 0), np.int64)
    for offset in range(order):
        keys = keys * vocabulary_size + tokens[offset : offset + keys.size]
    return keys


def count(keys: Keys, vocabulary_size: int) -> Counts:
    """The counts of n-grams ``keys`` [T], T at least 1, whose last token is the predicted one."""
    ngrams, counts = np.unique(keys, return_counts=True)
    # The n-grams are sorted, so their contexts are too, and each context is one run.
    contexts, first, types = np.unique(ngrams // vocabulary_size, return_index=True, return_counts=True)
    return Counts(ngrams, counts, contexts, np.add.reduceat(counts, first), types)


def witten_bell(counts: Counts, keys: Keys, lower: NDArray[np.float64], vocabulary_size: int) -> NDArray[np.float64]:
    """The recursion above: p_k of each n-gram in ``keys`` [C], from p_{k-1} of the same tokens, ``lower`` [C]."""
    seen = _look_up(counts.ngrams, counts.counts, keys)
    contexts = keys // vocabulary_size
    total = _look_up(counts.contexts, counts.totals, contexts)
    types = _look_up(counts.contexts, counts.types, contexts)
    known = total > 0
    return np.where(known, (seen + types * lower) / np.where(known, total + types, 1), lower)


def _look_up(keys: Keys, values: NDArray[np.int64], wanted: Keys) -> NDArray[np.int64]:
    """The value of each wanted key, 0 if it is not among the sorted keys."""
    place = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
    return np.where(keys[place] == wanted, values[place], 0)
