"""WikiText-103: word level as the autoregressive models read it, byte-pair pieces or bytes as the others do.

Two copies of the text exist. ``wikitext-103-v1`` has its rare words replaced by ``<unk>`` and serves the vocabulary
``wikitext-103-words``; ``wikitext-103-raw-v1`` is the text itself and serves ``gpt2-bpe``, ``bpe-N`` and ``bytes``. A
data root that holds only the former serves all of them. Whatever differs from the published data stands in the
corpus' notes and in its name: a sample, the other copy, other byte pairs than GPT-2's.

Lines are tokenised each on its own, as fairseq does; a split's tokens are all its lines one after the other.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from transnormer_lib.data import cache, sources, token_files
from transnormer_lib.data import vocabulary as vocabulary_module
from transnormer_lib.data import words as words_module
from transnormer_lib.data.faults import DataFault, DataUnavailable
from transnormer_lib.data.text import SplitCounts, TextCorpus
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
_VERSION = 1  # of what is written into the cache


def copy_read(vocabulary: str) -> tuple[str, dict[str, str]]:
    """The data set that ``vocabulary`` is made of on this machine, and how that differs from the published one."""
    if vocabulary == WORDS:
        return WORD_LEVEL, {}
    return (WORD_LEVEL, {"word-level text": "the data root has no raw text"}) if stands_in() else (RAW, {})


def stands_in() -> bool:
    """Whether the word-level text stands in for the raw one: a data root that holds it alone serves all vocabularies.

    A data root is never completed from elsewhere, so raw text in the Hub's cache changes nothing.
    """
    return sources.in_data_root(WORD_LEVEL) and not sources.in_data_root(RAW)


def check_vocabulary(name: str) -> None:
    """Refuse, with ``ValueError``, what is no vocabulary of this corpus."""
    if name not in (WORDS, GPT2):
        bpe_pieces(name)


def load(vocabulary: str) -> TextCorpus:
    """The corpus in the tokens of ``vocabulary``, made on first use, which takes minutes for the whole text.

    Raises:
        ValueError: no such vocabulary.
        DataUnavailable: the text is not on this machine and cannot be fetched.
        DataFault: it is damaged.
    """
    check_vocabulary(vocabulary)
    name, differences = copy_read(vocabulary)
    located = {split: sources.locate(name, split) for split in sources.SPLITS}
    digests = {split: place.fingerprint for split, place in located.items()}
    words = _vocabulary(vocabulary, name, lambda: digests["train"], differences)
    encode = _encoder(words)
    tokens: dict[str, Tokens] = {}
    counts: dict[str, SplitCounts] = {}
    samples: list[str] = []
    for split in sources.SPLITS:
        key = cache.key(_VERSION, digests[split], words.fingerprint, *_code())
        rows = sources.described(name).splits[split].rows
        tokens[split], tally = token_files.token_file(
            f"{NAME}-{split}", key, _lines(name, split, words), encode, total=rows
        )
        counts[split] = SplitCounts(tally.documents, tally.words, tally.bytes, tally.tokens)
        if tally.lines != rows:
            samples.append(f"{split} {tally.lines:,} of {rows:,}")
    if samples:
        differences["sample"] = f"lines of published ones: {'; '.join(samples)}"
    identity = json.dumps([NAME, name, digests, words.fingerprint], sort_keys=True)
    title = f"{NAME} ({', '.join(differences)})" if differences else NAME
    notes = tuple(f"{what}: {how}" for what, how in differences.items())
    return TextCorpus(title, words, tokens, counts, sources.fingerprint(identity.encode()), notes)


def vocabulary(name: str) -> Vocabulary:
    """The vocabulary ``name`` of :func:`load` alone. The text is read where the vocabulary is learned on it.

    Raises as :func:`load` does.
    """
    check_vocabulary(name)
    copy, _ = copy_read(name)
    return _vocabulary(name, copy, lambda: sources.locate(copy, "train").fingerprint, {})


def _vocabulary(vocabulary: str, name: str, digest: Callable[[], str], differences: dict[str, str]) -> Vocabulary:
    """``digest`` gives that of the training text; it is not asked where another's vocabulary is read from files."""
    if vocabulary == WORDS:
        key = cache.key(_VERSION, digest(), cache.code_version(words_module.__file__))
        return WordVocabulary(json.loads(cache.cached(WORDS, key, lambda: _count(name))))
    if vocabulary == GPT2:
        try:
            located = sources.tokenizer_files()
        except DataUnavailable:
            differences["own byte pairs"] = "learned on this text, for GPT-2's files are not on this machine"
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
        differences["own byte pairs"] += f"; it gives {learned.text_size:,} pieces of {pieces:,}"
    return learned


def _encoder(words: Vocabulary) -> "Callable[[Any], Tokens]":
    if isinstance(words, WordVocabulary):
        return words.encode_lines
    if isinstance(words, ByteVocabulary):
        return lambda lines: words.encode("".join(lines.to_pylist()))
    return lambda lines: words.encode_all(lines.to_pylist())


def _lines(name: str, split: str, words: Vocabulary) -> Callable[[], Iterator[Any]]:
    # The tokenizers library needs many times the memory of the text that it encodes.
    rows = 1024 if isinstance(words, BPEVocabulary) else 8192
    return lambda: (batch.column("text") for batch in sources.batches(name, split, ["text"], rows=rows))


def _count(name: str) -> bytes:
    """The words of the training text in the order of their ids, as JSON."""
    import pyarrow.compute as pc

    def count(lines: Any) -> tuple[dict[str, int], int]:
        found = pc.value_counts(words_module.split_words(lines)[0])
        names, numbers = found.field("values").to_pylist(), found.field("counts").to_pylist()
        return dict(zip(names, numbers, strict=True)), len(lines)

    counts: Counter[str] = Counter()
    lines = 0
    batches = (batch.column("text") for batch in sources.batches(name, "train", ["text"], rows=8192))
    total = sources.described(name).splits["train"].rows
    for part, read in token_files.bar(token_files.in_order(count, batches), "counting words", total, lambda d: d[1]):
        counts.update(part)
        lines += read
    if not counts:
        raise DataFault(f"data set {name!r}: split 'train' has no words")
    return json.dumps(words_module.words_by_frequency(counts, lines), ensure_ascii=False).encode()


def _train_bpe(name: str, pieces: int, exact: bool) -> bytes:
    """A BPE of the training text; the library counts words, so its memory follows their variety, not their number."""
    batches = sources.batches(name, "train", ["text"], rows=1024)
    texts = (text for batch in batches for text in batch.column("text").to_pylist())
    return train_bpe(texts, pieces, exact=exact).to_json().encode()


def _code() -> tuple[str, ...]:
    files = (words_module.__file__, token_files.__file__)
    return (*(cache.code_version(file) for file in files), *vocabulary_module.encoder_version())
