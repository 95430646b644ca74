"""The register of discrepancies as cards: what is said, what is done, the figures just measured, and our own lines."""

import textwrap
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from IPython.display import display
from markupsafe import Markup

from transnormer_lib.ledger import claims as ledger
from transnormer_lib.ledger.values import shown
from transnormer_lib.papers.discrepancies import Discrepancy, by_id
from transnormer_lib.show.templating import output_styles, render
from transnormer_lib.studies.what_the_paper_leaves_out import register
from transnormer_lib.studies.what_the_paper_leaves_out import results as trained_results
from transnormer_lib.studies.what_the_paper_leaves_out.register import Found
from transnormer_lib.studies.what_the_paper_leaves_out.results import Trained

_DIGITS = 4


def run_all() -> dict[str, Found]:
    """Every check of the register, by the entry's id in the register's order."""
    return {name: register.run(name) for name in by_id("transnormer")}


def summary(found: Mapping[str, Found]) -> list[dict[str, Any]]:
    """One line per subject and one for all: entries, how many are confirmed, which are not."""
    entries = by_id("transnormer")
    lines = []
    for subject in dict.fromkeys(entry.subject for entry in entries.values()):
        mine = [name for name, entry in entries.items() if entry.subject == subject]
        lines.append(_line(subject, mine, found))
    return [*sorted(lines, key=lambda line: line["not confirmed"] == "none"), _line("all", list(entries), found)]


def _line(subject: str, names: Sequence[str], found: Mapping[str, Found]) -> dict[str, Any]:
    confirmed = [name for name in names if found[name].confirmed]
    return {
        "subject": subject,
        "entries": len(names),
        "confirmed": len(confirmed),
        "with a flag": sum(bool(by_id("transnormer")[name].flag) for name in names),
        "not confirmed": ", ".join(name for name in names if name not in confirmed) or "none",
    }


def trained_rows(trained: Mapping[str, Trained]) -> list[dict[str, Any]]:
    """One line per comparison: its entry, the difference, whether it is told from zero, and both losses."""
    named = {entry.trained: entry.id for entry in by_id("transnormer").values() if entry.trained}
    lines = []
    for line in trained_results.table(trained):
        choice = line.pop("choice")
        lines.append({"entry": named.get(choice, f"the whole {choice}"), **line})
    return lines


def show_cards(found: Mapping[str, Found], *names: str, trained: Mapping[str, Trained] | None = None) -> None:
    """Display the cards of these entries, those not confirmed first. Raises ValueError for an id that is none."""
    entries = by_id("transnormer")
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
        "studies/what_the_paper_leaves_out/templates/entry.html.j2",
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
    place = register.find(name)
    source = textwrap.dedent("\n".join(place.source)).split("\n")
    lines = [
        {"text": f"{number:>4}  {line}", "marked": number == place.line}
        for number, line in enumerate(source, start=place.first)
    ]
    return {"where": str(place), "label": name.partition(":")[2].partition(" | ")[0], "lines": lines}


@lru_cache(maxsize=1)
def _notebooks() -> dict[str, str]:
    return {claim.id: claim.notebook for claim in ledger.load()}
