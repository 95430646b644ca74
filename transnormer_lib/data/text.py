"""A text ready for a language model: splits, vocabulary, tokens, counts, and a fingerprint of all of it.

``load_text_corpus("wikipedia", "bytes")`` takes well under a second once the cache is warm.
"""

import hashlib
import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from transnormer_lib.data import cache, wikipedia
from transnormer_lib.data.vocabulary import (
    BPEVocabulary,
    ByteVocabulary,
    Tokens,
    Vocabulary,
    bpe_pieces,
    encoder_version,
    train_bpe,
    vocabulary_size,
)

CORPORA = ("wikipedia", "wikitext-103")


@dataclass(frozen=True)
class SplitCounts:
    """The size of one split."""

    documents: int
    words: int  # separated by white space
    bytes: int  # of UTF-8
    tokens: int


@dataclass(frozen=True)
class TextCorpus:
    """A split text and its tokens.

    A split's text is its documents one after the other, without separator tokens: its tokens decode to the
    text.
    """

    name: str
    vocabulary: Vocabulary
    tokens: Mapping[str, Tokens]  # per split, int32 [T], read-only
    counts: Mapping[str, SplitCounts]
    fingerprint: str  # sha256, hex, over the source's bytes, the split rule, the split texts and the vocabulary
    notes: tuple[str, ...] = ()  # what differs from the published data: a sample, another vocabulary

    def bits_per_byte(self, nats_per_token: float, split: str) -> float:
        """A causal model's loss as bits per byte of text, by the tokens and bytes of the whole split.

        Exact where the loss is the mean over the split, or a token is a byte; else it takes the split's mean
        length of a token for that of the tokens measured. The loss of a masked model is not a compression
        rate.
        """
        counts = self._counts(split)
        return nats_per_token / math.log(2) * counts.tokens / counts.bytes

    def word_perplexity(self, nats_per_token: float, split: str) -> float:
        """exp of the nats per word (white-space separated), the perplexity that vocabularies share."""
        counts = self._counts(split)
        return math.exp(nats_per_token * counts.tokens / counts.words)

    def _counts(self, split: str) -> SplitCounts:
        if split not in self.counts:
            raise ValueError(f"split={split!r}: must be one of {', '.join(map(repr, self.counts))}")
        return self.counts[split]


@lru_cache(maxsize=4)
def load_text_corpus(name: str = "wikipedia", vocabulary: str = "bytes") -> TextCorpus:
    """The corpus ``name`` in the tokens of ``vocabulary``: ``bytes``, or ``bpe-N``, learned from train.

    ``wikitext-103`` also has ``wikitext-103-words`` and ``gpt2-bpe``; its tokens are mapped files (``wikitext``).

    Raises:
        ValueError: no such corpus or vocabulary.
        DataUnavailable: the corpus is not on this machine and cannot be fetched.
        DataFault: its files are not what they should be.
    """
    if name not in CORPORA:
        raise ValueError(f"name={name!r}: must be one of {', '.join(map(repr, CORPORA))}")
    if name == "wikitext-103":
        from transnormer_lib.data import wikitext

        return wikitext.load(vocabulary)
    bpe_pieces(vocabulary)  # refuses a wrong name before the work begins
    articles, source = wikipedia.load_articles()
    documents = {
        split: [_document(article) for article in members]
        for split, members in wikipedia.split_articles(articles).items()
    }
    return build_corpus(name, documents, vocabulary, source.fingerprint, wikipedia.SPLIT_RULE)


def load_vocabulary(name: str, vocabulary: str) -> Vocabulary:
    """``load_text_corpus(name, vocabulary).vocabulary``, without tokenising what is larger than memory.

    Raises as :func:`load_text_corpus` does.
    """
    if name == "wikitext-103":
        from transnormer_lib.data import wikitext

        return wikitext.vocabulary(vocabulary)
    return load_text_corpus(name, vocabulary).vocabulary


def corpus_vocabulary_size(name: str, vocabulary: str, *, published: bool = False) -> int:
    """The number of ids that ``load_text_corpus(name, vocabulary).vocabulary`` has, without tokenising.

    It differs from the published number only for the words of a sample of WikiText-103, which are counted unless
    ``published``.

    Raises:
        ValueError: no such vocabulary.
        DataUnavailable: the words cannot be counted, for the text is not here.
    """
    if vocabulary == "wikitext-103-words" and name == "wikitext-103" and not published:
        return load_vocabulary(name, vocabulary).size
    return vocabulary_size(vocabulary)


def build_corpus(
    name: str, documents: Mapping[str, list[str]], vocabulary: str, source_fingerprint: str, split_rule: str
) -> TextCorpus:
    """A corpus of these documents per split; a BPE vocabulary is learned on ``documents["train"]`` alone."""
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
    identity = json.dumps([source_fingerprint, split_rule, digests, words.fingerprint], sort_keys=True)
    return TextCorpus(name, words, tokens, counts, hashlib.sha256(identity.encode()).hexdigest())


def _document(article: wikipedia.Article) -> str:
    return f"{article.title}\n\n{article.text}\n\n\n"


def _vocabulary(name: str, train: list[str], train_digest: str) -> Vocabulary:
    pieces = bpe_pieces(name)
    if pieces is None:
        return ByteVocabulary()
    digest = cache.key(train_digest, *encoder_version())
    definition = cache.cached(name, digest, lambda: train_bpe(train, pieces).to_json().encode())
    return BPEVocabulary(definition.decode())


def _encode(vocabulary: Vocabulary, texts: list[str], text_digest: str) -> Tokens:
    if isinstance(vocabulary, ByteVocabulary):  # faster than reading a file
        tokens = vocabulary.encode_all(texts)
    else:
        digest = cache.key(text_digest, vocabulary.fingerprint, *encoder_version())
        stored = cache.cached(f"{vocabulary.name}-tokens", digest, lambda: _to_npy(vocabulary.encode_all(texts)))
        tokens = np.load(io.BytesIO(stored), allow_pickle=False)
    tokens.flags.writeable = False  # the corpus is shared by every caller in the process
    return tokens


def _to_npy(tokens: Tokens) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, tokens, allow_pickle=False)
    return buffer.getvalue()


def _digest(texts: list[str]) -> str:
    """Over the texts and their boundaries."""
    joined = hashlib.sha256()
    for text in texts:
        joined.update(hashlib.sha256(text.encode()).digest())
    return joined.hexdigest()
