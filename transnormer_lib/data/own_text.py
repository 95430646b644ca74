"""A text of one's own: a file, a folder, a table with a column of text, or a data set of the Hub.

- a text file: its documents are its paragraphs, separated by empty lines, or its lines where it has few paragraphs
- a folder: every ``.txt`` file below it is a document
- ``.parquet``, ``.jsonl``: every row is a document, in the column ``text`` or the only column of text
- ``OWNER/NAME`` or ``OWNER/NAME:CONFIG``: every row of a data set of the Hub, looked for in the data root first

The splits share no document: 90% of the text is train, 5% validation and 5% test. The parts of a text file keep their
order; other documents are ordered by their digest, so that the order of files and rows does not matter. A data set of
the Hub with splits of its own keeps them.
"""

import hashlib
import os
import re
import reprlib
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

from transnormer_lib.data import sources
from transnormer_lib.data.faults import DataFault, DataUnavailable

SPLITS = ("train", "validation", "test")
SPLIT_RULE = "own text: 90% of the bytes train, 5% validation, 5% test, whole documents"
_SHARES = (0.9, 0.95)  # of the bytes: where train and validation end
_PART = r"[\w.-]*\w[\w.-]*"  # never "." or "..", which would leave the data root
_HUB_NAME = re.compile(f"{_PART}/{_PART}(:{_PART})?")
_FEW = 20  # paragraphs


def documents(name: str) -> dict[str, list[str]]:
    """The documents of every split of the text that ``name`` names.

    Raises ValueError for a name that is no path and no Hub name, DataFault for a text that cannot be read or split,
    DataUnavailable for a data set that is neither here nor to be had.
    """
    path = Path(os.path.expanduser(name))  # keeps the "~" of an unknown user, where Path.expanduser raises
    if name and path.is_dir():
        files = sorted(path.rglob("*.txt"))
        if not files:
            raise DataFault(f"{path}: has no .txt file")
        return _split(name, _by_digest(_text(file) for file in files))
    if path.is_file():
        if path.suffix in (".parquet", ".jsonl"):
            return _split(name, _by_digest(_rows(path, path.suffix[1:])))
        return _split(name, _parts(_text(path)))
    if _HUB_NAME.fullmatch(name):
        return _of_the_hub(name)
    absent = f"; {path.absolute()} does not exist" if name else ""
    raise ValueError(
        f"corpus={name!r}: must be 'wikipedia', 'wikitext-103', a text file, a folder of .txt files, a .parquet or"
        f" .jsonl file, or OWNER/NAME on the Hub{absent}"
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as problem:
        raise DataFault(f"{path}: must be UTF-8; byte {problem.start} is not") from None


def _parts(text: str) -> list[str]:
    paragraphs = [f"{part}\n\n" for part in re.split(r"\n\s*\n", text) if part.strip()]
    return paragraphs if len(paragraphs) >= _FEW else [f"{line}\n" for line in text.splitlines() if line.strip()]


def _by_digest(texts: Iterator[str]) -> list[str]:
    whole = (f"{text.strip()}\n\n\n" for text in texts if text.strip())
    return sorted(whole, key=lambda text: hashlib.sha256(text.encode()).digest())


def _split(name: str, found: list[str]) -> dict[str, list[str]]:
    """Cut the documents by their bytes, with at least one in every split."""
    if len(found) < len(SPLITS):
        raise DataFault(f"{name}: has {len(found)} documents; train, validation and test need one each")
    ends = list(accumulate(len(text.encode()) for text in found))
    first = min(max(sum(end <= _SHARES[0] * ends[-1] for end in ends), 1), len(found) - 2)
    second = min(max(sum(end <= _SHARES[1] * ends[-1] for end in ends), first + 1), len(found) - 1)
    return {"train": found[:first], "validation": found[first:second], "test": found[second:]}


def _rows(path: Path, kind: str) -> Iterator[str]:
    from datasets import load_dataset

    builder = {"jsonl": "json"}.get(kind, kind)
    try:
        table = load_dataset(builder, data_files=str(path), split="train", streaming=True)
        yield from _column(str(path), table)
    except DataFault:
        raise
    except Exception as problem:  # the readers raise errors of their own
        raise DataFault(f"{path}: expected a whole {kind} file: {' '.join(str(problem).split())[:160]}") from None


def _column(name: str, table: Any) -> Iterator[str]:
    column: str | None = None
    for number, row in enumerate(table, 1):
        if column is None:
            texts = ["text"] if "text" in row else [key for key, value in row.items() if isinstance(value, str)]
            if len(texts) != 1:
                raise DataFault(f"{name}: needs a column 'text', or one column of text alone; has {', '.join(row)}")
            column = texts[0]
        if not isinstance(text := row.get(column), str):
            raise DataFault(f"{name}, row {number}: {column}={reprlib.repr(text)}: must be text")
        if text:
            yield text


def _of_the_hub(name: str) -> dict[str, list[str]]:
    from datasets import DatasetDict, load_dataset
    from datasets.exceptions import DatasetGenerationError, DatasetNotFoundError

    repository, _, config = name.partition(":")
    root = sources.data_root()
    place = root and root / repository
    try:
        if place is not None and place.is_dir():
            found: Any = load_dataset(str(place), config or None)
        else:
            found = load_dataset(repository, config or None)
    except (DatasetNotFoundError, ConnectionError, OSError) as problem:
        reason = " ".join(str(problem).split())[:160]
        raise DataUnavailable(f"data set {name!r}: {type(problem).__name__}: {reason}") from None
    except (ValueError, DatasetGenerationError) as problem:
        reason = " ".join(str(problem.__cause__ or problem).split())[:200]
        raise DataFault(f"data set {name!r}: {reason}") from None
    assert isinstance(found, DatasetDict)

    def texts(split: str) -> Iterator[str]:
        return _column(f"data set {name!r}, split {split!r}", found[split])

    if set(SPLITS) <= set(found):
        return {split: _by_digest(texts(split)) for split in SPLITS}
    return _split(name, _by_digest(text for split in sorted(found) for text in texts(split)))
