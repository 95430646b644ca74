"""What is wrong must show: each fault in sound evidence changes the verdict, or the answer, as it must."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import report_factory

from transnormer_lib.ledger import theses
from transnormer_lib.ledger.claims import Claim, by_id
from transnormer_lib.ledger.families import settle
from transnormer_lib.ledger.theses import Thesis
from transnormer_lib.ledger.verdicts import judge
from transnormer_lib.papers import tables
from transnormer_lib.studies.autoregressive_lm import published

TABLE, THEORY = report_factory.TABLE, report_factory.THEORY
SEEDS = [0, 1, 2, 3, 4]


@dataclass
class Evidence:
    """Sound evidence: a lead with a floor and controls, a printed sentence, a misprint with its correction."""

    better: list[float]
    worse: list[float]
    controls: dict[str, list[float]]
    outperform: bool
    corrected: bool
    rivals: int = 0  # further orderings of the same table without any difference

    def claims(self) -> list[Claim]:
        rivals = [report_factory.claim(f"rival-{n}", "ordering", TABLE, decided_at="night") for n in range(self.rivals)]
        return [
            report_factory.claim("lead", "ordering", TABLE, decided_at="night"),
            *rivals,
            report_factory.claim("in-print", "print", TABLE),
            report_factory.claim("slip", "misprint", THEORY, corrected="correction"),
            report_factory.claim("correction", "theorem", THEORY),
        ]

    def verdicts(self) -> dict[str, str]:
        claims = by_id(self.claims())
        floor = {"floor": {"name": "the bigram", "value": 4.0}, "controls": self.controls, "higher_is_better": False}
        seeds = SEEDS[: len(self.better)]
        lead = {"kind": "ordering", "better": self.better, "worse": self.worse, "seeds": seeds, **floor}
        noise = {**lead, "better": [3.5, 3.1, 3.3, 3.2, 3.4], "worse": [3.1, 3.5, 3.2, 3.4, 3.3]}
        measured: dict[str, dict[str, Any]] = {"lead": lead} | {f"rival-{n}": noise for n in range(self.rivals)}
        measured["in-print"] = {"kind": "print", "value": self.outperform, "expected": True}
        measured["slip"] = {"kind": "misprint", "holds": False, "counter_example": {"n": 2}}
        if self.corrected:
            measured["correction"] = {"kind": "theorem", "holds": True, "margin": 0.1, "searched": 9}
        judged = {name: judge(claims[name], found, "night") for name, found in measured.items()}
        settled = settle(list(claims.values()), judged)
        self.answer = self._answer(claims, settled)
        return {name: found.verdict for name, found in settled.items()}

    def _answer(self, claims: dict[str, Claim], settled: dict[str, Any]) -> str:
        bearing = {"claim": "lead", "holds": "ahead", "fails": "behind"}
        asked = Thesis(
            id="t", locus="x", sentence="y", short="z", would_change="w", objection="o", reply="r", **{"for": [bearing]}
        )
        entries = {
            name: {"verdict": found.verdict, "scale": "night", "measured": found.measured, "seeds": None}
            | {"source": "run", "anchor": "#"}
            for name, found in settled.items()
        }
        return theses.answer("transnormer", asked, claims, entries).answer


def sound() -> Evidence:
    return Evidence(
        better=[3.00, 3.10, 3.05, 3.02, 3.08],
        worse=[3.20, 3.29, 3.26, 3.21, 3.30],
        controls={"softmax": [3.1, 3.0, 3.2, 3.1, 3.0]},
        outperform=published.section_5_2()["outperform"],
        corrected=True,
    )


def test_sound_evidence_gives_what_it_says() -> None:
    evidence = sound()
    assert evidence.verdicts() == {
        "lead": "reproduced",
        "in-print": "consistent",
        "slip": "misprint",
        "correction": "survives",
    }
    assert evidence.answer == "supported"


MUTATIONS: dict[str, tuple[Callable[[Evidence], Evidence], str, str, str]] = {
    "an opposite effect": (lambda e: replace(e, better=e.worse, worse=e.better), "lead", "opposite", "contradicted"),
    "a side that has not learned": (
        lambda e: replace(e, worse=[*e.worse[:4], 4.1]), "lead", "not learned", "cannot tell"),
    "a control that has not learned": (
        lambda e: replace(e, controls={"softmax": [3.1, 3.0, 4.0, 3.1, 3.0]}), "lead", "not learned", "cannot tell"),
    "a run that diverged": (
        lambda e: replace(e, worse=[*e.worse[:4], float("inf")]), "lead", "not learned", "cannot tell"),
    "a seed missing": (
        lambda e: replace(e, better=e.better[:4], worse=e.worse[:4]), "lead", "not run", "cannot tell"),
    "no difference": (
        lambda e: replace(e, better=[3.2, 3.3, 3.2, 3.3, 3.2], worse=[3.3, 3.2, 3.3, 3.2, 3.2]),
        "lead", "unresolved", "cannot tell"),
    "a lead that is lost among many": (
        lambda e: replace(e, better=[3.1, 3.1, 3.2, 3.1, 3.2], worse=[3.3, 3.2, 3.3, 3.12, 3.4], rivals=9),
        "lead", "unresolved", "cannot tell"),
    "a correction left out": (lambda e: replace(e, corrected=False), "slip", "not run", "supported"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_fault_changes_the_verdict_and_the_answer(name: str) -> None:
    mutate, claim, verdict, answer = MUTATIONS[name]
    evidence = mutate(sound())
    assert (evidence.verdicts()[claim], evidence.answer) == (verdict, answer)


def test_the_lead_among_many_would_stand_alone() -> None:
    mutate, *_ = MUTATIONS["a lead that is lost among many"]
    assert replace(mutate(sound()), rivals=0).verdicts()["lead"] == "reproduced"


def test_two_swapped_cells_of_a_published_table_change_what_is_said_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    table = tables.load("transnormer", "table_4")
    rows = [list(row) for row in table.rows]
    ours, flash = (next(row for row in rows if row[0] == name) for name in ("TransNormer T2", "FLASH-quad"))
    ours[1], flash[1] = flash[1], ours[1]
    mutated = table.model_copy(update={"rows": rows})
    monkeypatch.setattr(tables, "load", lambda paper, name: mutated)
    assert sound().verdicts()["in-print"] == "inconsistent"
