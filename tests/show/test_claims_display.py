"""What a cell that measured claims displays: one card or one table, once, and the measurements with it."""

import json
import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from report_factory import CLAIMS, HOSTILE, TABLE, THEORY, claim

from transnormer_lib.ledger.measurements import MIME, Measurements, Recorded
from transnormer_lib.ledger.verdicts import VERDICTS
from transnormer_lib.show.claims import bundle
from transnormer_lib.show.templating import render

FACTORIES = Path(__file__).parents[1] / "factories"


@pytest.fixture
def theory() -> Measurements:
    return Measurements(THEORY, "quick", CLAIMS)


def test_a_card_carries_the_measurement_as_json_beside_html_and_text(theory: Measurements) -> None:
    shown = bundle([theory.theorem("bound-holds", holds=True, margin=0.1, searched=7)])
    assert set(shown) == {"text/plain", "text/html", MIME}
    assert MIME == "application/vnd.transnormer.measurement+json"
    assert json.loads(json.dumps(shown[MIME], allow_nan=False)) == shown[MIME]
    (measured,) = shown[MIME]
    assert measured["claim"] == "bound-holds"
    assert (measured["notebook"], measured["scale"], measured["kind"]) == (THEORY, "quick", "theorem")


def test_a_card_shows_statement_locus_published_value_verdict_and_anchor(theory: Measurements) -> None:
    html = bundle([theory.theorem("bound-holds", holds=True, margin=0.1, searched=7)])["text/html"]
    for expected in ('id="claim-bound-holds"', "Equation 9", "<math", "1/4", "survives", "✓", "0.1"):
        assert expected in html


def test_a_hostile_statement_is_shown_as_text(theory: Measurements) -> None:
    recorded = theory.theorem("bound-breaks", holds=False, searched=1, counter_example={HOSTILE: HOSTILE})
    html = bundle([recorded])["text/html"]
    assert "<script" not in html
    assert "<img" not in html
    assert "&lt;script&gt;" in html


def orderings(many: int, absent: int = 0) -> list[Recorded]:
    """Orderings that were measured, and numbers that were not run for one reason."""
    ours = [claim(f"ahead-{n}", "ordering", TABLE, locus=f"Table {n}") for n in range(many)]
    lacking = [claim(f"absent-{n}", "number", TABLE, statement=f"Number $x_{n}$.") for n in range(absent)]
    measured = Measurements(TABLE, "quick", [*ours, *lacking])
    sides: dict[str, Any] = {"better": [1, 1.1, 1, 1.2, 1], "worse": [2.0] * 5, "seeds": range(5), "floor": 2.5}
    found = [measured.ordering(one.id, **sides, floor_name="the bigram model") for one in ours]
    return found + [measured.not_run(one.id, "the data are <absent>") for one in lacking]


class Folded(HTMLParser):
    """The ids of a text, the texts of its summaries, and the ids that a closed ``<details>`` hides."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.hidden: list[str] = []
        self.depth = 0
        self.in_summary = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.depth += tag == "details"
        self.in_summary |= tag == "summary"
        if name := dict(attrs).get("id"):
            self.ids.append(name)
            if self.depth and not self.in_summary:
                self.hidden.append(name)

    def handle_endtag(self, tag: str) -> None:
        self.depth -= tag == "details"
        self.in_summary &= tag != "summary"


def test_several_claims_of_a_cell_are_one_table_with_a_row_each() -> None:
    shown = bundle(orderings(3))
    html = shown["text/html"]
    assert [measured["claim"] for measured in shown[MIME]] == ["ahead-0", "ahead-1", "ahead-2"]
    assert re.findall(r'<th scope="col">(\w+)</th>', html) == ["Claim", "Published", "Ours", "Verdict"]
    assert html.count("<table>") == 1
    assert html.count("<details>") == html.count("<summary>") == 3
    assert len(shown["text/plain"].splitlines()) == 3


def test_a_row_unfolds_to_what_a_card_shows() -> None:
    html = bundle(orderings(2))["text/html"]
    folded = html[html.index("</summary>") : html.index("</details>")]
    for expected in ("Table 0", "ahead-0", "5 seeds", "95% in [", "to beat: the bigram model", "2.5"):
        assert expected in folded, expected


def test_rounds_of_a_measurement_are_not_called_seeds() -> None:
    timed = claim("ahead", "ordering", TABLE, timing=True, rounds=True)
    recorded = Measurements(TABLE, "quick", [timed]).ordering(
        "ahead", better=[1, 1.1, 1, 1.2, 1], worse=[2] * 5, seeds=range(5)
    )
    html = bundle([recorded])["text/html"]
    assert "5 rounds" in html
    assert "seeds" not in html


@pytest.mark.parametrize(("absent", "rows"), [(3, 3), (4, 1), (20, 1)])
def test_many_claims_not_run_for_one_reason_are_one_folded_row(absent: int, rows: int) -> None:
    html = bundle(orderings(2, absent))["text/html"]
    assert html.count("<tr ") == 2 + rows
    assert html.count("The data are &lt;absent&gt;.") == rows
    assert (f"{absent} claims: The data are" in html) is (rows == 1)


def test_every_claim_has_one_anchor_and_none_is_folded_away() -> None:
    recorded = orderings(3, 5)
    page = Folded(bundle(recorded)["text/html"])
    assert sorted(page.ids) == sorted(f"claim-{one.claim.id}" for one in recorded)
    assert page.hidden == []


def test_a_page_of_many_claims_renders_well_under_a_second() -> None:
    recorded = orderings(100, 50)
    bundle(recorded)
    before = time.process_time()
    bundle(recorded)
    assert time.process_time() - before < 0.5


def test_every_verdict_has_a_sign_beside_its_word() -> None:
    counts = dict.fromkeys(VERDICTS, 1)
    html = render("show/templates/scoreboard.html.j2", counts=counts, failed=[], scale="quick")
    assert len(re.findall(r'<span aria-hidden="true">\S</span> \w', html)) == len(VERDICTS)


IN_A_SHELL = """
from IPython.testing.globalipapp import start_ipython
from report_factory import CLAIMS, TABLE
from transnormer_lib.show import claims
shell = start_ipython()
displayed = []
shell.display_pub.publish = lambda data, **_: displayed.append([m["claim"] for m in data[claims.MIME]])
make = "from transnormer_lib.show.claims import Claims; claims = Claims(TABLE, 'quick', CLAIMS)"
shell.user_ns |= {"TABLE": TABLE, "CLAIMS": CLAIMS}
one = "claims.number('perplexity', value=5.0)"
two = "claims.not_run('speed', 'no GPU')"
for cell in (make, one, one, one + "; 1", f"{make}\\n{one}\\n{two}", "1", f"{make}\\n{one}\\n1 / 0", f"{make}; {two}"):
    print("CELL", shell.run_cell(cell, store_history=True).success, displayed)
    displayed.clear()
"""


def test_what_a_cell_measured_is_displayed_once_when_it_ends_even_in_an_exception() -> None:
    command = [sys.executable, "-c", IN_A_SHELL]
    done = subprocess.run(command, cwd=FACTORIES, capture_output=True, text=True, check=True)
    cells = [line.partition("CELL ")[2] for line in done.stdout.splitlines() if "CELL " in line]
    assert cells == [
        "True []",
        "True [['perplexity']]",
        "True [['perplexity']]",  # the same cell may record it again
        "False []",  # another cell may not
        "True [['perplexity', 'speed']]",
        "True []",
        "False [['perplexity']]",
        "True [['speed']]",
    ]
    assert "Recorded(" not in done.stdout


def test_outside_a_notebook_nothing_is_displayed() -> None:
    code = "from report_factory import CLAIMS, TABLE; from transnormer_lib.show.claims import Claims\n"
    code += "print(Claims(TABLE, 'quick', CLAIMS).number('perplexity', value=5.0).verdict)"
    done = subprocess.run([sys.executable, "-c", code], cwd=FACTORIES, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("undecided\n", "")
