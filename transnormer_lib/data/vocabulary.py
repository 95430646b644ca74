"""Vocabularies: text to token ids and back, without loss.

Ids 0 … ``text_size`` - 1 represent text; ``encode`` never returns the special ids after them. Bytes and byte pairs are
lossless on every string that UTF-8 can encode: ``decode(encode(text)) == text``.
"""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from transnormer_lib.data import cache

Tokens = NDArray[np.int32]

SPECIAL = 2  # pad and mask
# Vocabulary sizes of Table 13, all ids counted: the words of WikiText-103 rounded up to a multiple of eight, and
# GPT-2's byte-pair pieces with RoBERTa's special tokens. With them a model's size is known without the data.
PUBLISHED_SIZES = {"wikitext-103-words": 267_744, "gpt2-bpe": 50_265}
GPT2_PIECES = 50_257  # 256 bytes, 50,000 merges, and an end-of-text token that no text contains
_BPE_NAME = re.compile(r"bpe-([1-9][0-9]*)")
_CHARACTERS_NAME = re.compile(r"chars-([1-9][0-9]*)")
_BYTES = 256


def check_tokens(tokens: NDArray[Any], size: int | None = None) -> None:
    """Refuse anything but integers of shape [T], and ids outside [0, ``size``)."""
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        raise ValueError(f"tokens: must be integers of shape [T], not {tokens.dtype} of shape {list(tokens.shape)}")
    if size is not None:
        outside = tokens[(tokens < 0) | (tokens >= size)]
        if outside.size:
            raise ValueError(f"tokens={outside[0]}: must be in [0, {size})")


class Vocabulary(ABC):
    """The interface of every vocabulary."""

    name: str  # bytes, bpe-N, chars-N, gpt2-bpe or words
    text_size: int  # number of ids that represent text

    @property
    def size(self) -> int:
        """Number of ids, and of rows in a model's embedding."""
        return self.text_size + SPECIAL

    @property
    def pad_id(self) -> int:
        return self.text_size

    @property
    def mask_id(self) -> int:
        return self.text_size + 1

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """sha256, hex, of everything that decides how this vocabulary encodes."""

    @abstractmethod
    def encode(self, text: str) -> Tokens:
        """The ids [T] of ``text``.

        Raises UnicodeEncodeError if ``text`` holds a lone surrogate, which UTF-8 cannot encode.
        """

    @abstractmethod
    def decode(self, tokens: ArrayLike) -> str:
        """The text of the ids [T]; special ids give nothing, and an incomplete character becomes �.

        Raises ValueError if an id is not in the vocabulary, or no integer.
        """

    def encode_all(self, texts: Sequence[str]) -> Tokens:
        """The ids [T] of the texts, each encoded separately, concatenated."""
        return np.concatenate([np.empty(0, np.int32), *map(self.encode, texts)])

    def _text_ids(self, tokens: ArrayLike) -> NDArray[np.int64]:
        given = np.asarray(tokens)
        ids = given.astype(np.int64)
        check_tokens(given if given.size else ids, self.size)  # an empty list is an array of floats
        return ids[ids < self.text_size]


class ByteVocabulary(Vocabulary):
    """One id for each byte of the UTF-8 encoding."""

    name = "bytes"
    text_size = _BYTES
    fingerprint = hashlib.sha256(b"utf-8 bytes, pad, mask").hexdigest()

    def encode(self, text: str) -> Tokens:
        return np.frombuffer(text.encode(), np.uint8).astype(np.int32)

    def decode(self, tokens: ArrayLike) -> str:
        return self._text_ids(tokens).astype(np.uint8).tobytes().decode(errors="replace")


class BPEVocabulary(Vocabulary):
    """Byte-level byte-pair encoding: the 256 bytes, then merges of frequent pairs inside a word.

    A word includes the space before it (GPT-2's pre-tokenisation). Build one with :func:`train_bpe`.
    """

    def __init__(self, definition: str) -> None:
        """``definition``: the whole vocabulary as JSON, in the format of the ``tokenizers`` library."""
        from tokenizers import Tokenizer

        self._tokenizer: Any = Tokenizer.from_str(definition)
        self.definition = definition
        self.text_size = self._tokenizer.get_vocab_size()
        self.name = f"bpe-{self.text_size}"

    @cached_property
    def fingerprint(self) -> str:
        # The library sorts the vocabulary by id and the merges by rank; dumping again normalises the layout.
        model = json.loads(self.definition)
        return hashlib.sha256(json.dumps(model, sort_keys=True).encode()).hexdigest()

    def encode(self, text: str) -> Tokens:
        text.encode()  # refuses lone surrogates with the error of ByteVocabulary, not the library's
        return np.array(self._tokenizer.encode(text).ids, np.int32)

    def encode_all(self, texts: Sequence[str]) -> Tokens:
        ids = [np.array(encoding.ids, np.int32) for encoding in self._tokenizer.encode_batch(list(texts))]
        return np.concatenate([np.empty(0, np.int32), *ids])

    def decode(self, tokens: ArrayLike) -> str:
        return str(self._tokenizer.decode(self._text_ids(tokens).tolist(), skip_special_tokens=False))


class PaddedBPEVocabulary(BPEVocabulary):
    """Byte pairs with as many ids as a published vocabulary; the last ids are unused.

    ``gpt2-bpe`` has the 50,265 ids of Table 13: GPT-2's 50,257 pieces, the padding, the mask, and six unused ones.
    RoBERTa's dictionary has its other special tokens there, and pads to a multiple of eight before the mask.
    """

    def __init__(self, definition: str, name: str) -> None:
        super().__init__(definition)
        self.name = name
        if self.text_size + SPECIAL > self.size:
            raise ValueError(f"pieces={self.text_size}: {name} has room for {self.size - SPECIAL}")

    @property
    def size(self) -> int:
        return PUBLISHED_SIZES[self.name]


def gpt2_vocabulary(vocabulary: Path, merges: Path) -> PaddedBPEVocabulary:
    """``gpt2-bpe`` from the files published with GPT-2."""
    from tokenizers import models

    return PaddedBPEVocabulary(_byte_level(models.BPE.from_file(str(vocabulary), str(merges))).to_str(), "gpt2-bpe")


def train_bpe(texts: Iterable[str], pieces: int, *, exact: bool = True) -> BPEVocabulary:
    """A BPE vocabulary of ``pieces`` pieces, learned on ``texts``; the same texts give the same vocabulary.

    Without ``exact`` it has fewer pieces if the texts yield no more. Raises ValueError if ``pieces`` is below 256, or
    the texts hold too few distinct pairs for so many pieces.
    """
    from tokenizers import models, pre_tokenizers, trainers

    if pieces < _BYTES:
        raise ValueError(f"pieces={pieces}: must be at least {_BYTES}, one for each byte")
    tokenizer = _byte_level(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=pieces, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    trained = BPEVocabulary(tokenizer.to_str())
    if exact and trained.text_size != pieces:
        raise ValueError(f"pieces={pieces}: the texts give only {trained.text_size}")
    return trained


def _byte_level(model: Any) -> Any:
    from tokenizers import Tokenizer, decoders, pre_tokenizers

    tokenizer: Any = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def encoder_version() -> tuple[str, str]:
    """For cache keys: the versions of this file and of the library, on which encoding depends."""
    import tokenizers

    return cache.code_version(__file__), tokenizers.__version__


def bpe_pieces(name: str) -> int | None:
    """The N of ``bpe-N``, None for ``bytes``. Raises ValueError for any other name."""
    if name == ByteVocabulary.name:
        return None
    match = _BPE_NAME.fullmatch(name)
    if match is None or int(match[1]) < _BYTES:
        raise ValueError(
            f"vocabulary={name!r}: must be 'bytes', 'bpe-N' with N at least {_BYTES}, or 'chars-N' with N at least 2"
        )
    return int(match[1])


def characters_of(name: str) -> int | None:
    """The N of ``chars-N``, the number of ids that represent text; None for any other name."""
    match = _CHARACTERS_NAME.fullmatch(name)
    return int(match[1]) if match and int(match[1]) > 1 else None


def is_learned(name: str) -> bool:
    """Whether the vocabulary ``name`` depends on the text it was learned from: byte pairs and characters do."""
    return name.startswith("bpe-") or characters_of(name) is not None


def check_name(name: str) -> None:
    """Raise ValueError for a name other than ``bytes``, ``bpe-N`` and ``chars-N``."""
    if characters_of(name) is None:
        bpe_pieces(name)


def vocabulary_size(name: str) -> int:
    """``size`` of the vocabulary ``name``, without training it. Raises ValueError for an unknown name."""
    if name in PUBLISHED_SIZES:
        return PUBLISHED_SIZES[name]
    return (characters_of(name) or bpe_pieces(name) or _BYTES) + SPECIAL
