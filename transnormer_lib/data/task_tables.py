"""Splits of classification tasks that are tables of the data root or the Hub, read a piece at a time."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from transnormer_lib.data import cache, hub, sources, tables
from transnormer_lib.data.examples import Examples
from transnormer_lib.data.task_kinds import SplitReader, TextRows

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 1024  # read at a time
_TOLERANCE = 0.005  # of the published rows: copies differ by single rows, and are no samples for that


def table_reader(
    dataset: str,
    split: str,
    columns: Sequence[str],
    made_of: Callable[["pa.RecordBatch"], TextRows | Examples],
    code: str,
    pick: Callable[[int], NDArray[np.int64]] | None = None,
) -> SplitReader:
    """A reader of ``columns`` of a split of ``dataset``, one of ``hub.DATASETS``.

    ``made_of`` turns a piece of the table into rows; ``code`` is the file that decides how. ``pick`` gives the numbers
    of the rows to take, ascending, out of so many. A column that holds labels is called "label".

    Raises:
        DataUnavailable: the split is not on this machine and cannot be fetched.
        DataFault: a file is not what it should be.
    """
    located = sources.locate(dataset, split)
    total, published = _rows(dataset, located), hub.DATASETS[dataset].splits[split].rows

    def parts() -> Iterator[TextRows | Examples]:
        chosen = None if pick is None else pick(total)
        first = 0
        for batch in sources.batches(dataset, split, [*columns, "label"], rows=ROWS):
            last = first + batch.num_rows
            part = batch if chosen is None else batch.take(_between(chosen, first, last))
            first = last
            if part.num_rows:
                yield made_of(part)

    versions = [cache.code_version(file) for file in (code, __file__, tables.__file__)]
    differs = abs(total - published) > _TOLERANCE * published
    sample = f"{split} {total:,} of {published:,} rows" if differs else ""
    return SplitReader(parts, cache.key(located.fingerprint, *versions), located.origin, sample)


def _rows(dataset: str, located: sources.Located) -> int:
    """The rows of all files. A tab-separated file must be read for that, so the number is kept."""
    tsv = hub.DATASETS[dataset].tsv

    def count() -> bytes:
        rows = [tables.count_rows(path, tsv if path.suffix == ".tsv" else ()) for path in located.files]
        return json.dumps(sum(rows)).encode()

    digest = cache.key(located.fingerprint, cache.code_version(tables.__file__))
    return int(json.loads(cache.cached(f"{dataset.replace('/', '-')}-rows", digest, count)))


def text_rows(batch: "pa.RecordBatch") -> TextRows:
    """The text columns of the batch, one or two, and its labels; white space around a text is dropped."""
    texts = [[text.strip() for text in column.to_pylist()] for column in batch.columns[:-1]]
    return TextRows(texts[0], texts[1] if len(texts) == 2 else None, labels_of(batch))


def labels_of(batch: "pa.RecordBatch") -> NDArray[np.int64]:
    """The batch's labels [n]."""
    return np.array(batch.column("label").to_pylist(), np.int64)


def _between(chosen: NDArray[np.int64], first: int, last: int) -> "pa.Array":
    import pyarrow as pa

    start, end = np.searchsorted(chosen, [first, last])
    return pa.array(chosen[start:end] - first)
