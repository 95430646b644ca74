"""The scoreboard inside a notebook: the verdicts of the last report, failures first.

The ledger is built after the notebooks have run, so what a notebook shows while it runs is the report before. On the
published page the slot is filled anew (:func:`refill`), so that page and ledger never disagree.
"""

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from transnormer_lib.ledger.judging import counts
from transnormer_lib.ledger.verdicts import FAILURES, VERDICTS
from transnormer_lib.project import find_project
from transnormer_lib.show.cards import badge, output_styles
from transnormer_lib.show.formulas import text_with_math

_SLOT = re.compile(r'<div class="tn-scoreboard">.*?</div><!-- scoreboard -->', re.DOTALL)


def scoreboard_html(claims: Sequence[Mapping[str, Any]]) -> str:
    """How many claims have each verdict, and every claim that failed; ``claims`` as they stand in claims.json."""
    found = counts(claims)
    rows = "".join(
        f'<tr><th scope="row">{badge(verdict)}</th><td class="tn-number">{found[verdict]}</td></tr>'
        for verdict in VERDICTS
        if found[verdict]
    )
    failed = "".join(
        f"<li>{badge(claim['verdict'])} <strong>{escape(claim['locus'])}</strong> "
        f'<a href="{escape(claim["anchor"])}">{text_with_math(claim["statement"])}</a></li>'
        for claim in claims
        if claim["verdict"] in FAILURES
    )
    failures = f"<p>What failed:</p><ul>{failed}</ul>" if failed else ""
    return (
        '<div class="tn-scoreboard"><table><caption>Claims by verdict.</caption>'
        f'<thead><tr><th scope="col">verdict</th><th scope="col">claims</th></tr></thead><tbody>{rows}</tbody></table>'
        f"{failures}</div><!-- scoreboard -->"
    )


def refill(notebook: dict[str, Any], claims: Sequence[Mapping[str, Any]]) -> None:
    """Make the scoreboards in an executed notebook's outputs anew from ``claims``, in place."""
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            html = "".join(data.get("text/html", ""))
            if _SLOT.search(html):
                data["text/html"] = _SLOT.sub(lambda _: scoreboard_html(claims), html)


def show(scale: str) -> None:
    """Display the scoreboard of the last report at ``scale``; without one, how to make it."""
    from IPython.display import display

    path = find_project().report_dir(scale) / "claims.json"
    if path.exists():
        html = scoreboard_html(json.loads(path.read_text(encoding="utf-8")))
    else:
        hint = f"<p>No report yet: make report PRESET={escape(scale)}</p>"
        html = f'<div class="tn-scoreboard">{hint}</div><!-- scoreboard -->'
    display({"text/html": output_styles() + html, "text/plain": f"Scoreboard of {path}"}, raw=True)
