"""The scoreboard inside a notebook: the verdicts of the last report, failures first.

A notebook runs before the ledger is built, so it shows the previous report's verdicts. The published page fills the
scoreboard again (:func:`refill`), so page and ledger never disagree.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from markupsafe import Markup

from transnormer_lib.ledger.judging import counts, read_json_list
from transnormer_lib.ledger.verdicts import FAILURES
from transnormer_lib.project import UserMistake, find_project
from transnormer_lib.show.templating import output_styles, render

_SLOT = re.compile(r'<div class="tn-scoreboard">.*?</div><!-- scoreboard -->', re.DOTALL)


def scoreboard_html(claims: Sequence[Mapping[str, Any]], scale: str = "") -> Markup:
    """How many claims have each verdict, and every claim that failed; ``claims`` as claims.json has them."""
    found = {verdict: count for verdict, count in counts(claims).items() if count}
    failed = [claim for claim in claims if claim["verdict"] in FAILURES]
    return render("show/templates/scoreboard.html.j2", counts=found, failed=failed, scale=scale)


def refill(notebook: dict[str, Any], claims: Sequence[Mapping[str, Any]]) -> None:
    """Fill the scoreboards in an executed notebook's outputs again from ``claims``, in place."""
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            html = "".join(data.get("text/html", ""))
            if _SLOT.search(html):
                data["text/html"] = _SLOT.sub(lambda _: scoreboard_html(claims), html)


def show(scale: str) -> None:
    """Display the scoreboard of the last report at ``scale``; without a report, the command that makes one."""
    from IPython.display import display

    path = find_project().report_dir(scale) / "claims.json"
    claims: list[dict[str, Any]] = []
    with suppress(UserMistake):
        claims = read_json_list(path)
    html = output_styles() + scoreboard_html(claims, scale)
    display({"text/html": html, "text/plain": f"Scoreboard of {path}"}, raw=True)
