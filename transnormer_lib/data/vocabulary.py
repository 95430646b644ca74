"""Vocabularies: text to token ids and back, without loss.

Ids 0 … ``text_size`` - 1 stand for text; the special ids after them never come out of ``encode``. Bytes and byte
pairs are lossless on every string that UTF-8 can encode: ``decode(encode(text)) == text``.
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
# Sizes of the vocabularies of Table 13, all ids counted: the words of WikiText-103 filled up to a multiple of eight,
# and GPT-2's byte-pair pieces with RoBERTa's special tokens. A model's size follows from them without the data.
PUBLISHED_SIZES = {"wikitext-103-words": 267_744, "gpt2-bpe": 50_265}
GPT2_PIECES = 50_257  # of them 256 bytes, 50,000 merges and the end of a text, which no text contains
_BPE_NAME = re.compile(r"bpe-([1-9][0-9]*)")
_BYTES = 256


class Vocabulary(ABC):
    """What the vocabularies share.

    Attributes:
        name: ``bytes``, ``bpe-N``, ``gpt2-bpe`` or ``words``.
        text_size: number of ids that stand for text.
    """

    name: str
    text_size: int

    @property
    def size(self) -> int:
        """Number of ids: the rows of a model's embedding."""
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

    @property
    @abstractmethod
    def byte_lengths(self) -> NDArray[np.int64]:
        """[size]: the bytes of text each id stands for; 0 for the special ids."""

    @abstractmethod
    def encode(self, text: str) -> Tokens:
        """The ids [T] of ``text``.

        Raises:
            UnicodeEncodeError: ``text`` holds a lone surrogate, which UTF-8 cannot encode.
        """

    @abstractmethod
    def decode(self, tokens: ArrayLike) -> str:
        """The text of the ids [T]; special ids give nothing, and cut characters the replacement character �.

        Raises:
            ValueError: an id is not in the vocabulary, or no integer.
        """

    def encode_all(self, texts: Sequence[str]) -> Tokens:
        """The ids [T] of the texts, one after the other, each encoded on its own."""
        return np.concatenate([np.empty(0, np.int32), *map(self.encode, texts)])

    def _text_ids(self, tokens: ArrayLike) -> NDArray[np.int64]:
        given = np.asarray(tokens)
        if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
            raise ValueError(f"tokens: must be integers of shape [T], not {given.dtype} of shape {list(given.shape)}")
        ids = given.astype(np.int64)
        outside = ids[(ids < 0) | (ids >= self.size)]
        if outside.size:
            raise ValueError(f"tokens={outside[0]}: must be in [0, {self.size})")
        return ids[ids < self.text_size]


class ByteVocabulary(Vocabulary):
    """One id for each byte of the UTF-8 encoding."""

    name = "bytes"
    text_size = _BYTES
    fingerprint = hashlib.sha256(b"utf-8 bytes, pad, mask").hexdigest()

    @cached_property
    def byte_lengths(self) -> NDArray[np.int64]:
        return np.array([1] * self.text_size + [0] * SPECIAL)

    def encode(self, text: str) -> Tokens:
        return np.frombuffer(text.encode(), np.uint8).astype(np.int32)

    def decode(self, tokens: ArrayLike) -> str:
        return self._text_ids(tokens).astype(np.uint8).tobytes().decode(errors="replace")


class BPEVocabulary(Vocabulary):
    """Byte-level byte-pair encoding: the 256 bytes, then merges of frequent pairs inside a word.

    A word carries the space before it (GPT-2's pre-tokenisation). Build one with :func:`train_bpe`.
    """

    def __init__(self, definition: str) -> None:
        """``definition`` is the JSON that :meth:`to_json` gives."""
        from tokenizers import Tokenizer

        self._tokenizer: Any = Tokenizer.from_str(definition)
        self._definition = definition
        self.text_size = self._tokenizer.get_vocab_size()
        self.name = f"bpe-{self.text_size}"

    def to_json(self) -> str:
        """The whole vocabulary as JSON, in the format of the ``tokenizers`` library."""
        return self._definition

    @cached_property
    def fingerprint(self) -> str:
        # The library orders the vocabulary by id and the merges by rank; re-dumping removes mere layout.
        model = json.loads(self._definition)
        return hashlib.sha256(json.dumps(model, sort_keys=True).encode()).hexdigest()

    @cached_property
    def byte_lengths(self) -> NDArray[np.int64]:
        # Byte-level pieces are written with one printable character for each byte.
        lengths = [len(self._tokenizer.id_to_token(index)) for index in range(self.text_size)]
        return np.array(lengths + [0] * SPECIAL)

    def encode(self, text: str) -> Tokens:
        text.encode()  # refuses lone surrogates as ByteVocabulary does, not as the library would
        return np.array(self._tokenizer.encode(text).ids, np.int32)

    def encode_all(self, texts: Sequence[str]) -> Tokens:
        ids = [np.array(encoding.ids, np.int32) for encoding in self._tokenizer.encode_batch(list(texts))]
        return np.concatenate([np.empty(0, np.int32), *ids])

    def decode(self, tokens: ArrayLike) -> str:
        text: str = self._tokenizer.decode(self._text_ids(tokens).tolist(), skip_special_tokens=False)
        return text


class PaddedBPEVocabulary(BPEVocabulary):
    """Byte pairs with the number of ids that a published one has; the last ids stand for nothing.

    ``gpt2-bpe`` has the 50,265 ids of Table 13: GPT-2's 50,257 pieces, the padding, the mask, and six more, where
    RoBERTa's dictionary keeps the rest of its special tokens and fills up to a multiple of eight before the mask.
    """

    def __init__(self, definition: str, name: str) -> None:
        super().__init__(definition)
        self.name = name
        if self.text_size + SPECIAL > self.size:
            raise ValueError(f"pieces={self.text_size}: {name} has room for {self.size - SPECIAL}")

    @property
    def size(self) -> int:
        return PUBLISHED_SIZES[self.name]

    @cached_property
    def byte_lengths(self) -> NDArray[np.int64]:
        lengths = super().byte_lengths[: self.text_size]
        return np.concatenate([lengths, np.zeros(self.size - self.text_size, np.int64)])


def gpt2_vocabulary(vocabulary: Path, merges: Path) -> PaddedBPEVocabulary:
    """``gpt2-bpe`` of the files that GPT-2 was published with."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    tokenizer: Any = Tokenizer(models.BPE.from_file(str(vocabulary), str(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PaddedBPEVocabulary(tokenizer.to_str(), "gpt2-bpe")


def train_bpe(texts: Iterable[str], pieces: int, *, exact: bool = True) -> BPEVocabulary:
    """A BPE vocabulary of ``pieces`` pieces, learned on ``texts``; the same texts give the same vocabulary.

    Without ``exact`` it has fewer pieces where the texts give no more.

    Raises:
        ValueError: ``pieces`` is below 256, or the texts hold too few distinct pairs for so many pieces.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    if pieces < _BYTES:
        raise ValueError(f"pieces={pieces}: must be at least {_BYTES}, one for each byte")
    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=pieces, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    trained = BPEVocabulary(tokenizer.to_str())
    if exact and trained.text_size != pieces:
        raise ValueError(f"pieces={pieces}: the texts give only {trained.text_size}")
    return trained


def encoder_version() -> tuple[str, str]:
    """What decides, beside its fingerprint, how a vocabulary encodes: this file and the library; for keys of caches."""
    import tokenizers

    return cache.code_version(__file__), tokenizers.__version__


def bpe_pieces(name: str) -> int | None:
    """The N of ``bpe-N``, None for ``bytes``.

    Raises:
        ValueError: ``name`` is neither.
    """
    if name == ByteVocabulary.name:
        return None
    match = _BPE_NAME.fullmatch(name)
    if match is None or int(match[1]) < _BYTES:
        raise ValueError(f"vocabulary={name!r}: must be 'bytes', or 'bpe-N' with N at least {_BYTES}")
    return int(match[1])


def vocabulary_size(name: str) -> int:
    """``size`` of the vocabulary ``name``, known without training it.

    Raises:
        ValueError: no vocabulary has this name.
    """
    if name in PUBLISHED_SIZES:
        return PUBLISHED_SIZES[name]
    return (bpe_pieces(name) or _BYTES) + SPECIAL
