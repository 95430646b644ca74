"""Chinese text for the tables of notebook 15: as text, so that a page needs no font of ours. □ is a mask."""

from collections.abc import Mapping, Sequence
from itertools import islice, pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from transnormer_lib.data.batches import IGNORE, Batch
from transnormer_lib.data.text import TextCorpus
from transnormer_lib.models.language_model import LanguageModel
from transnormer_lib.studies.bidirectional_lm.places import guesses
from transnormer_lib.studies.common.language_models import printable

MASK, BETWEEN, NOTHING = "□", "｜", "・"


def signs(corpus: TextCorpus, ids: NDArray[np.int64]) -> list[str]:
    """Every token as one sign: ⏎ for a new line, � for an unknown character, □ for the mask."""
    vocabulary = corpus.vocabulary
    return [MASK if one == vocabulary.mask_id else printable(vocabulary.decode([one])) for one in ids.tolist()]


def words(corpus: TextCorpus, ids: NDArray[np.int64], starts: NDArray[np.bool_]) -> str:
    """The text with a line between words."""
    parts = zip(signs(corpus, ids), starts.tolist(), strict=True)
    return "".join(BETWEEN + sign if start and at else sign for at, (sign, start) in enumerate(parts))


def masked_lines(corpus: TextCorpus, batch: Batch, starts_BN: NDArray[np.bool_], count: int) -> list[dict[str, str]]:
    """Three lines for each of the first ``count`` sequences: words, what the model sees, and what it has to guess."""
    lines = []
    sequences = zip(batch["input_ids"].numpy(), batch["targets"].numpy(), starts_BN, strict=True)
    for number, (seen, right, starts) in enumerate(islice(sequences, count), start=1):
        selected = right != IGNORE
        whole = np.where(selected, right, seen)
        wanted = [sign if chosen else NOTHING for sign, chosen in zip(signs(corpus, whole), selected, strict=True)]
        lines += [
            {"sequence": f"{number}, its words", "characters": words(corpus, whole, starts)},
            {"sequence": "the model sees", "characters": "".join(signs(corpus, seen))},
            {"sequence": "and has to guess", "characters": "".join(wanted)},
        ]
    return lines


def gaps(corpus: TextCorpus, count: int, length: int) -> list[tuple[NDArray[np.int64], tuple[int, ...]]]:
    """``count`` passages of the held-out text that begin with a review, and the places of one word in each.

    The word is the one nearest to the middle that has at least two characters, none of them unknown.
    """
    tokens, starts = corpus.tokens["validation"], corpus.word_starts["validation"]
    (line_break,) = corpus.vocabulary.encode("\n").tolist()
    begins = np.flatnonzero(tokens[:-length] == line_break) + 1
    found: list[tuple[NDArray[np.int64], tuple[int, ...]]] = []
    for begin in begins[len(begins) // 7 :: max(1, len(begins) // (7 * count))].tolist():
        ids = tokens[begin : begin + length].astype(np.int64)
        edges = [*np.flatnonzero(starts[begin : begin + length]).tolist(), length]
        spans = [list(range(a, b)) for a, b in pairwise(edges)]
        fitting = [span for span in spans if len(span) > 1 and min(ids[span]) > 0 and line_break not in ids[span]]
        if fitting and line_break not in ids[: length // 2]:
            middle = [abs(span[0] - length // 2) for span in fitting]
            found.append((ids, tuple(fitting[middle.index(min(middle))])))
        if len(found) == count:
            break
    return found


def filled(
    corpus: TextCorpus,
    passages: Sequence[tuple[NDArray[np.int64], tuple[int, ...]]],
    models: Mapping[str, LanguageModel],
) -> list[dict[str, str]]:
    """One line per passage: the text with its gap, the word that stood there, and the likeliest sign of every model."""
    vocabulary, lines = corpus.vocabulary, []
    for ids, places in passages:
        seen = ids.copy()
        seen[list(places)] = vocabulary.mask_id
        line = {"text": "".join(signs(corpus, seen)), "the word": "".join(signs(corpus, ids[list(places)]))}
        for row, model in models.items():
            likeliest = guesses(model, torch.from_numpy(ids), places, vocabulary.mask_id, 1)
            line[row] = "".join(signs(corpus, np.array([guess.tokens[0] for guess in likeliest])))
        lines.append(line)
    return lines
