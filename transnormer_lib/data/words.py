"""A vocabulary of whole words for WikiText-103: one id for each word of the training text.

The number of ids depends on the text. The training split of WikiText-103 has 267,733 distinct words; its authors
replaced words seen fewer than three times by ``<unk>``, and every line ends in ``</s>``. With these two, the padding
and the mask there are 267,737 ids, padded to a multiple of eight for tensor cores: the 267,744 rows of Table 13. This
is fairseq's dictionary, except that it has ``<s>`` where this one has the mask. A sample of the text has fewer words.
"""

import hashlib
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from transnormer_lib.data.vocabulary import SPECIAL, Tokens, Vocabulary

if TYPE_CHECKING:
    import pyarrow as pa

UNKNOWN, END = "<unk>", "</s>"
_MULTIPLE = 8


class WordVocabulary(Vocabulary):
    """Words separated by white space; a line break encodes as ``</s>``, an unknown word as ``<unk>``.

    ``decode`` writes lines as WikiText's files do, with a space before the first word and before the line break. It
    restores a text in this layout if all its words are known.
    """

    name = "words"

    def __init__(self, words: Iterable[str]) -> None:
        """``words`` in the order of their ids, ``<unk>`` and ``</s>`` among them."""
        self.words = list(words)
        self._ids = {word: index for index, word in enumerate(self.words)}
        if len(self._ids) != len(self.words):
            raise ValueError(f"words: must be distinct; {len(self.words)} given, {len(self._ids)} distinct")
        for special in (UNKNOWN, END):
            if special not in self._ids:
                raise ValueError(f"words: must include {special!r}")
        self.text_size = len(self.words)
        self.unknown_id, self.end_id = self._ids[UNKNOWN], self._ids[END]

    @property
    def size(self) -> int:
        return -(-(self.text_size + SPECIAL) // _MULTIPLE) * _MULTIPLE

    @cached_property
    def fingerprint(self) -> str:
        return hashlib.sha256("\n".join(["words", *self.words]).encode()).hexdigest()

    def encode(self, text: str) -> Tokens:
        text.encode()  # refuses lone surrogates, as the other vocabularies do
        ids: list[int] = []
        for number, line in enumerate(text.split("\n")):
            if number:
                ids.append(self.end_id)
            ids.extend(self._ids.get(word, self.unknown_id) for word in line.split())
        return np.array(ids, np.int32)

    def encode_lines(self, lines: "pa.Array") -> Tokens:
        """The ids [T] of lines of text, with or without their line breaks; faster than :meth:`encode`."""
        flat, counts = split_words(lines)
        encoded = flat.dictionary_encode()
        known = np.array([self._ids.get(word, self.unknown_id) for word in encoded.dictionary.to_pylist()], np.int32)
        ids = known[encoded.indices.to_numpy()] if len(flat) else np.empty(0, np.int32)
        out = np.full(len(ids) + len(counts), self.end_id, np.int32)
        out[np.arange(len(ids)) + np.repeat(np.arange(len(counts)), counts)] = ids
        return out

    def decode(self, tokens: ArrayLike) -> str:
        return "".join(
            " \n" if index == self.end_id else f" {self.words[index]}" for index in self._text_ids(tokens).tolist()
        )


def split_words(lines: "pa.Array") -> "tuple[Any, NDArray[np.int64]]":
    """All words of the lines in order, and the number of words per line [L]."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lists = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(lines.cast(pa.large_string())))
    words = lists.flatten()
    filled = pc.not_equal(words, "")  # a blank line gives one empty word
    kept = np.concatenate([[0], np.cumsum(filled.to_numpy(zero_copy_only=False))])
    ends = np.concatenate([[0], np.cumsum(pc.list_value_length(lists).to_numpy())])
    return words.filter(filled), np.diff(kept[ends])


def words_by_frequency(counts: Mapping[str, int], lines: int) -> list[str]:
    """The words, most frequent first, ties by their text; ``</s>`` counts once for each of the ``lines``."""
    every = {**counts, END: counts.get(END, 0) + lines}
    every.setdefault(UNKNOWN, 0)
    return sorted(every, key=lambda word: (-every[word], word))
