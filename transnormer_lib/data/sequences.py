"""From rows of text to sequences of tokens: single texts, pairs, texts with candidates, questions about passages.

- A *choice* is a group of sequences, one for each candidate: text, newline, candidate. A text that is too long is cut
  to a window around its centre (``task_kinds.ChoiceRows``); a candidate is cut only beyond half of the length.
- A *span* is read in a passage: question, newline, passage. A passage that is too long is cut into windows of one
  length, each half over the next, and all of them, each with the question, are one group. So nothing of a passage is
  lost, at training or at evaluation. The answer is marked in every window that holds all of it, and the loss counts the
  probability of all marked tokens. An answer that no window holds is marked as far as the window goes that holds most
  of it; evaluation still compares with the whole answer. Usual practice trains each window as an example of its own,
  with "no answer" for those without the answer; here one softmax runs over all windows of a passage (shared
  normalisation: Clark & Gardner, 2018).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transnormer_lib.data import examples
from transnormer_lib.data.examples import END, START, Examples, Passages
from transnormer_lib.data.task_kinds import ChoiceRows, Rows, SpanRows, TextRows
from transnormer_lib.data.vocabulary import ByteVocabulary, Vocabulary

SEPARATOR = "\n"  # between the texts of a joined pair, and in place of an empty text


def encoded(rows: Rows, words: Vocabulary, length: int, joined: bool) -> Examples:
    """The examples of some rows, each sequence at most ``length`` tokens; ``joined``: a pair is one sequence."""
    if isinstance(rows, ChoiceRows):
        return _choices(rows, words, length)
    if isinstance(rows, SpanRows):
        return _spans(rows, words, length)
    return _texts(rows, words, length, joined)


def joined_pair(
    a: NDArray[Any], separator: NDArray[Any], b: NDArray[Any], length: int, centre: int = 0
) -> NDArray[Any]:
    """a, separator, b in at most ``length`` tokens: the longer text is cut down to the shorter, then both.

    Of ``a`` a window around the token ``centre`` is kept, its beginning for 0; of ``b`` the beginning.
    """
    room = max(length - separator.size, 0)
    keep_b = min(b.size, max(room - a.size, room // 2))
    keep_a = room - keep_b
    first = max(min(centre - keep_a // 2, a.size - keep_a), 0)
    return np.concatenate([a[first : first + keep_a], separator, b[:keep_b]])[:length]


def _texts(rows: TextRows, words: Vocabulary, length: int, joined: bool) -> Examples:
    columns = [_sequences(texts, words, length) for texts in (rows.first, rows.second) if texts is not None]
    if joined:
        separator = words.encode(SEPARATOR)
        cut = [joined_pair(a, separator, b, length) for a, b in zip(*columns, strict=True)]
    else:
        cut = [text[:length] for row in zip(*columns, strict=True) for text in row]
    return examples.from_sequences(cut, rows.labels, words.size)


def _sequences(texts: Sequence[str], words: Vocabulary, length: int) -> list[NDArray[Any]]:
    """The tokens of each text, at least the first ``length`` of them.

    An empty text (QQP has some) becomes a newline, because a sequence must have a token.
    """
    # A character has at least one byte, so a byte vocabulary needs at most ``length`` characters.
    most = length if isinstance(words, ByteVocabulary) else None
    return [words.encode(text[:most] or SEPARATOR) for text in texts]


def _choices(rows: ChoiceRows, words: Vocabulary, length: int) -> Examples:
    separator = words.encode(SEPARATOR)
    groups = []
    for text, centre, candidates in zip(rows.texts, rows.centres, rows.candidates, strict=True):
        tokens, place = words.encode(text), words.encode(text[:centre]).size
        groups.append([joined_pair(tokens, separator, words.encode(one), length, place) for one in candidates])
    return examples.from_groups(groups, rows.labels, words.size)


def _spans(rows: SpanRows, words: Vocabulary, length: int) -> Examples:
    separator = words.encode(SEPARATOR)
    groups, places, marks, labels = [], [], [], []
    for question, passage, answers in zip(rows.questions, rows.passages, rows.answers, strict=True):
        before = np.concatenate([words.encode(question)[: length // 2 - separator.size], separator])
        tokens, character = words.encode(passage), _characters(passage, words)
        first, last = _nearest(passage, *answers[0])
        start, end = (int(place) for place in np.searchsorted(character, [first, last + 1]))  # of the answer's tokens
        cuts = windows(tokens.size, length - before.size)
        held = [min(end, b) - max(start, a) for a, b in cuts]  # tokens of the answer in each window
        marked = (
            [of == end - start for of in held] if max(held) == end - start else np.arange(len(held)) == np.argmax(held)
        )
        for (a, b), here in zip(cuts, marked, strict=True):
            places.append(np.concatenate([np.full(before.size, -1), character[a:b]]))
            marks.append(np.zeros(before.size + b - a, np.uint8))
            if here:
                marks[-1][before.size + max(start, a) - a] += START
                marks[-1][before.size + min(end, b) - 1 - a] += END
        groups.append([np.concatenate([before, tokens[a:b]]) for a, b in cuts])
        labels.append(int(np.argmax(marked)))
    made = examples.from_groups(groups, np.array(labels, np.int64), words.size)
    columns = zip(rows.questions, rows.passages, rows.answers, strict=True)
    texts = tuple((question, passage, *(text for _, text in answers)) for question, passage, answers in columns)
    passages = Passages(np.concatenate(places).astype(np.int32), np.concatenate(marks), texts)
    return Examples(made.tokens, made.offsets, made.labels, made.groups, passages)


def windows(size: int, room: int) -> list[tuple[int, int]]:
    """First token and end of the windows that cover ``size`` tokens: ``room`` each, neighbours share half or more."""
    last = max(size - room, 0)
    firsts = [*range(0, last, max(room // 2, 1)), last]
    return [(first, min(first + room, size)) for first in firsts]


def _characters(text: str, words: Vocabulary) -> NDArray[np.int64]:
    """[T]: the character that each token of ``text`` is, or is part of; no token may hold several."""
    return np.arange(len(text)).repeat([words.encode(sign).size for sign in text])


def _nearest(passage: str, first: int, answer: str) -> tuple[int, int]:
    """The first and the last character of the answer in the passage.

    Some rows of CMRC name a place that is off by a few characters, so the occurrence nearest to it counts; without one,
    the place itself, within the passage.
    """
    found, at = [], passage.find(answer)
    while at >= 0:
        found.append(at)
        at = passage.find(answer, at + 1)
    nearest = min(found, key=lambda place: abs(place - first), default=max(min(first, len(passage) - 1), 0))
    return nearest, min(nearest + len(answer), len(passage)) - 1
