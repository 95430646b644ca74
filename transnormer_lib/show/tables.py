"""Tables of results as accessible HTML: caption, scoped headers, aligned numbers, escaped text."""

import numbers
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from transnormer_lib.ledger.values import shown
from transnormer_lib.show.templating import output_styles, render

if TYPE_CHECKING:
    import pandas as pd

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
) -> Markup:
    """The rows of a frame, or mappings with the same keys, as a table; the first column heads its row.

    ``published`` names the columns with the paper's values: they are set in italics and keep all their digits; other
    numbers show at most ``digits`` significant ones. ``caption``, ``note``, headings and the columns named in ``math``
    may hold ``$math$``, so they must not hold text from data. Raises ValueError for an empty caption, no rows, rows
    with different columns, or a published or math column that does not exist.
    """
    if not caption.strip():
        raise ValueError(f"caption={caption!r}: must say something")
    names, records = _records(rows)
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
    texts = [[shown(record[name], digits=8 if name in published else digits) for name in names] for record in records]
    return render("show/templates/table.html.j2", caption=caption, columns=columns, rows=texts, note=note.strip())


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
