"""A text in tokens: vocabulary, splits, counts, and a fingerprint of all of it. ``corpora`` loads texts by name."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transnormer_lib.checks import check_choice
from transnormer_lib.data import cache, characters
from transnormer_lib.data.vocabulary import (
    BPEVocabulary,
    ByteVocabulary,
    Tokens,
    Vocabulary,
    bpe_pieces,
    characters_of,
    encoder_version,
    train_bpe,
)


@dataclass(frozen=True)
class SplitCounts:
    documents: int
    words: int  # separated by white space
    bytes: int  # of UTF-8
    tokens: int


@dataclass(frozen=True)
class TextCorpus:
    """A split text and its tokens.

    The text of a split is the concatenation of its documents, without separator tokens. Its tokens decode to the text.
    """

    name: str
    vocabulary: Vocabulary
    tokens: Mapping[str, Tokens]  # per split, int32 [T], read-only
    counts: Mapping[str, SplitCounts]
    # sha256, hex, over the source's bytes, the split rule, the split texts, the vocabulary and the words
    fingerprint: str
    notes: tuple[str, ...] = ()  # what differs from the published data: a sample, another vocabulary
    # Per split [T]: whether a word begins at the token. Characters have it; {}: where words begin is not known.
    word_starts: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)

    def bits_per_byte(self, nats_per_token: float, split: str) -> float:
        """A causal model's loss as bits per byte of text, from the token and byte counts of the whole split.

        Exact if the loss is the mean over the split or if a token is a byte. Otherwise it assumes that the measured
        tokens have the split's mean length. The loss of a masked model is not a compression rate.
        """
        counts = self._counts(split)
        return nats_per_token / math.log(2) * counts.tokens / counts.bytes

    def word_perplexity(self, nats_per_token: float, split: str) -> float:
        """exp of the nats per word (separated by white space): a perplexity that vocabularies share."""
        counts = self._counts(split)
        return math.exp(nats_per_token * counts.tokens / counts.words)

    def _counts(self, split: str) -> SplitCounts:
        check_choice("split", split, self.counts)
        return self.counts[split]


def build_corpus(
    name: str, documents: Mapping[str, list[str]], vocabulary: str, source_fingerprint: str, split_rule: str
) -> TextCorpus:
    """A corpus of these documents per split; a vocabulary is learned on ``documents["train"]`` alone.

    Raises DataUnavailable for characters if their words cannot be found on this machine (``characters.segmenter``).
    """
    digests = {split: _digest(texts) for split, texts in documents.items()}
    words = _vocabulary(vocabulary, documents["train"], digests["train"])
    tokens = {split: _encode(words, texts, digests[split]) for split, texts in documents.items()}
    counts = {
        split: SplitCounts(
            documents=len(texts),
            words=sum(len(text.split()) for text in texts),
            bytes=sum(len(text.encode()) for text in texts),
            tokens=len(tokens[split]),
        )
        for split, texts in documents.items()
    }
    parts: list[Any] = [source_fingerprint, split_rule, digests, words.fingerprint]
    starts: dict[str, NDArray[np.bool_]] = {}
    if isinstance(words, characters.CharacterVocabulary):
        starts = {split: _word_starts(texts, digests[split]) for split, texts in documents.items()}
        parts.append({split: hashlib.sha256(np.packbits(of).tobytes()).hexdigest() for split, of in starts.items()})
    identity = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    return TextCorpus(name, words, tokens, counts, identity, word_starts=starts)


def _word_starts(texts: list[str], digest: str) -> NDArray[np.bool_]:
    size = sum(map(len, texts))
    key = cache.key(digest, characters.segmenter_version(), cache.code_version(characters.__file__))
    packed = cache.cached("words", key, lambda: np.packbits(characters.word_starts(texts)).tobytes())
    starts = np.unpackbits(np.frombuffer(packed, np.uint8), count=size).astype(np.bool_)
    starts.flags.writeable = False
    return starts


def _vocabulary(name: str, train: list[str], train_digest: str) -> Vocabulary:
    if count := characters_of(name):
        digest = cache.key(train_digest, cache.code_version(characters.__file__))
        signs = cache.cached(name, digest, lambda: characters.most_frequent(train, count).characters.encode())
        learned = characters.CharacterVocabulary(signs.decode())
        if learned.name != name:
            raise ValueError(f"vocabulary={name!r}: the training text has only {learned.text_size - 1} characters")
        return learned
    pieces = bpe_pieces(name)
    if pieces is None:
        return ByteVocabulary()
    digest = cache.key(train_digest, *encoder_version())
    definition = cache.cached(name, digest, lambda: train_bpe(train, pieces).definition.encode())
    return BPEVocabulary(definition.decode())


def _encode(vocabulary: Vocabulary, texts: list[str], text_digest: str) -> Tokens:
    if isinstance(vocabulary, ByteVocabulary | characters.CharacterVocabulary):  # faster than reading a file
        tokens = vocabulary.encode_all(texts)
    else:
        digest = cache.key("int32", text_digest, vocabulary.fingerprint, *encoder_version())
        stored = cache.cached(f"{vocabulary.name}-tokens", digest, lambda: vocabulary.encode_all(texts).tobytes())
        tokens = np.frombuffer(stored, np.int32)
    tokens.flags.writeable = False  # every caller in the process shares the corpus
    return tokens


def _digest(texts: list[str]) -> str:
    """The digest of the texts and their boundaries."""
    return hashlib.sha256(b"".join(hashlib.sha256(text.encode()).digest() for text in texts)).hexdigest()
