"""Rows of Parquet and tab-separated files, in batches, every value checked.

Rows are counted from 0 in each file. Text becomes Arrow's ``large_string`` and labels ``int64``; images and audio stay
structs with the field ``bytes``. Importing pyarrow takes up to a second, so other modules import this one where they
need it.
"""

import io
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from transnormer_lib.data.faults import DataFault
from transnormer_lib.data.hub import Column

_CSV_ROW = re.compile(r"Row #(\d+): ")
_CSV_BLOCK = 16 << 20  # bytes; must hold the longest row


def read_batches(
    path: Path, columns: Sequence[Column], tsv: Sequence[str] = (), *, rows: int
) -> Iterator[pa.RecordBatch]:
    """The file's rows, ``rows`` at a time, with these columns in this order.

    ``tsv``: the names of all columns if the file is tab-separated without a header. Only a batch is in memory at a
    time. An optional column that the file lacks is left out. Raises DataFault if the file is truncated, another column
    is missing, or one has the wrong type or an invalid value.
    """
    first = 0
    for block in _tsv(path, tsv) if tsv else _parquet(path, columns, rows):
        for start in range(0, block.num_rows, rows):
            batch = block.slice(start, rows)
            yield _checked(path, first, batch, columns)
            first += batch.num_rows


def count_rows(path: Path, tsv: Sequence[str] = ()) -> int:
    """The number of rows: a Parquet file states it in its footer, a tab-separated file has to be read."""
    if tsv:
        return sum(batch.num_rows for batch in _tsv(path, tsv))
    return int(_open(path).metadata.num_rows)


def _open(path: Path) -> Any:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as problem:
        raise DataFault(f"{path}: expected a whole Parquet file: {_line(problem)}") from None


def _parquet(path: Path, columns: Sequence[Column], rows: int) -> Iterator[pa.RecordBatch]:
    file = _open(path)
    names = file.schema_arrow.names
    for column in columns:
        if column.name not in names and not column.optional:
            raise DataFault(f"{path}: has no column {column.name!r}, only {', '.join(names)}")
    try:
        yield from file.iter_batches(batch_size=rows, columns=[c.name for c in columns if c.name in names])
    except (pa.ArrowException, OSError) as problem:
        raise DataFault(f"{path}: expected a whole Parquet file: {_line(problem)}") from None


def _tsv(path: Path, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # a row cut inside its last column would still have all columns
                raise DataFault(f"{path}: expected a line break at the end; the file is truncated")
    read = csv.ReadOptions(column_names=list(names), use_threads=False, block_size=_CSV_BLOCK)
    parse = csv.ParseOptions(delimiter="\t", quote_char=False, escape_char=False, ignore_empty_lines=False)
    # Read every column as text: labels are checked later, where the row is known.
    types = csv.ConvertOptions(column_types={name: pa.large_string() for name in names}, strings_can_be_null=False)
    try:
        with csv.open_csv(path, read_options=read, parse_options=parse, convert_options=types) as reader:
            yield from reader
    except (pa.ArrowException, OSError) as problem:
        message = _line(problem)
        where = f", row {int(row[1]) - 1}" if (row := _CSV_ROW.search(message)) else ""
        raise DataFault(f"{path}{where}: expected {len(names)} columns of UTF-8 text: {message[:160]}") from None


def _checked(path: Path, first: int, batch: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    arrays = []
    columns = [column for column in columns if column.name in batch.schema.names]
    for column in columns:
        array = batch.column(column.name)
        _refuse(path, first, column, pc.is_null(array), "a value, found none")
        check = {"text": _text, "label": _label, "image": _image, "audio": _audio, "nested": _nested}[column.kind]
        arrays.append(check(path, first, column, array))
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


def _text(path: Path, first: int, column: Column, array: Any) -> Any:
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
        _refuse(path, first, column, pc.equal(pc.utf8_trim_whitespace(array), ""), "text, found none")
    return array.cast(pa.large_string())


def _label(path: Path, first: int, column: Column, array: Any) -> Any:
    if pa.types.is_large_string(array.type):  # from a tab-separated file, which may write 1 as 1.0
        number = pc.match_substring_regex(array, r"^-?\d{1,15}(\.0*)?$")  # more digits may not fit a float64
        _refuse(path, first, column, pc.invert(number), "a whole number of at most 15 digits", array)
        array = pc.cast(pc.cast(array, pa.float64()), pa.int64())
    if not pa.types.is_integer(array.type):
        raise DataFault(f"{path}: column {column.name!r} is {array.type}, expected whole numbers")
    array = array.cast(pa.int64())
    if column.labels is not None:
        low, high = column.labels
        outside = pc.or_(pc.less(array, low), pc.greater(array, high))
        _refuse(path, first, column, outside, f"a label in {low}…{high}", array)
    return array


def _nested(path: Path, first: int, column: Column, array: Any) -> Any:
    if not pa.types.is_nested(array.type):
        raise DataFault(f"{path}: column {column.name!r} is {array.type}, expected a list or a struct")
    return array


def _audio(path: Path, first: int, column: Column, array: Any) -> Any:
    content = _content(path, first, column, array, "a recording")
    known = pc.or_(*(pc.starts_with(content, pattern) for pattern in (b"fLaC", b"RIFF")))
    _refuse(path, first, column, pc.invert(known), "a FLAC or WAV file, found other bytes")
    return array


def _content(path: Path, first: int, column: Column, array: Any, what: str) -> Any:
    """The bytes of a column of files."""
    if not pa.types.is_struct(array.type) or array.type.get_field_index("bytes") < 0:
        raise DataFault(f"{path}: column {column.name!r} is {array.type}, expected a struct with the field 'bytes'")
    content = pc.struct_field(array, "bytes")
    _refuse(path, first, column, pc.fill_null(pc.equal(pc.binary_length(content), 0), True), f"{what}, found none")
    return content


def _image(path: Path, first: int, column: Column, array: Any) -> Any:
    content = _content(path, first, column, array, "an image")
    size = "{} × {} ".format(*column.size) if column.size else ""
    for row, encoded in enumerate(content.to_pylist()):
        if found := _not_decoded(encoded, column.size):
            raise DataFault(f"{_place(path, first + row, column)}: expected a {size}PNG or JPEG, found {found}")
    return array


def _not_decoded(encoded: bytes, size: tuple[int, int] | None) -> str:
    """What is wrong with an encoded image of this width and height; "" if nothing is."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(encoded), formats=("PNG", "JPEG")) as picture:
            if size is not None and picture.size != size:
                return "one of {} × {}".format(*picture.size)
            picture.load()
    except Exception as problem:  # the type depends on where the bytes are broken
        return f"{len(encoded)} bytes that cannot be decoded ({type(problem).__name__})"
    return ""


def _refuse(path: Path, first: int, column: Column, wrong: Any, expected: str, values: Any = None) -> None:
    """Raise for the first row marked in ``wrong``."""
    row = pc.index(wrong, pa.scalar(True)).as_py()
    if row >= 0:
        found = "" if values is None else f", found {values[row].as_py()!r}"
        raise DataFault(f"{_place(path, first + row, column)}: expected {expected}{found}")


def _place(path: Path, row: int, column: Column) -> str:
    return f"{path}, row {row}, column {column.name!r}"


def _line(problem: BaseException) -> str:
    return " ".join(str(problem).split())
