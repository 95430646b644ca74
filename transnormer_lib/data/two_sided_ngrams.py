"""An n-gram model that reads both sides of a gap: what a masked language model has to beat.

It predicts the selected token w from its neighbours, l on the left and r on the right, by Witten-Bell smoothing as in
``ngrams``, with c, t and V as there:

    p(w)        = (c(w) + t / V) / (c + t)
    p(w | l)    = (c(l w) + t(l) p(w)) / (c(l) + t(l))                 p(w | r) alike, from c(w r)
    m(w | l, r) = (p(w | l) + p(w | r)) / 2
    p(w | l, r) = (c(l w r) + t(l, r) m(w | l, r)) / (c(l, r) + t(l, r))

A neighbour that cannot be seen, because it is masked or outside the sequence, is left out: p(w | l), p(w | r) or p(w).
A neighbour that a random token replaced is taken for the text's, because it looks the same. All of these sum to one
over the vocabulary.

What stands in the selected place, s, counts too. A masked model sees the mask there, a random token or the token itself
(``masking``), so Bayes' rule gives, with k and ρ the shares of kept and random tokens and U the number of text ids:

    p(w | s, l, r) ∝ P(s | w) p(w | l, r)          P(s | w) = k [w = s] + ρ / U, for the mask the same for every w

Shapes: B batch, N length, C selected places, T training tokens.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transnormer_lib.checks import check_count
from transnormer_lib.data.batches import IGNORE, Batch
from transnormer_lib.data.masking import MaskingConfig
from transnormer_lib.data.ngrams import Counts, count, witten_bell
from transnormer_lib.data.text import TextCorpus
from transnormer_lib.data.vocabulary import Tokens, check_tokens

UNSEEN = -1  # stands for a neighbour that is masked or outside the sequence

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class TwoSidedModel:
    """Counts of a token alone, beside one neighbour and between two. Build it with :func:`fit_two_sided`."""

    vocabulary_size: int  # V
    alone: Counts  # c(w)
    after: Counts  # c(l w), the context is l
    before: Counts  # c(w r), the context is r
    between: Counts  # c(l w r), the context is the pair (l, r)

    def probabilities(self, tokens_C: Ids, left_C: Ids, right_C: Ids) -> NDArray[np.float64]:
        """[C]: p(w | l, r) of each token, without the neighbours that are :data:`UNSEEN`."""
        V = self.vocabulary_size
        known_left, known_right = left_C != UNSEEN, right_C != UNSEEN
        l_C, r_C = np.where(known_left, left_C, 0), np.where(known_right, right_C, 0)  # 0: not used below
        p_C = witten_bell(self.alone, tokens_C, np.full(tokens_C.shape, 1 / V), V)
        given_l_C = np.where(known_left, witten_bell(self.after, l_C * V + tokens_C, p_C, V), p_C)
        given_r_C = np.where(known_right, witten_bell(self.before, r_C * V + tokens_C, p_C, V), p_C)
        mixed_C = (given_l_C + given_r_C) / 2
        both_C = witten_bell(self.between, (l_C * V + r_C) * V + tokens_C, mixed_C, V)
        return np.where(known_left, np.where(known_right, both_C, given_l_C), given_r_C)


def fit_two_sided(tokens: Tokens, *, vocabulary_size: int) -> TwoSidedModel:
    """Count ``tokens`` [T], T at least 3.

    Raises ValueError for a token outside the vocabulary, or if three tokens do not fit into 63 bits.
    """
    check_count("vocabulary_size", vocabulary_size)
    V = vocabulary_size
    if V**3 >= 2**63:
        raise ValueError(f"vocabulary_size={V!r}: its third power must be below 2 ** 63")
    check_tokens(tokens, V)
    if tokens.size < 3:
        raise ValueError(f"tokens: has {tokens.size}, must have at least 3")
    ids = tokens.astype(np.int64)
    return TwoSidedModel(
        vocabulary_size=V,
        alone=count(ids, V),
        after=count(ids[:-1] * V + ids[1:], V),
        before=count(ids[1:] * V + ids[:-1], V),
        between=count((ids[:-2] * V + ids[2:]) * V + ids[1:-1], V),
    )


def two_sided_bits(corpus: TextCorpus, batches: Iterable[Batch], masking: MaskingConfig) -> float:
    """Mean bits per selected token of masked ``batches``, with the counts of the corpus's training text.

    ``masking`` is how the batches were masked. The model predicts over all ids, as the neural ones do.

    Raises ValueError if no token is selected.
    """
    model = fit_two_sided(corpus.tokens["train"], vocabulary_size=corpus.vocabulary.size)
    mask_id, ids = corpus.vocabulary.mask_id, corpus.vocabulary.text_size
    bits = [_bits(model, batch, masking, mask_id, ids) for batch in batches]
    if not sum(map(len, bits)):
        raise ValueError("batches: must have at least one selected token")
    return float(np.concatenate(bits).mean())


def _bits(model: TwoSidedModel, batch: Batch, masking: MaskingConfig, mask_id: int, ids: int) -> NDArray[np.float64]:
    """[C]: the loss at every selected place of a batch."""
    seen_BN, target_BN = batch["input_ids"].numpy(), batch["targets"].numpy()
    selected_BN = target_BN != IGNORE
    around_BM = np.pad(np.where(seen_BN == mask_id, UNSEEN, seen_BN), ((0, 0), (1, 1)), constant_values=UNSEEN)
    left_C, right_C = around_BM[:, :-2][selected_BN], around_BM[:, 2:][selected_BN]
    target_C, seen_C = target_BN[selected_BN], seen_BN[selected_BN]
    p_C = model.probabilities(target_C, left_C, right_C)
    at = seen_C != mask_id
    kept, random = 1.0 - masking.masked - masking.random, masking.random / ids
    p_of_seen = model.probabilities(seen_C[at], left_C[at], right_C[at])
    p_C[at] *= (kept * (target_C[at] == seen_C[at]) + random) / (kept * p_of_seen + random)  # P(s | w) / P(s)
    return -np.log2(p_C)
