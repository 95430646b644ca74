"""Tables of results as accessible HTML: caption, scoped headers, aligned numbers, escaped text."""

import numbers
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import floor, log10
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from transnormer_lib.ledger.values import shown
from transnormer_lib.show.templating import output_styles, render

if TYPE_CHECKING:
    import pandas as pd

# A hyphen that stands for a minus: before a number, and neither in a range nor in a word.
_HYPHEN = re.compile(r"(?<![\w.)\]-])-(?=\.?\d|∞)")
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
    note: str = "",
    digits: int = 5,
    aside: bool = False,
) -> Markup:
    """The rows of a frame, or mappings with the same keys, as a table; the first column heads its row.

    ``published`` names the columns with the paper's values: they are set in italics and keep all their digits; other
    numbers show at most ``digits`` significant ones, and as many decimals as the rest of their column. ``caption``,
    ``note``, headings and the columns named in ``math`` may hold ``$math$``, so they must not hold text from data.
    A page folds a table that stands ``aside``. Raises ValueError for an empty caption, no rows, rows with different
    columns, a heading without a word, or a published or math column that does not exist.
    """
    if not caption.strip():
        raise ValueError(f"caption={caption!r}: must say something")
    names, records = _records(rows)
    for name in names:
        if not re.search(r"\w", re.sub(r"\$[^$]*\$", "", name)):  # a screen reader would announce an empty heading
            raise ValueError(f"rows: the heading {name!r} must hold a word")
    for argument, named in (("published", published), ("math", math)):
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
    texts = [
        [shown(value, 8) for value in values] if name in published else _texts(values, digits, name in math)
        for name in names
        for values in [[record[name] for record in records]]
    ]
    rows = list(zip(*texts, strict=True))
    return render(
        "show/templates/table.html.j2", caption=caption, columns=columns, rows=rows, note=note.strip(), aside=aside
    )


def _texts(values: Sequence[Any], digits: int, math: bool) -> list[str]:
    """A column's values as text: numbers with equally many decimals, and a minus sign before those inside text."""
    decimals = _decimals(values, digits)
    if decimals is not None:
        return [shown(v) if v is None else f"{v + 0.0:.{decimals}f}".replace("-", "−") for v in values]
    return [
        _HYPHEN.sub("−", shown(value)) if isinstance(value, str) and not math else shown(value, digits)
        for value in values
    ]


def _decimals(values: Sequence[Any], digits: int) -> int | None:
    """How many decimals the numbers of a column share; None if it holds other things or sizes too far apart.

    The largest number has at most ``digits`` significant ones, the smallest at least three where one of them needs it.
    """
    found = [value for value in values if value is not None]
    sizes = [abs(value) for value in found if _is_number(value) and value]
    if not all(_is_number(v) for v in found) or not any(isinstance(v, float) for v in found) or not sizes:
        return None
    if not (min(sizes) >= 1e-3 and max(sizes) < 10 ** (digits - 1) and max(sizes) < 1e4 * min(sizes)):
        return None
    needed = max(len(shown(value, digits).partition(".")[2]) for value in found)
    room, least = digits - 1 - floor(log10(max(sizes))), 2 - floor(log10(min(sizes)))
    return min(needed, max(room, least))


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
