"""The data that a preset needs, where they are, and whether they are valid: ``transnormer data``."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transnormer_lib.data import hub, reviews, sources, tasks, wikitext
from transnormer_lib.data.faults import DataFault, DataUnavailable
from transnormer_lib.data.licences import EMBEDDED
from transnormer_lib.data.vocabulary import ByteVocabulary
from transnormer_lib.project import Project
from transnormer_lib.report.pages import size_text
from transnormer_lib.report.parameters import resolve

_REVIEWS = ("reviews-negative", "reviews-positive")
_TOKENIZER = hub.GPT2.repository


@dataclass(frozen=True)
class Entry:
    """One data set, or one split of it, on this machine."""

    name: str
    split: str  # "" if the data set has none
    needed_by: tuple[str, ...]  # notebooks
    bytes: int  # as published, unless the data set is embedded
    licence: str
    revision: str
    place: str  # "embedded", "data root" or "Hub"; "wrong" if a file is faulty, "" if absent
    reason: str  # why it is absent, or what is wrong
    fingerprint: str  # sha256, hex; "" if not requested
    note: str = ""  # what else it is used for


def needs(project: Project, preset: str, notebooks: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The data sets that the preset's notebooks name in their parameters, each with the notebooks.

    This reads parameters whose names contain ``corpus``, each with the vocabulary of the matching name (``base_corpus``
    and ``base_vocabulary``), and those whose names contain ``task``. Vocabularies of byte pairs also need the text on
    which they are learned. Generated tasks need nothing.
    """
    found: dict[str, list[str]] = {}
    for notebook in notebooks:
        for name in _needed(resolve(project, preset, notebook)):
            found.setdefault(name, []).append(notebook)
    return {name: tuple(by) for name, by in found.items()}


def _needed(values: Mapping[str, Any]) -> list[str]:
    """The data sets that a notebook's parameters name, once each."""
    found: set[str] = set()
    for key, value in values.items():
        if "corpus" in key:
            vocabulary = str(values.get(key.replace("corpus", "vocabulary"), values.get("vocabulary", "bytes")))
            found.update(name for word in _words(value) for name in _corpus(word, vocabulary))
        elif "task" in key:
            # A classifier uses the vocabulary of its pre-trained model.
            vocabulary, corpus = (
                values.get(f"base_{name}", values.get(name, default))
                for name, default in (("vocabulary", "bytes"), ("corpus", None))
            )
            found.update(name for word in _words(value) for name in _task(word, str(vocabulary), corpus))
    return sorted(found)


def entries(needed: dict[str, tuple[str, ...]] | None, *, hashed: bool = False) -> list[Entry]:
    """The state of these data sets (default: all), split by split, without a connection.

    ``hashed`` computes the fingerprints not recorded yet.
    """
    by = needed if needed is not None else dict.fromkeys([*EMBEDDED, *hub.DATASETS, _TOKENIZER], ())
    return [entry for name in by for entry in _entries(name, by[name], hashed)]


def listing(rows: Sequence[Entry], heading: str) -> str:
    """The entries as lines of text."""
    lines = [heading, f"data root: {sources.data_root() or 'none (TRANSNORMER_DATA_ROOT is not set)'}"]
    width = max((len(_label(row)) for row in rows), default=0)
    for row in rows:
        revision = f"  at {row.revision[:12]}" if row.revision else ""
        unpinned = " (not pinned; the first read is recorded)" if row.revision == hub.MOVING else ""
        digest = f"  sha256 {row.fingerprint[:16]}" if row.fingerprint else ""
        lines.append(
            f"{row.place or 'absent':10} {_label(row):{width}} {size_text(row.bytes):>9}  {row.licence}{revision}"
            f"{unpinned}{digest}{'  for ' + ', '.join(row.needed_by) if row.needed_by else ''}"
        )
    lines += [f"{name}: {note}" for name, note in dict.fromkeys((row.name, row.note) for row in rows if row.note)]
    lacking = [row for row in rows if row.reason]
    lines.append(f"{len(rows) - len(lacking)} of {len(rows)} here")
    lines += [f"{_label(row)}: {row.reason}" for row in lacking]
    return "\n".join(lines)


def fetch(needed: dict[str, tuple[str, ...]] | None) -> int:
    """Download absent data from the Hub into its cache. Returns the exit code: 1 if anything is still absent."""
    failed = 0
    for row in entries(needed):
        if row.place:
            continue
        try:
            found = _locate(row.name, row.split, fetch=True)
            print(f"fetched    {_label(row)}  sha256 {found.fingerprint[:16]}", flush=True)
        except (DataUnavailable, DataFault) as problem:
            failed += 1
            print(f"absent     {_label(row)}: {problem}", file=sys.stderr, flush=True)
    return 1 if failed else 0


def check(needed: dict[str, tuple[str, ...]] | None, *, accept: bool = False) -> int:
    """Read all data that are here and check their fingerprints, columns and labels.

    Returns the exit code: 1 if anything is wrong, or if anything named in ``needed`` is absent.
    """
    wrong = 0
    for row in entries(needed):
        label = _label(row)
        if not row.place:
            wrong += needed is not None
            print(f"absent     {label}: {row.reason}", flush=True)
            continue
        try:
            print(f"right      {label}: {_read(row, accept)}", flush=True)
        except (DataUnavailable, DataFault) as problem:
            wrong += 1
            print(f"wrong      {label}: {problem}", file=sys.stderr, flush=True)
    return 1 if wrong else 0


def _read(row: Entry, accept: bool) -> str:
    if row.place == "embedded":
        return f"sha256 {sources.load(row.name).fingerprint[:16]}"
    located = _locate(row.name, row.split, fetch=False, rehash=True, accept=accept)
    if not row.split:
        return f"from the {located.origin}, sha256 {located.fingerprint[:16]}"
    rows = sum(batch.num_rows for batch in sources.batches(row.name, row.split))
    published = hub.DATASETS[row.name].splits[row.split].rows
    of = "" if rows == published else f" of {published:,} published"
    return f"{rows:,} rows{of} from the {located.origin}, sha256 {located.fingerprint[:16]}"


def _locate(
    name: str, split: str, *, fetch: bool, rehash: bool = False, accept: bool = False, hashed: bool = True
) -> sources.Located:
    if name == _TOKENIZER:
        return sources.tokenizer_files(fetch=fetch, rehash=rehash, hashed=hashed)
    return sources.locate(name, split, fetch=fetch, rehash=rehash, accept=accept, hashed=hashed)


def _entries(name: str, by: tuple[str, ...], hashed: bool) -> Iterator[Entry]:
    if name in EMBEDDED:
        try:
            source = sources.load(name)
        except DataUnavailable as problem:
            yield Entry(name, "", by, 0, EMBEDDED[name], "", "", str(problem), "")
            return
        digest = source.fingerprint if hashed else ""
        yield Entry(name, "", by, len(source.content), EMBEDDED[name], "", "embedded", "", digest)
        return
    if name == _TOKENIZER:
        place, reason, digest = _whereabouts(name, "", hashed)
        size = hub.GPT2.vocabulary.size + hub.GPT2.merges.size
        yield Entry(name, "", by, size, hub.GPT2.licence, hub.GPT2.revision, place, reason, digest)
        return
    dataset = hub.DATASETS[name]
    stands_in = name == wikitext.WORD_LEVEL and wikitext.stands_in()
    note = f"word-level text, also stands in for {wikitext.RAW}, which the data root lacks" if stands_in else ""
    for split, described in dataset.splits.items():
        place, reason, digest = _whereabouts(name, split, hashed)
        yield Entry(name, split, by, described.size, dataset.licence, dataset.revision, place, reason, digest, note)


def _whereabouts(name: str, split: str, hashed: bool) -> tuple[str, str, str]:
    try:
        found = _locate(name, split, fetch=False, hashed=hashed)
    except DataUnavailable as problem:
        return "", str(problem), ""
    except DataFault as problem:
        return "wrong", str(problem), ""
    return found.origin, "", found.fingerprint if hashed else ""


def _corpus(word: str, vocabulary: str) -> list[str]:
    """The data sets that the corpus ``word`` in the tokens of ``vocabulary`` needs; none if it is not a corpus."""
    if word == wikitext.NAME:
        return [wikitext.copy_read(vocabulary)[0], *([_TOKENIZER] if vocabulary == wikitext.GPT2 else [])]
    if word == reviews.NAME:
        return list(_REVIEWS)
    if word in hub.SPEECH:
        return [hub.SPEECH[word]]
    return [word] if word in EMBEDDED else []


def _task(word: str, vocabulary: str, corpus: str | None) -> list[str]:
    """The data sets that the task ``word`` and its vocabulary need; none if it is not a task."""
    if word not in tasks.task_names():
        return []
    task = tasks.task_definition(word)
    named = list(_REVIEWS) if task.source == reviews.NAME else [task.source] if task.source else []
    if task.alphabet == "text" and vocabulary != ByteVocabulary.name:
        named += _corpus(tasks.vocabulary_corpus(vocabulary, corpus), vocabulary)
    return named


def _words(value: Any) -> Iterator[str]:
    """Every string in a parameter's value, including the keys of mappings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from (*_words(key), *_words(inner))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _words(inner)


def _label(row: Entry) -> str:
    return f"{row.name} {row.split}".strip()
