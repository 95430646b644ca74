"""README's answers: the block between its two marks, written from the last report's theses. Nothing in it is typed.

``python -m transnormer_lib.report.readme`` writes it from ``reports/quick``, as ``make readme`` does.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from transnormer_lib.ledger import kept, theses
from transnormer_lib.ledger.claims import by_id, load
from transnormer_lib.ledger.judging import write_if_changed
from transnormer_lib.ledger.kept import Kept
from transnormer_lib.ledger.theses import Answer
from transnormer_lib.papers.catalogue import papers
from transnormer_lib.project import Project, UserMistake, find_project
from transnormer_lib.report import front
from transnormer_lib.report.findings import how_sure, why

BEGIN, END = "<!-- answers: make readme writes them -->", "<!-- end of the answers -->"
_PRESET = "quick"


def answers(project: Project, preset: str = _PRESET) -> tuple[list[Answer], list[Kept]]:
    """The theses' answers from the last report of ``preset``, and what is kept of larger scales.

    Raises UserMistake if there is no report.
    """
    path = project.report_dir(preset) / "claims.json"
    if not path.exists():
        raise UserMistake(f"preset={preset!r}: has no report yet; run: make report PRESET={preset}")
    entries = {entry["id"]: entry for entry in json.loads(path.read_text(encoding="utf-8"))}
    claims = load()
    known = by_id(claims)
    found = [
        theses.answer(paper, thesis, known, entries) for paper in papers() for thesis in theses.load(paper, claims)
    ]
    scale = project.preset(preset).scale
    return found, [one for notebook in project.notebooks for one in kept.larger(scale, notebook, project)]


def block(found: Sequence[Answer], above: Sequence[Kept]) -> str:
    """The answers as Markdown: paper by paper those that were decided, and the names of the others."""
    parts = []
    for paper in papers().values():
        mine = [answer for answer in found if answer.paper == paper.id]
        decided = [answer for answer in mine if answer.answer != "cannot tell"]
        if not mine:
            continue
        parts.append(f"**{paper.title}** ({len(decided)} of {len(mine)} theses decided)\n")
        parts += [line(answer) for answer in decided]
        if len(decided) < len(mine):
            rest = [answer.thesis.short for answer in mine if answer.answer == "cannot tell"]
            parts.append(f"- *Cannot tell yet:* {'; '.join(rest)}.")
        parts.append("")
    return "\n".join([*parts, *how_sure(above)]).strip()


def line(answer: Answer) -> str:
    """One decided thesis: the answer, the sentence, what speaks against it, and the effect beside the printed one."""
    size, printed = front.effect_text(answer), front.published_text(answer)
    measured = [f"Measured: {size}{f'; in print {printed}' if printed else ''}."] if size else []
    against = why(answer) if answer.answer != "supported" else []
    return " ".join([f"- *{answer.answer.capitalize()}:* {answer.thesis.sentence}", *against, *measured])


def write(readme: Path, text: str) -> bool:
    """Put ``text`` between the marks of a file; returns whether that changed it. Raises UserMistake without marks."""
    before = readme.read_text(encoding="utf-8")
    if before.count(BEGIN) != 1 or before.count(END) != 1 or before.index(END) < before.index(BEGIN):
        raise UserMistake(f"{readme.name}: must hold {BEGIN} once and {END} once, in this order")
    head, tail = before.split(BEGIN)[0], before.split(END)[1]
    return write_if_changed(readme, f"{head}{BEGIN}\n{text}\n{END}{tail}")


def main() -> int:
    """Write README's answers; exit code 2 without a report."""
    try:
        project = find_project()
        changed = write(project.root / "README.md", block(*answers(project)))
    except UserMistake as mistake:
        print(f"readme: {mistake}", file=sys.stderr)
        return 2
    print(f"readme: README.md {'has' if changed else 'had'} the answers of reports/{_PRESET}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
