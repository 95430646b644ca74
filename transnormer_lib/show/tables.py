"""Tables of results as accessible HTML: caption, scoped headers, aligned numbers, escaped text."""

import numbers
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from transnormer_lib.ledger.values import decimals, shown
from transnormer_lib.show.templating import output_styles, render

if TYPE_CHECKING:
    import pandas as pd

# A hyphen that stands for a minus: before a number, and neither in a range nor in a word.
_HYPHEN = re.compile(r"(?<![\w.)\]-])-(?=\.?\d|∞)")
# Of "3.49 (3.47 to 3.53)" or "1,024 tokens"; not of two numbers, "29.6 / 31.0".
_LEADING = re.compile(r"[−-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![\d.,]*\s*/)")
_BEST = "Bold: the best of its column."
_FAR_APART = 4  # significant digits of a column whose numbers are too far apart to share decimals
_NAMED = 3  # of equally good rows a caption names at most so many
_LONG_TEXT = 40  # from this many characters on, a column of text may wrap


def show_table(rows: "pd.DataFrame | Iterable[Mapping[str, Any]]", *, caption: str, **options: Any) -> None:
    """Display ``rows``; the options are those of :func:`table_html`."""
    from IPython.display import display

    html = table_html(rows, caption=caption, **options)
    display({"text/html": output_styles() + html, "text/plain": f"Table: {caption}"}, raw=True)


def show_list(sentences: Sequence[str]) -> None:
    """Display sentences as a list; nothing if there are none. Printed text would move to the cell's first line."""
    from IPython.display import display

    if sentences:
        html = render("show/templates/list.html.j2", sentences=sentences)
        display({"text/html": html, "text/plain": "\n".join(sentences)}, raw=True)


def table_html(
    rows: "pd.DataFrame | Iterable[Mapping[str, Any]]",
    *,
    caption: str,
    published: Collection[str] = (),
    math: Collection[str] = (),
    lowest: Collection[str] = (),
    highest: Collection[str] = (),
    note: str = "",
    digits: int = 5,
    aside: bool = False,
) -> Markup:
    """The rows of a frame, or mappings with the same keys, as a table; the first column heads its row.

    ``published`` names the columns with the paper's values: they are set in italics and keep all their digits; other
    numbers show at most ``digits`` significant ones, and as many decimals as the rest of their column. Of the columns
    in ``lowest`` and ``highest`` the best number is set in bold, a screen reader says so, and the caption ends with the
    row that has it; of text counts the number that it begins with. ``caption``, ``note``, headings and the columns
    named in ``math`` may hold ``$math$``, so they must not hold text from data. A page folds a table that stands
    ``aside``. Raises ValueError for an empty caption, no rows, rows with different columns, a heading without a word,
    or an argument that names a column that does not exist.
    """
    if not caption.strip():
        raise ValueError(f"caption={caption!r}: must say something")
    names, records = _records(rows)
    for name in names:
        if not re.search(r"\w", re.sub(r"\$[^$]*\$", "", name)):  # a screen reader would announce an empty heading
            raise ValueError(f"rows: the heading {name!r} must hold a word")
    for argument, named in (("published", published), ("math", math), ("lowest", lowest), ("highest", highest)):
        for name in named:
            if name not in names:
                raise ValueError(f"{argument}={name!r}: no such column; there are {', '.join(names)}")
    columns = [
        {
            "name": name,
            "classes": _classes([record[name] for record in records], name in published),
            "math": name in math,
        }
        for name in names
    ]
    texts = []
    for name in names:
        values = [record[name] for record in records]
        column = _printed(values) if name in published else _texts(values, digits, name in math)
        best = _best(values, min if name in lowest else max) if name in lowest or name in highest else set()
        texts.append([(text, number in best) for number, text in enumerate(column)])
    rows = list(zip(*texts, strict=True))
    finding = _finding(texts)
    note = " ".join(text for text in (note.strip(), _BEST if finding else "") if text)
    fields = {"caption": caption, "finding": finding, "columns": columns, "rows": rows, "note": note, "aside": aside}
    return render("show/templates/table.html.j2", **fields)


def _finding(texts: Sequence[Sequence[tuple[str, bool]]]) -> str:
    """Which row is bold, as a caption says it: with its number in a table of one such column, else how often."""
    columns = [[row for row, (_, best) in enumerate(column) if best] for column in texts]
    columns = [rows for rows in columns if rows]
    if not columns:
        return ""
    counts = Counter(row for rows in columns for row in rows)
    most = max(counts.values())
    first = [row for row in counts if counts[row] == most]
    if len(columns) > 1 and most == 1:
        return f"Another row is best in each of the {len(columns)} columns."
    if len(first) > _NAMED:
        return f"{len(first)} rows are equally good."
    names = ", ".join(texts[0][row][0] for row in sorted(first))
    if len(columns) == 1:
        number = next(column[first[0]][0] for column in texts if column[first[0]][1])
        return f"Best: {names}, {number}."
    return f"Best in {most} of {len(columns)} columns: {names}."


def _best(values: Sequence[Any], choose: Callable[[Iterable[float]], float]) -> set[int]:
    """The rows with the best number; none where fewer than two have one."""
    found = {row: number for row, value in enumerate(values) if (number := _leading(value)) is not None}
    if len(found) < 2:
        return set()
    best = choose(found.values())
    return {row for row, number in found.items() if number == best}


def _leading(value: Any) -> float | None:
    """A number, or the one that a text begins with."""
    if isinstance(value, str):
        found = _LEADING.match(value)
        return float(found[0].replace("−", "-").replace(",", "")) if found else None
    return float(value) if _is_number(value) else None


def _printed(values: Sequence[Any]) -> list[str]:
    """A published column: all digits, and in each number as many decimals as the most that one of them has."""
    texts = [shown(value, 8) for value in values]
    pairs = list(zip(values, texts, strict=True))
    if not all(value is None or (_is_number(value) and re.fullmatch(r"[−\d.,]+", text)) for value, text in pairs):
        return texts
    width = max((len(text.partition(".")[2]) for value, text in pairs if value is not None), default=0)
    return [text if value is None else f"{value:,.{width}f}".replace("-", "−") for value, text in pairs]


def _texts(values: Sequence[Any], digits: int, math: bool) -> list[str]:
    """A column's values as text: numbers with equally many decimals, and a minus sign before those inside text."""
    found = [value for value in values if value is not None]
    if all(map(_is_number, found)) and any(isinstance(value, float) for value in found):
        places = decimals(found, digits)
        if places is not None:
            return [shown(v) if v is None else f"{v + 0.0:,.{places}f}".replace("-", "−") for v in values]
        digits = min(digits, _FAR_APART)
    return [
        _HYPHEN.sub("−", shown(value)) if isinstance(value, str) and not math else shown(value, digits)
        for value in values
    ]


def _classes(values: Sequence[Any], published: bool) -> str:
    names = []
    if all(value is None or _is_number(value) for value in values):
        names.append("tn-number")
    elif any(isinstance(value, str) and len(value) > _LONG_TEXT for value in values):
        names.append("tn-text")
    if published:
        names.append("tn-published")
    return " ".join(names)


def _records(rows: Any) -> tuple[list[str], list[dict[str, Any]]]:
    if hasattr(rows, "to_dict"):
        records = [{str(key): value for key, value in record.items()} for record in rows.to_dict("records")]
    else:
        records = [{str(key): value for key, value in row.items()} for row in rows]
    if not records:
        raise ValueError("rows=[]: a table needs at least one row")
    columns = list(records[0])
    for record in records:
        if list(record) != columns:
            raise ValueError(f"rows: all need the columns {columns!r}, one has {list(record)!r}")
    return columns, [{name: _plain(value) for name, value in record.items()} for record in records]


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value
    return None if isinstance(value, float) and value != value else value  # a frame's gap is NaN


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
