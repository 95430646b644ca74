"""The register of discrepancies as cards: what is said, what is done, the figures just measured, and our own lines."""

import textwrap
from collections.abc import Mapping, Sequence
from functools import lru_cache
from html import escape
from typing import Any

from transnormer_lib.ledger import claims as ledger
from transnormer_lib.ledger.values import shown
from transnormer_lib.papers.discrepancies import Discrepancy, by_id
from transnormer_lib.show.cards import output_styles
from transnormer_lib.show.formulas import text_with_math
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
    from IPython.display import display

    entries = by_id("transnormer")
    for name in names:
        if name not in entries:
            raise ValueError(f"entry={name!r}: is not in the register")
    ordered = sorted(names, key=lambda name: found[name].confirmed)
    html = "".join(
        card_html(entries[name], found[name], (trained or {}).get(entries[name].trained)) for name in ordered
    )
    text = "\n".join(f"{name}: {'confirmed' if found[name].confirmed else 'NOT confirmed'}" for name in ordered)
    display({"text/html": output_styles() + html, "text/plain": text}, raw=True)


def card_html(entry: Discrepancy, found: Found, trained: Trained | None = None) -> str:
    """One entry as a card: what is said, the evidence, what is done; folded, what was run and our code.

    A card that is not confirmed stands open.
    """
    tone, sign, word = ("good", "✓", "confirmed") if found.confirmed else ("bad", "✗", "not confirmed")
    inferred = ' <span class="tn-reason">(our conclusion)</span>' if entry.inferred else ""
    other = f"<code>{escape(entry.flag)}</code>" if entry.flag else f"No flag: {text_with_math(entry.no_flag)}"
    rows = [
        ("The paper says", text_with_math(entry.says)),
        ("Evidence", text_with_math(entry.evidence)),
        ("Here", text_with_math(entry.settled) + inferred),
        ("The other choice", other),
    ]
    if trained is not None:
        rows.append(("Trained", escape(trained.sentence())))
    folded = [("Measured here", _measured(found)), ("In our code", "".join(map(_place, entry.code)))]
    if found.effects:
        folded.insert(1, ("What it changes", _effects(found)))
    if entry.released:
        cited = text_with_math(entry.released) + ' <span class="tn-reason">Cited, not run.</span>'
        folded.insert(0, ("The released code", cited))
    if entry.claims:
        folded.append(("In the ledger", ", ".join(map(_claim_link, entry.claims))))
    mark = f'<span class="tn-verdict tn-{tone}"><span aria-hidden="true">{sign}</span> {word}</span>'
    summary = (
        "What was run, and our code" if not entry.released else "What the release does, what was run, and our code"
    )
    return (
        f'<section class="tn-claim tn-entry tn-{tone}" id="entry-{entry.id}" aria-label="Entry {entry.id}">'
        f'<p class="tn-head">{mark} <span class="tn-locus">{escape(entry.locus)}</span> '
        f'<code class="tn-id">{entry.id}</code></p>{_facts(rows)}'
        f"<details{'' if found.confirmed else ' open'}><summary>{summary}</summary>{_facts(folded)}</details></section>"
    )


def _facts(rows: Sequence[tuple[str, str]]) -> str:
    body = "".join(f"<div><dt>{label}</dt><dd>{html}</dd></div>" for label, html in rows)
    return f'<dl class="tn-facts">{body}</dl>'


def _measured(found: Found) -> str:
    figures = "".join(
        f"<li>{escape(name)}: <b>{escape(value_text(value))}</b></li>" for name, value in found.figures.items()
    )
    shows = "".join(
        f'<li class="tn-{"good" if holds else "bad"}"><span aria-hidden="true">{"✓" if holds else "✗"}</span> '
        f"{'' if holds else 'not so: '}{escape(name)}</li>"
        for name, holds in found.shows.items()
    )
    return f'<ul class="tn-figures">{figures}</ul><ul class="tn-shows">{shows}</ul>'


def _effects(found: Found) -> str:
    lines = "".join(
        f"<li>{escape(effect.of)}: <b>{escape(value_text(effect.here))}</b> here, "
        f"<b>{escape(value_text(effect.other))}</b> with the other choice</li>"
        for effect in found.effects
    )
    return f'<ul class="tn-figures">{lines}</ul>'


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


def _place(name: str) -> str:
    place = register.find(name)
    source = ""
    for number, line in enumerate(textwrap.dedent("\n".join(place.source)).split("\n"), start=place.first):
        text = f"{number:>4}  {escape(line)}"
        source += (f"<b>{text}</b>" if number == place.line else text) + "\n"
    label = name.partition(":")[2].partition(" | ")[0]
    return (
        f"<details><summary><code>{escape(str(place))}</code>, {escape(label)}</summary>"
        f'<pre class="tn-source" tabindex="0"><code>{source}</code></pre></details>'
    )


@lru_cache(maxsize=1)
def _notebooks() -> dict[str, str]:
    return {claim.id: claim.notebook for claim in ledger.load()}


def _claim_link(claim: str) -> str:
    notebook = _notebooks()[claim]
    return f'<a href="{notebook}.html#claim-{claim}">{claim}</a>'
