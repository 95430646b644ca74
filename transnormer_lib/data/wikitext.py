"""WikiText-103 in words, for the autoregressive models, and in byte-pair pieces or bytes, for the others.

Two copies of the text exist. ``wikitext-103-v1``, with rare words replaced by ``<unk>``, is for the vocabulary
``wikitext-103-words``; ``wikitext-103-raw-v1``, the original text, is for ``gpt2-bpe``, ``bpe-N`` and ``bytes``. If a
data root holds only the former, it is used for all. The corpus' notes and name state every difference from the
published data: a sample, the other copy, byte pairs other than GPT-2's.

Each line is tokenised separately, as fairseq does; the tokens of a split are those of its lines, concatenated.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from transnormer_lib.data import cache, sources, token_files
from transnormer_lib.data import vocabulary as vocabulary_module
from transnormer_lib.data import words as words_module
from transnormer_lib.data.faults import DataFault, DataUnavailable
from transnormer_lib.data.text import TextCorpus
from transnormer_lib.data.vocabulary import (
    GPT2_PIECES,
    BPEVocabulary,
    ByteVocabulary,
    PaddedBPEVocabulary,
    Tokens,
    Vocabulary,
    bpe_pieces,
    gpt2_vocabulary,
    train_bpe,
)
from transnormer_lib.data.words import WordVocabulary

NAME, WORDS, GPT2 = "wikitext-103", "wikitext-103-words", "gpt2-bpe"
WORD_LEVEL, RAW = "Salesforce/wikitext/wikitext-103-v1", "Salesforce/wikitext/wikitext-103-raw-v1"
_VERSION = 1  # of the cache files


def copy_read(vocabulary: str) -> tuple[str, dict[str, str]]:
    """The data set read for ``vocabulary`` on this machine, and its differences from the published one."""
    if vocabulary == WORDS:
        return WORD_LEVEL, {}
    return (WORD_LEVEL, {"word-level text": "the data root has no raw text"}) if stands_in() else (RAW, {})


def stands_in() -> bool:
    """Whether the word-level text stands in for the raw one, because the data root holds only the former.

    A data root is never completed from elsewhere, so raw text in the Hub's cache does not count.
    """
    return sources.in_data_root(WORD_LEVEL) and not sources.in_data_root(RAW)


def load(vocabulary: str) -> TextCorpus:
    """The corpus in the tokens of ``vocabulary``. The first use tokenises, which takes minutes for the whole text.

    Raises ValueError for an unknown vocabulary, DataUnavailable if the text is not on this machine and cannot be
    fetched, DataFault if one of its files is damaged or has changed.
    """
    if vocabulary not in (WORDS, GPT2):
        bpe_pieces(vocabulary)  # refuses an unknown name before the work begins
    name, differences = copy_read(vocabulary)
    located = {split: sources.locate(name, split) for split in sources.SPLITS}
    digests = {split: place.fingerprint for split, place in located.items()}
    words = _vocabulary(vocabulary, name, lambda: digests["train"], differences)
    encode = _encoder(words)
    tokens: dict[str, Tokens] = {}
    counts: dict[str, token_files.Tally] = {}
    samples: list[str] = []
    for split in sources.SPLITS:
        key = cache.key(_VERSION, digests[split], words.fingerprint, *_code())
        rows = sources.described(name).splits[split].rows
        lines = partial(_lines, name, split, isinstance(words, BPEVocabulary))
        tokens[split], counts[split] = token_files.token_file(f"{NAME}-{split}", key, lines, encode, total=rows)
        if counts[split].lines != rows:
            samples.append(f"{split} {counts[split].lines:,} of {rows:,}")
    if samples:
        differences["sample"] = f"lines of the published ones: {'; '.join(samples)}"
    identity = json.dumps([NAME, name, digests, words.fingerprint], sort_keys=True)
    title = f"{NAME} ({', '.join(differences)})" if differences else NAME
    notes = tuple(f"{what}: {how}" for what, how in differences.items())
    return TextCorpus(title, words, tokens, counts, sources.fingerprint(identity.encode()), notes)


def vocabulary(name: str) -> Vocabulary:
    """The vocabulary ``name`` of :func:`load`; reads the text only to learn the vocabulary. Raises as ``load`` does."""
    copy, _ = copy_read(name)
    return _vocabulary(name, copy, lambda: sources.locate(copy, "train").fingerprint, {})


def _vocabulary(vocabulary: str, name: str, digest: Callable[[], str], differences: dict[str, str]) -> Vocabulary:
    """``digest`` returns that of the training text; it is not called if the vocabulary is read from files."""
    if vocabulary == WORDS:
        key = cache.key(_VERSION, digest(), cache.code_version(words_module.__file__))
        return WordVocabulary(json.loads(cache.cached(WORDS, key, lambda: _count(name))))
    if vocabulary == GPT2:
        try:
            located = sources.tokenizer_files()
        except DataUnavailable:
            differences["own byte pairs"] = "learned on this text because GPT-2's files are not on this machine"
        else:
            vocabulary_file, merges = located.files
            return gpt2_vocabulary(vocabulary_file, merges)
    pieces = GPT2_PIECES if vocabulary == GPT2 else bpe_pieces(vocabulary)
    if pieces is None:
        return ByteVocabulary()
    key = cache.key(_VERSION, digest(), vocabulary, *_code())
    definition = cache.cached(vocabulary, key, lambda: _train_bpe(name, pieces, exact=vocabulary != GPT2)).decode()
    if vocabulary != GPT2:
        return BPEVocabulary(definition)
    learned = PaddedBPEVocabulary(definition, GPT2)
    if learned.text_size < pieces:
        differences["own byte pairs"] += f"; it yields {learned.text_size:,} of {pieces:,} pieces"
    return learned


def _encoder(words: Vocabulary) -> "Callable[[Any], Tokens]":
    if isinstance(words, WordVocabulary):
        return words.encode_lines
    if isinstance(words, ByteVocabulary):
        return lambda lines: words.encode("".join(lines.to_pylist()))
    return lambda lines: words.encode_all(lines.to_pylist())


def _lines(name: str, split: str, byte_pairs: bool) -> Iterator[Any]:
    # Small batches for byte pairs: the tokenizers library needs many times the memory of its text.
    batches = sources.batches(name, split, ["text"], rows=1024 if byte_pairs else 8192)
    return (batch.column("text") for batch in batches)


def _count(name: str) -> bytes:
    """The words of the training text in the order of their ids, as JSON."""
    import pyarrow.compute as pc

    def count(lines: Any) -> tuple[dict[str, int], int]:
        found = pc.value_counts(words_module.split_words(lines)[0])
        names, numbers = found.field("values").to_pylist(), found.field("counts").to_pylist()
        return dict(zip(names, numbers, strict=True)), len(lines)

    counts: Counter[str] = Counter()
    lines = 0
    batches = _lines(name, "train", byte_pairs=False)
    total = sources.described(name).splits["train"].rows
    for part, read in token_files.bar(token_files.in_order(count, batches), "counting words", total, lambda d: d[1]):
        counts.update(part)
        lines += read
    if not counts:
        raise DataFault(f"data set {name!r}: split 'train' has no words")
    return json.dumps(words_module.words_by_frequency(counts, lines), ensure_ascii=False).encode()


def _train_bpe(name: str, pieces: int, exact: bool) -> bytes:
    """A BPE of the training text, as JSON. The library counts words, so memory depends on the distinct ones."""
    texts = (text for lines in _lines(name, "train", byte_pairs=True) for text in lines.to_pylist())
    return train_bpe(texts, pieces, exact=exact).definition.encode()


def _code() -> tuple[str, ...]:
    files = (words_module.__file__, token_files.__file__)
    return (*(cache.code_version(file) for file in files), *vocabulary_module.encoder_version())
