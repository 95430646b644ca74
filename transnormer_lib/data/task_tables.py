"""Splits of classification tasks that are tables in the data root or on the Hub, read a piece at a time."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from transnormer_lib.data import cache, hub, sources
from transnormer_lib.data.examples import Examples
from transnormer_lib.data.faults import DataFault
from transnormer_lib.data.task_kinds import Read, Rows, SplitReader, TextRows, chosen_rows

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 1024  # per piece
_HELD_OUT = 10  # one row in ten
_TOLERANCE = 0.005  # share of the published rows: copies differ by a row or two without being samples


def text_rows(batch: "pa.RecordBatch") -> TextRows:
    """The text columns of the batch, one or two, stripped of surrounding white space, and its labels."""
    texts = [[text.strip() for text in column.to_pylist()] for column in batch.columns[:-1]]
    return TextRows(texts[0], texts[1] if len(texts) == 2 else None, labels_of(batch))


def table_reader(
    task: str,
    dataset: str,
    columns: Sequence[str],
    code: str,
    *,
    made_of: Callable[["pa.RecordBatch"], Rows | Examples] = text_rows,
    labelled: bool = True,
    held_out: Callable[[int], NDArray[np.int64]] | None = None,
) -> Read:
    """The reader of a task whose rows are ``columns`` of ``dataset``, one of ``hub.DATASETS``, and "label" if it is
    ``labelled``.

    ``made_of`` converts a piece of the table; ``code`` is the file that defines the task. ``held_out`` makes validation
    a tenth of train: it ranks the rows [total] from 0 on, the lowest ranks are held out, and rows of equal rank stay
    together.

    The reader raises DataUnavailable if a split is not on this machine and cannot be fetched, and DataFault if a file
    is invalid.
    """

    def read(split: str, limit: int | None) -> SplitReader:
        from transnormer_lib.data import tables

        read_columns = [*columns, "label"] if labelled else columns
        table = "train" if held_out and split == "validation" else split
        located = sources.locate(dataset, table)
        total, published = _count(dataset, located), hub.DATASETS[dataset].splits[table].rows

        def parts() -> Iterator[Rows | Examples]:
            rows = np.arange(total) if held_out is None or split == "test" else _side(task, total, held_out, split)
            chosen = rows[chosen_rows(rows.size, limit, f"{task} {split}")]
            first = 0
            for batch in sources.batches(dataset, table, read_columns, rows=ROWS):
                start, end = np.searchsorted(chosen, [first, first + batch.num_rows])
                if start < end:
                    yield made_of(batch.take(chosen[start:end] - first))
                first += batch.num_rows

        versions = [cache.code_version(file) for file in (code, __file__, tables.__file__)]
        differs = abs(total - published) > _TOLERANCE * published
        sample = f"{table} {total:,} of {published:,} rows" if differs else ""
        return SplitReader(parts, cache.key(located.fingerprint, *versions), located.origin, sample)

    return read


def _side(task: str, total: int, held_out: Callable[[int], NDArray[np.int64]], split: str) -> NDArray[np.int64]:
    """The rows of the train table that are in ``split``, train or validation."""
    if total < _HELD_OUT:
        raise DataFault(
            f"task {task!r}: split 'train' of its table has {total} rows, expected at least {_HELD_OUT}: one in "
            f"{_HELD_OUT} is held out for validation"
        )
    ranks = held_out(total)
    of_rank = np.bincount(ranks)
    apart = (of_rank.cumsum() - of_rank < total // _HELD_OUT)[ranks]
    return np.flatnonzero(apart if split == "validation" else ~apart)


def _count(dataset: str, located: sources.Located) -> int:
    """The rows of all files, kept in the cache because a tab-separated file must be read to count them."""
    from transnormer_lib.data import tables

    tsv = hub.DATASETS[dataset].tsv

    def count() -> bytes:
        rows = [tables.count_rows(path, tsv if path.suffix == ".tsv" else ()) for path in located.files]
        return json.dumps(sum(rows)).encode()

    digest = cache.key(located.fingerprint, cache.code_version(tables.__file__))
    return int(json.loads(cache.cached(f"{dataset.replace('/', '-')}-rows", digest, count)))


def labels_of(batch: "pa.RecordBatch") -> NDArray[np.int64]:
    """The batch's labels [n]."""
    return np.array(batch.column("label").to_pylist(), np.int64)
