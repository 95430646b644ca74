"""The classification tasks by name: GLUE, CLUE, the Long Range Arena, and stand-ins made of embedded data.

``data.sentences``, ``data.reviews``, ``data.glue``, ``data.clue`` and ``data.lra`` define the tasks. Each split is
encoded once and kept in the cache folder; later it is a memory map. For batches see ``data.classification_batches``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from transnormer_lib.checks import check_choice, check_count
from transnormer_lib.choices import TaskKind
from transnormer_lib.data import (
    cache,
    clue,
    corpora,
    examples,
    glue,
    lra,
    reviews,
    sentences,
    sequences,
    sources,
    task_kinds,
)
from transnormer_lib.data import vocabulary as vocabulary_module
from transnormer_lib.data.examples import Examples
from transnormer_lib.data.faults import DataUnavailable
from transnormer_lib.data.task_kinds import SplitReader, TaskDefinition
from transnormer_lib.data.vocabulary import ByteVocabulary, Vocabulary, characters_of, check_name

_ORDER = ("train", "validation", "validation_matched", "validation_mismatched", "test")
_CORPUS_OF = {"gpt2-bpe": "wikitext-103"}  # the default corpus of a vocabulary: that of the model's pre-training
_DEFINITIONS: Mapping[str, TaskDefinition] = {
    task.name: task for task in (*sentences.TASKS, *glue.TASKS, *lra.TASKS, reviews.TASK, *clue.TASKS)
}


@dataclass(frozen=True)
class TaskData:
    """A classification task in tokens."""

    name: str
    title: str
    stand_in: bool  # not a task of GLUE or the Long Range Arena, and never called one
    origin: str  # "embedded", "generated", "data root" or "Hub"
    pairs: bool  # an example is two sequences
    classes: int  # of choices: the most candidates; of spans: 2, start and end
    vocab_size: int  # ids 0 … vocab_size - 1, pad included
    pad_id: int
    length: int  # of the longest sequence, in tokens, after cutting
    splits: Mapping[str, Examples]  # "train" and "validation"; if they exist "test", and MNLI's two
    metrics: tuple[str, ...]  # of ``training.metrics``; the first decides
    fingerprint: str  # sha256, hex, over all of the above but the origin, and over the kind
    kind: TaskKind = "label"
    absent: Mapping[str, str] = field(default_factory=dict)  # splits missing on this machine, and why
    notes: tuple[str, ...] = ()  # what differs from the published data: "sample: train 8,999 of 392,702 rows"


def task_names() -> tuple[str, ...]:
    """The names of all tasks."""
    return tuple(_DEFINITIONS)


def task_definition(name: str) -> TaskDefinition:
    """The facts of the task ``name``, without its data. Raises ValueError for an unknown name."""
    check_choice("task", name, _DEFINITIONS)
    return _DEFINITIONS[name]


def load_task(
    name: str,
    vocabulary: str = "bytes",
    length: int | None = None,
    limit: Mapping[str, int] | None = None,
    *,
    joined: bool = False,
    corpus: str | None = None,
) -> TaskData:
    """The task ``name`` in the tokens of ``vocabulary``.

    Args:
        vocabulary: "bytes", "bpe-N", "chars-N" or "gpt2-bpe"; tasks of the Long Range Arena have only "bytes", or their
            own
            symbols, and then keep the default.
        length: cuts longer sequences (default: the task's own limit). Trees and images are never cut.
        limit: takes at most that many examples of each split it names, always the same ones. Twins
            (``data.sentences``) stay together: an odd limit is rounded down, to at least one pair.
        joined: joins each pair into one sequence with a newline in between; the longer text is cut first.
        corpus: the corpus on which "bpe-N" or "chars-N" is learned (default: "wikipedia").

    Raises ValueError for an unknown name or a value that the task does not allow, DataUnavailable if the training or
    validation data are not on this machine, DataFault if a file or a value is invalid.
    """
    definition = task_definition(name)
    splits = sorted({*definition.splits, *definition.aliases}, key=_ORDER.index)
    if limit and definition.train_examples:
        raise ValueError(f"limit={dict(limit)!r}: a row of task {name!r} holds several examples; it is read whole")
    for split, count in (limit or {}).items():
        if split not in splits:
            raise ValueError(f"limit.{split}={count!r}: task {name!r} has only {', '.join(splits)}")
        check_count(f"limit.{split}", count)
    limits = tuple((split, (limit or {}).get(split)) for split in splits)
    if length is not None:
        check_count("length", length, 2 if definition.kind == "span" else 1)  # a newline and a token of the passage
    if joined and not definition.pairs:
        raise ValueError(f"joined={joined!r}: the examples of task {name!r} are not pairs")
    if corpus is not None:
        check_choice("corpus", corpus, corpora.CORPORA)
    if definition.alphabet != "text" and vocabulary != ByteVocabulary.name:
        raise ValueError(f"vocabulary={vocabulary!r}: task {name!r} has its own tokens; leave it at 'bytes'")
    if definition.kind == "span" and vocabulary != ByteVocabulary.name and characters_of(vocabulary) is None:
        raise ValueError(f"vocabulary={vocabulary!r}: task {name!r} marks characters; must be 'bytes' or 'chars-N'")
    return _load(name, vocabulary, length, limits, joined, corpus)


@lru_cache(maxsize=8)
def _load(
    name: str,
    vocabulary: str,
    length: int | None,
    limits: tuple[tuple[str, int | None], ...],
    joined: bool,
    corpus: str | None,
) -> TaskData:
    definition = _DEFINITIONS[name]
    words = None if definition.alphabet == "symbols" else _vocabulary(vocabulary, corpus)
    cut = length or definition.length
    found: dict[str, Examples] = {}
    digests: dict[str, str] = {}
    absent: dict[str, str] = {}
    origins: list[str] = []
    samples: dict[str, None] = {}  # an ordered set, because two splits may come from one table
    for split, count in limits:
        source = definition.aliases.get(split, split)
        try:
            reader = definition.read(source, count)
        except DataUnavailable as error:
            absent[split] = str(error)
            continue
        found[split], digests[split] = _encoded(definition, source, count, reader, words, cut, joined)
        origins.append(reader.origin)
        samples |= {reader.sample: None} if reader.sample else {}
    for split in ("train", "validation"):
        if split in absent:
            raise DataUnavailable(absent[split])
    facts: dict[str, Any] = {
        "name": name,
        "title": definition.title,
        "stand_in": definition.stand_in,
        "origin": origins[0],
        "pairs": definition.pairs and not joined,
        "classes": definition.classes,
        "vocab_size": words.size if words else definition.symbols,
        "pad_id": words.pad_id if words else definition.pad_id,
        "length": max(int(split.lengths.max()) for split in found.values()),
        "metrics": definition.metrics,
    }
    if definition.kind != "label":  # the kind that fingerprints of older tasks do not name
        facts["kind"] = definition.kind
    # The fingerprint covers the data, not the place from which they were read.
    identity = [sorted((key, value) for key, value in facts.items() if key != "origin"), sorted(digests.items())]
    fingerprint = sources.fingerprint(repr([identity, words.fingerprint if words else None]).encode())
    notes = (f"sample: {'; '.join(samples)}",) if samples else ()
    return TaskData(**facts, splits=found, fingerprint=fingerprint, absent=absent, notes=notes)


def _encoded(
    definition: TaskDefinition,
    split: str,
    count: int | None,
    reader: SplitReader,
    words: Vocabulary | None,
    length: int,
    joined: bool,
) -> tuple[Examples, str]:
    """A split's examples and their digest, from the cache if they are there."""
    name = f"{definition.name}-{split}"

    def parts() -> Iterator[Examples]:
        for part in reader.parts():
            if isinstance(part, Examples):
                made = part
            else:
                assert words is not None  # text has a vocabulary
                made = sequences.encoded(part, words, length, joined)
            most = np.full(len(made), definition.classes) if definition.kind == "label" else made.sizes
            outside = np.flatnonzero((made.labels < 0) | (made.labels >= most))
            if outside.size:
                raise ValueError(f"{name}: label {made.labels[outside[0]]}: must be in [0, {most[outside[0]]})")
            if definition.kind == "choice" and most.max() > definition.classes:
                raise ValueError(f"{name}: {most.max()} candidates: must be at most {definition.classes}")
            if words is None and made.lengths.max() > length:
                raise ValueError(f"length={length}: {name} has {made.lengths.max()} symbols, which cannot be cut")
            yield made

    code = [cache.code_version(file) for file in (__file__, examples.__file__, sequences.__file__, task_kinds.__file__)]
    encoder = (words.fingerprint, *vocabulary_module.encoder_version()) if words else None
    key = cache.key(reader.identity, split, count, encoder, length, joined, *code)
    return examples.stored(name, key, parts)


def _vocabulary(name: str, corpus: str | None) -> Vocabulary:
    if name not in _CORPUS_OF:
        check_name(name)  # refuses other names, such as the words of WikiText-103, which suit no other text
    if name == ByteVocabulary.name:
        return ByteVocabulary()
    return corpora.load_vocabulary(vocabulary_corpus(name, corpus), name)


def vocabulary_corpus(vocabulary: str, corpus: str | None = None) -> str:
    """The corpus on which the ``vocabulary`` of a task is learned, given the caller's ``corpus``."""
    return corpus or _CORPUS_OF.get(vocabulary, "wikipedia")
