"""A vocabulary of single characters, and where the words of a Chinese text begin.

Chinese is written without spaces, so a word is what a segmenter says it is. rjieba (the Rust form of jieba, with its
dictionary) cuts a text into the likeliest words of a dictionary, and names unknown ones by a hidden Markov model.
Whole-word masking (``masking``) needs to know where words begin; the model itself reads characters.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from transnormer_lib.data.faults import DataUnavailable
from transnormer_lib.data.vocabulary import Tokens, Vocabulary

UNKNOWN = "\N{REPLACEMENT CHARACTER}"  # what an unknown character decodes to
_CODE_POINTS = 0x110000


class CharacterVocabulary(Vocabulary):
    """One id for each of the most frequent characters; id 0 is every other character, and decodes to �."""

    def __init__(self, characters: str) -> None:
        """``characters`` in the order of their ids, from 1 on. Raises ValueError if one occurs twice."""
        if len(set(characters)) != len(characters):
            raise ValueError(f"characters: must be distinct; {len(characters)} given, {len(set(characters))} distinct")
        self.characters = characters
        self.text_size = len(characters) + 1
        self.name = f"chars-{self.text_size}"
        self._id_of = np.zeros(_CODE_POINTS, np.int32)  # by code point
        self._id_of[_code_points(characters)] = np.arange(1, self.text_size)

    @property
    def definition(self) -> str:
        """The whole vocabulary as JSON, a text of its characters."""
        return json.dumps(self.characters, ensure_ascii=False)

    @cached_property
    def fingerprint(self) -> str:
        return hashlib.sha256(f"characters\n{self.characters}".encode()).hexdigest()

    def encode(self, text: str) -> Tokens:
        text.encode()  # refuses lone surrogates, as the other vocabularies do
        return self._id_of[_code_points(text)]

    def decode(self, tokens: ArrayLike) -> str:
        signs = UNKNOWN + self.characters
        return "".join(signs[index] for index in self._text_ids(tokens).tolist())


def most_frequent(texts: Iterable[str], pieces: int) -> CharacterVocabulary:
    """The vocabulary of ``pieces`` ids, the unknown one among them: the most frequent characters, ties by code point.

    It has fewer if the texts have fewer characters.
    """
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    ranked = sorted(counts, key=lambda sign: (-counts[sign], sign))
    return CharacterVocabulary("".join(ranked[: pieces - 1]))


def _code_points(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


def segmenter() -> Any:
    """rjieba, imported where it is needed. Raises DataUnavailable if it is not installed."""
    try:
        import rjieba
    except ImportError:
        raise DataUnavailable("package 'rjieba' is not installed; to get it: pip install rjieba") from None
    return rjieba


def segmenter_version() -> str:
    """The segmenter and its version, on which the words depend; raises as :func:`segmenter`."""
    segmenter()
    return f"rjieba {version('rjieba')}"


def words(text: str) -> list[str]:
    """The words of a text; joined, they give it again. Raises as :func:`segmenter`."""
    found: list[str] = segmenter().cut(text)
    return found


def word_starts(texts: Sequence[str]) -> NDArray[np.bool_]:
    """[T], for every character of the texts: whether a word begins there. Each text is cut into words by itself."""
    cut = segmenter().cut
    lengths = np.fromiter((len(word) for text in texts for word in cut(text)), np.int64)
    starts = np.zeros(int(lengths.sum()), np.bool_)
    starts[lengths.cumsum() - lengths] = True
    return starts
