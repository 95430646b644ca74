"""The register of discrepancies as cards: what is said, what is done, the figures just measured, and our own lines."""

import textwrap
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

from IPython.display import display
from markupsafe import Markup

from transnormer_lib.ledger import claims as ledger
from transnormer_lib.ledger.values import shown
from transnormer_lib.papers import catalogue
from transnormer_lib.papers.discrepancies import Discrepancy, by_id
from transnormer_lib.show.templating import output_styles, render
from transnormer_lib.studies.common.register.checks import Found
from transnormer_lib.studies.common.register.places import find

_DIGITS = 4


class Trained(Protocol):
    """A comparison of trained runs with and without a choice."""

    def sentence(self) -> str:
        """The difference with its interval, in words."""
        ...


@lru_cache(maxsize=1)
def _entries() -> dict[str, Discrepancy]:
    """The entries of every paper by id. Raises ValueError for an id that two papers use."""
    found: dict[str, Discrepancy] = {}
    for paper in catalogue.papers():
        if both := sorted(found.keys() & by_id(paper).keys()):
            raise ValueError(f"id={both[0]!r}: used by {found[both[0]].paper} and by {paper}")
        found |= by_id(paper)
    return found


def summary(found: Mapping[str, Found]) -> list[dict[str, Any]]:
    """One line per subject and one for all: entries, how many are confirmed, which are not."""
    entries = {name: entry for name, entry in _entries().items() if name in found}
    lines = []
    for subject in dict.fromkeys(entry.subject for entry in entries.values()):
        mine = [name for name, entry in entries.items() if entry.subject == subject]
        lines.append(_line(subject, mine, found))
    return [*sorted(lines, key=lambda line: line["not confirmed"] == "none"), _line("all", list(entries), found)]


def confirmed(found: Mapping[str, Found]) -> str:
    """Whether every entry is confirmed, in a sentence; else how many, and which are not."""
    lost = [name for name, one in found.items() if not one.confirmed]
    if not lost:
        return f"All {len(found)} are confirmed."
    return f"Confirmed: {len(found) - len(lost)} of {len(found)}, not {', '.join(lost)}."


def _line(subject: str, names: Sequence[str], found: Mapping[str, Found]) -> dict[str, Any]:
    sure = [name for name in names if found[name].confirmed]
    return {
        "subject": subject,
        "entries": len(names),
        "confirmed": len(sure),
        "with a flag": sum(bool(_entries()[name].flag) for name in names),
        "not confirmed": ", ".join(name for name in names if name not in sure) or "none",
    }


def show_cards(found: Mapping[str, Found], *names: str, trained: Mapping[str, Trained] | None = None) -> None:
    """Display the cards of these entries, those not confirmed first. Raises ValueError for an id that is none."""
    entries = _entries()
    for name in names:
        if name not in entries:
            raise ValueError(f"entry={name!r}: is not in the register")
    ordered = sorted(names, key=lambda name: found[name].confirmed)
    html = Markup().join(
        card_html(entries[name], found[name], (trained or {}).get(entries[name].trained)) for name in ordered
    )
    text = "\n".join(f"{name}: {'confirmed' if found[name].confirmed else 'NOT confirmed'}" for name in ordered)
    display({"text/html": output_styles() + html, "text/plain": text}, raw=True)


def card_html(entry: Discrepancy, found: Found, trained: Trained | None = None) -> Markup:
    """One entry as a card: what is said, the evidence, what is done; folded, what was run and our code."""
    return render(
        "studies/common/register/templates/entry.html.j2",
        entry=entry,
        found=found,
        trained=trained,
        text=value_text,
        places=[_place(name) for name in entry.code],
        claims=[(claim, _notebooks()[claim]) for claim in entry.claims],
    )


def value_text(value: Any) -> str:
    """A figure for the reader; a mapping inside a mapping stands in brackets."""
    if isinstance(value, Mapping):
        parts = (f"{key}: {_nested(item)}" for key, item in value.items())
        return ", ".join(parts) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(_nested, value)) or "none"
    return shown(value, digits=6 if isinstance(value, float) and abs(value) >= 100 else _DIGITS)


def _nested(value: Any) -> str:
    text = value_text(value)
    return f"({text})" if isinstance(value, Mapping | list | tuple) else text


def _place(name: str) -> dict[str, Any]:
    """A place in our code: where it is, what it defines, its lines with the marked one."""
    place = find(name)
    source = textwrap.dedent("\n".join(place.source)).split("\n")
    lines = [
        {"text": f"{number:>4}  {line}", "marked": number == place.line}
        for number, line in enumerate(source, start=place.first)
    ]
    return {"where": str(place), "label": name.partition(":")[2].partition(" | ")[0], "lines": lines}


@lru_cache(maxsize=1)
def _notebooks() -> dict[str, str]:
    return {claim.id: claim.notebook for claim in ledger.load()}
