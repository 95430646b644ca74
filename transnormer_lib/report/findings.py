"""What was found, in words: one text per paper from its theses' answers, and how sure it is, from the kept evidence.

The words are those of ``papers/<paper>/theses.yaml``; the numbers are filled in.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from transnormer_lib import sums
from transnormer_lib.ledger.kept import Kept
from transnormer_lib.ledger.theses import SIDES, Answer
from transnormer_lib.papers.catalogue import Paper, papers
from transnormer_lib.report.front import effect_text, published_text
from transnormer_lib.report.pages import content_digest, html_page, is_current

_SEEDS = 5  # fewer judge no ordering
_CLAUSES = 1  # of one side of an answer; the others stand in the thesis' row

OPENING = (
    "Softmax attention compares every token with every other, so its cost grows with the square of the text's length. "
    "Linear attention replaces the exponential of a score by a product of features, which can be summed once and for "
    "all, and is usually worse."
)


@dataclass(frozen=True)
class Finding:
    """One thesis in a text: what it says, how it was answered, and what decided."""

    id: str
    answer: str
    text: str


@dataclass(frozen=True)
class Found:
    """What was found about one paper."""

    paper: Paper
    told: tuple[Finding, ...]  # theses that have an answer, those of the paper first
    own: tuple[Finding, ...]  # questions of our own that have one
    unsettled: tuple[str, ...]  # those that have none though something was measured: name, size, what is open
    open: tuple[str, ...]  # the short names of those without a size of their effect


def write_found_page(report_dir: Path, answers: Sequence[Answer], kept: Sequence[Kept]) -> bool:
    """Write ``found.html`` unless it shows this content already; returns whether it was written."""
    path, texts, sure = report_dir / "found.html", found(answers), how_sure(kept)
    digest = content_digest(report_dir.name, OPENING, [asdict(text) for text in texts], sure)
    if is_current(path, digest):
        return False
    page = html_page(
        "found.html.j2",
        digest=digest,
        page_title=f"TransNormer companion: what we found, {report_dir.name}",
        preset=report_dir.name,
        opening=OPENING,
        found=texts,
        sure=sure,
    )
    return sums.write(path, page)


def found(answers: Sequence[Answer]) -> list[Found]:
    """What was found, paper by paper."""
    texts = []
    for paper in papers().values():
        mine = [answer for answer in answers if answer.paper == paper.id]
        decided = [answer for answer in mine if answer.answer != "cannot tell"]
        undecided = [answer for answer in mine if answer.answer == "cannot tell"]
        if mine:
            texts.append(
                Found(
                    paper,
                    tuple(_finding(answer) for answer in decided if not answer.beyond),
                    tuple(_finding(answer) for answer in decided if answer.beyond),
                    tuple(_unsettled(answer) for answer in undecided if effect_text(answer)),
                    tuple(answer.thesis.short for answer in undecided if not effect_text(answer)),
                )
            )
    return texts


def _unsettled(answer: Answer) -> str:
    """``the lead: 11.8% (11.5 to 12.1); 1 for, 2 open``: its size, and how many claims speak for what."""
    sides = Counter(part.side for part in answer.parts)
    told = [f"{sides[side]} {side}" for side in SIDES if sides[side]]
    return f"{answer.thesis.short}: {effect_text(answer)}; {', '.join(told)}"


def _finding(answer: Answer) -> Finding:
    return Finding(answer.thesis.id, answer.answer, " ".join([answer.thesis.sentence, *why(answer), *_size(answer)]))


def why(answer: Answer) -> list[str]:
    """What speaks against it, in one sentence or none; what speaks for it says what the thesis says."""
    against = _joined([part.says for part in answer.parts if part.side == "against"])
    words = {"contradicted": "It does not hold:", "mixed": "But"}
    return [f"{words[answer.answer]} {against}."] if answer.answer in words else []


def _joined(clauses: Sequence[str]) -> str:
    shown, more = clauses[:_CLAUSES], len(clauses) - _CLAUSES
    return "; ".join(shown) + (f" (and {more} more)" if more > 0 else "")


def _size(answer: Answer) -> list[str]:
    measured, printed = effect_text(answer), published_text(answer)
    if measured is None:
        return []
    return [f"Measured: {measured}{f'; in print {printed}' if printed else ''}."]


def how_sure(kept: Sequence[Kept]) -> list[str]:
    """On what the answers about trained models rest, in sentences; [] without kept evidence."""
    judged = [one for one in kept if len(one.parameters.get("seeds", ())) >= _SEEDS]
    runs = _runs(judged)
    if not runs:
        return []
    seeds = sorted({len(one.parameters["seeds"]) for one in judged})
    sizes, steps = (sorted(run[name] for run in runs) for name in ("parameters", "steps"))
    machines = sorted({device for one in judged for device in one.devices})
    return [
        f"Answers about trained models rest on {len(runs):,} kept runs: {sizes[0]:,} to {sizes[-1]:,} parameters, "
        f"{steps[0]:,} to {steps[-1]:,} steps, {' or '.join(map(str, seeds))} seeds a row, "
        f"{training_hours(judged):.0f} hours of training on {'; '.join(machines)}.",
        "A row has its own learning rate, chosen on seeds that are not judged; GLUE and long sequences have one for "
        "all rows. A positive effect speaks for its thesis, with a 95% interval paired by seed; unresolved is what "
        "holds zero or the lag allowed, at the latest after the correction for several comparisons. Nobody wins "
        "against a model that does not beat a bigram or, where tokens are masked, a two-sided n-gram. What larger "
        "models would do is not known from these.",
    ]


def training_hours(kept: Sequence[Kept]) -> float:
    """Of all their runs together."""
    return float(sum(run["seconds"] for run in _runs(kept)) / 3600)


def _runs(kept: Sequence[Kept]) -> list[Any]:
    """Their runs; studies share some, and each counts once."""
    return list({(run["name"], run["seconds"]): run for one in kept for run in one.runs}.values())
