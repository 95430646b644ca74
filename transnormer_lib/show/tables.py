"""Tables of results as accessible HTML: caption, scoped headers, numbers aligned, everything escaped."""

import numbers
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from transnormer_lib.ledger.values import shown
from transnormer_lib.show.cards import output_styles
from transnormer_lib.show.formulas import text_with_math

if TYPE_CHECKING:
    import pandas as pd

_LONG_TEXT = 40  # characters from which a column of text may wrap


def show_table(
    rows: "pd.DataFrame | Iterable[Mapping[str, Any]]",
    *,
    caption: str,
    published: Collection[str] = (),
    math: Collection[str] = (),
    note: str = "",
    digits: int = 5,
) -> None:
    """Display ``rows``; see :func:`table_html`."""
    from IPython.display import display

    html = table_html(rows, caption=caption, published=published, math=math, note=note, digits=digits)
    display({"text/html": output_styles() + html, "text/plain": f"Table: {caption}"}, raw=True)


def table_html(
    rows: "pd.DataFrame | Iterable[Mapping[str, Any]]",
    *,
    caption: str,
    published: Collection[str] = (),
    math: Collection[str] = (),
    note: str = "",
    digits: int = 5,
) -> str:
    """The rows of a frame, or mappings with the same keys, as a table; the first column heads its row.

    ``published`` names the columns whose values are the paper's: they stand in italics beside ours. Numbers
    show at most ``digits`` significant digits, those published all of theirs. ``caption``, ``note``,
    headings and the columns named in ``math`` may hold ``$math$``; text from data belongs in none of these.
    Raises ValueError for an empty caption, no rows, rows with different columns, or a published or math
    column that does not exist.
    """
    if not caption.strip():
        raise ValueError(f"caption={caption!r}: must say something")
    columns, records = _records(rows)
    for argument, named in (("published", published), ("math", math)):
        for name in named:
            if name not in columns:
                raise ValueError(f"{argument}={name!r}: no such column; there are {', '.join(columns)}")
    classes = {name: _classes([record[name] for record in records], name in published) for name in columns}
    head = "".join(f'<th scope="col"{classes[name]}>{text_with_math(name)}</th>' for name in columns)
    body = ""
    for record in records:
        texts = {name: shown(record[name], digits=8 if name in published else digits) for name in columns}
        cells = [(text_with_math if name in math else escape)(text) for name, text in texts.items()]
        first, *rest = zip(columns, cells, strict=True)
        body += f'<tr><th scope="row"{classes[first[0]]}>{first[1]}</th>'
        body += "".join(f"<td{classes[name]}>{cell}</td>" for name, cell in rest) + "</tr>"
    below = f'<p class="tn-table-note">{text_with_math(note)}</p>' if note.strip() else ""
    return (
        f'<div class="tn-table" tabindex="0" role="group" aria-label="{escape(caption)}"><table>'
        f"<caption>{text_with_math(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"{below}</div>"
    )


def _classes(values: Sequence[Any], published: bool) -> str:
    names = []
    if all(value is None or _is_number(value) for value in values):
        names.append("tn-number")
    elif any(isinstance(value, str) and len(value) > _LONG_TEXT for value in values):
        names.append("tn-text")
    if published:
        names.append("tn-published")
    return f' class="{" ".join(names)}"' if names else ""


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
