"""Rows of Parquet and tab-separated files, in batches, every value checked.

Rows are counted from 0 in each file. Text becomes Arrow's ``large_string``, labels ``int64``; images stay structures
with the field ``bytes``.
"""

import io
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transnormer_lib.data.faults import DataFault
from transnormer_lib.data.hub import Column

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 8192  # of a batch
_CSV_ROW = re.compile(r"Row #(\d+): ")
_CSV_BLOCK = 16 << 20  # bytes; must hold the longest row


def read_batches(
    path: Path, columns: Sequence[Column], tsv: Sequence[str] = (), *, rows: int = ROWS
) -> Iterator["pa.RecordBatch"]:
    """The file's rows, ``rows`` at a time, with these columns in this order.

    ``tsv``: names of all columns, for a tab-separated file without a header. Memory is that of a batch, whatever
    the size of the file.

    Raises:
        DataFault: the file is truncated, a column is missing or of another type, or a value is not what its column
            says.
    """
    first = 0
    for block in _tsv(path, tsv) if tsv else _parquet(path, columns, rows):
        for start in range(0, block.num_rows, rows):
            batch = block.slice(start, rows)
            yield _checked(path, first, batch, columns)
            first += batch.num_rows


def count_rows(path: Path, tsv: Sequence[str] = ()) -> int:
    """The rows of a Parquet file, from its footer, or of a tab-separated one, by reading it."""
    if tsv:
        return sum(batch.num_rows for batch in _tsv(path, tsv))
    return int(_open(path).metadata.num_rows)


def _open(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as problem:
        raise DataFault(f"{path}: expected a whole Parquet file: {_line(problem)}") from None


def _parquet(path: Path, columns: Sequence[Column], rows: int) -> Iterator["pa.RecordBatch"]:
    import pyarrow as pa

    file = _open(path)
    there = file.schema_arrow.names
    for column in columns:
        if column.name not in there:
            raise DataFault(f"{path}: has no column {column.name!r}, expected among: {', '.join(there)}")
    try:
        yield from file.iter_batches(batch_size=rows, columns=[column.name for column in columns])
    except (pa.ArrowException, OSError) as problem:
        raise DataFault(f"{path}: expected a whole Parquet file: {_line(problem)}") from None


def _tsv(path: Path, names: Sequence[str]) -> Iterator["pa.RecordBatch"]:
    import pyarrow as pa
    from pyarrow import csv

    _check_end(path)
    read = csv.ReadOptions(column_names=list(names), use_threads=False, block_size=_CSV_BLOCK)
    parse = csv.ParseOptions(delimiter="\t", quote_char=False, escape_char=False, ignore_empty_lines=False)
    # Everything as text first: a label is checked where its row is known.
    types = csv.ConvertOptions(column_types={name: pa.large_string() for name in names}, strings_can_be_null=False)
    try:
        with csv.open_csv(path, read_options=read, parse_options=parse, convert_options=types) as reader:
            yield from reader
    except (pa.ArrowException, OSError) as problem:
        message = _line(problem)
        row = _CSV_ROW.search(message)
        where = f", row {int(row[1]) - 1}" if row else ""
        raise DataFault(f"{path}{where}: expected {len(names)} columns of text in UTF-8: {message[:160]}") from None


def _check_end(path: Path) -> None:
    """Refuse a text file that stops within a line: cut inside its last column it would still have all columns."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if not size:
            return
        file.seek(size - 1)
        if file.read(1) != b"\n":
            raise DataFault(f"{path}: expected a line break at the end: the file is cut")


def _checked(path: Path, first: int, batch: "pa.RecordBatch", columns: Sequence[Column]) -> "pa.RecordBatch":
    import pyarrow as pa
    import pyarrow.compute as pc

    arrays = []
    for column in columns:
        array = batch.column(column.name)
        _refuse(path, first, column, pc.is_null(array), "a value, found none")
        check = {"text": _text, "label": _label, "image": _image}[column.kind]
        arrays.append(check(path, first, column, array))
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


def _text(path: Path, first: int, column: Column, array: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        raise DataFault(f"{path}: column {column.name!r} is {array.type}, expected text")
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        for row, content in enumerate(array.cast(pa.large_binary()).to_pylist()):
            try:
                content.decode()
            except UnicodeDecodeError as problem:
                raise DataFault(f"{_place(path, first + row, column)}: expected UTF-8: {problem}") from None
        raise
    if not column.blank:
        blank = pc.equal(pc.utf8_trim_whitespace(array), "")
        _refuse(path, first, column, blank, "text, found none")
    return array.cast(pa.large_string())


def _label(path: Path, first: int, column: Column, array: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_large_string(array.type):  # of a tab-separated file, where 1 may be written 1.0
        number = pc.match_substring_regex(array, r"^-?\d+(\.0*)?$")
        _refuse(path, first, column, pc.invert(number), "a whole number", array)
        array = pc.cast(pc.cast(array, pa.float64()), pa.int64())
    if not pa.types.is_integer(array.type):
        raise DataFault(f"{path}: column {column.name!r} is {array.type}, expected whole numbers")
    array = array.cast(pa.int64())
    if column.labels is not None:
        low, high = column.labels
        outside = pc.or_(pc.less(array, low), pc.greater(array, high))
        _refuse(path, first, column, outside, f"a label in {low}…{high}", array)
    return array


def _image(path: Path, first: int, column: Column, array: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_struct(array.type) or array.type.get_field_index("bytes") < 0:
        raise DataFault(f"{path}: column {column.name!r} is {array.type}, expected a structure with the field 'bytes'")
    content = pc.struct_field(array, "bytes")
    _refuse(path, first, column, pc.fill_null(pc.equal(pc.binary_length(content), 0), True), "an image, found none")
    for row, encoded in enumerate(content.to_pylist()):
        found = _not_decoded(encoded, column.size)
        if found:
            size = "{} × {} ".format(*column.size) if column.size else ""
            raise DataFault(f"{_place(path, first + row, column)}: expected a {size}PNG or JPEG, found {found}")
    return array


def _not_decoded(encoded: bytes, size: tuple[int, int] | None) -> str:
    """What is wrong with an encoded picture of this width and height; "" where nothing is."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(encoded), formats=("PNG", "JPEG")) as picture:
            if size is not None and picture.size != size:
                return "one of {} × {}".format(*picture.size)
            picture.load()
    except Exception as problem:  # what broken bytes raise differs with where they break
        return f"{len(encoded)} bytes that cannot be decoded ({type(problem).__name__})"
    return ""


def _refuse(path: Path, first: int, column: Column, wrong: Any, expected: str, values: Any = None) -> None:
    """Raise for the first row that ``wrong`` marks."""
    import pyarrow as pa
    import pyarrow.compute as pc

    row = pc.index(wrong, pa.scalar(True)).as_py()
    if row >= 0:
        found = "" if values is None else f", found {values[row].as_py()!r}"
        raise DataFault(f"{_place(path, first + row, column)}: expected {expected}{found}")


def _place(path: Path, row: int, column: Column) -> str:
    return f"{path}, row {row}, column {column.name!r}"


def _line(problem: BaseException) -> str:
    return " ".join(str(problem).split())
