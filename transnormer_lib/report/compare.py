"""Two sets of judged claims side by side: ``transnormer report --compare A B``.

A side is a preset that has a report, a ``claims.json`` or kept file, such a file at a commit, ``COMMIT:PATH``, or a
``COMMIT``, which stands for its committed report.
"""

import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transnormer_lib import sums
from transnormer_lib.files import parse_json
from transnormer_lib.ledger.judging import write_if_changed
from transnormer_lib.ledger.values import shown
from transnormer_lib.project import Project, UserMistake
from transnormer_lib.report.pages import content_digest, html_page, outside_resources
from transnormer_lib.report.publish import FOLDER
from transnormer_lib.show.formulas import MathError, text_with_math

_TEXTS = ("id", "locus", "statement", "verdict")

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """One claim that differs."""

    id: str
    locus: str
    statement: str
    before: Entry
    after: Entry

    @property
    def text(self) -> str:
        """The statement with its formulas; as it is written where a file from elsewhere holds one that is none."""
        try:
            text = text_with_math(self.statement)
        except MathError:
            return self.statement
        return self.statement if outside_resources(text) else text

    @property
    def verdicts(self) -> tuple[str, str]:
        """Both sides' verdicts."""
        return str(self.before["verdict"]), str(self.after["verdict"])

    @property
    def values(self) -> tuple[str, str]:
        """Both sides' measurements, in short."""
        return _value(self.before), _value(self.after)

    @property
    def by(self) -> str:
        """By how much a number changed."""
        sizes = [_number(side) for side in (self.before, self.after)]
        if sizes[0] is None or sizes[1] is None or sizes[0] == sizes[1]:
            return ""
        difference = sizes[1] - sizes[0]
        share = f" ({difference / abs(sizes[0]):+.1%})" if sizes[0] else ""
        sign = "+" if difference > 0 else ""
        return sign + shown(difference, 4) + share.replace("-", "−")


def read(project: Project, side: str) -> dict[str, Entry]:
    """The judged claims of one side, by id. Raises UserMistake for anything else."""
    try:
        content = parse_json(_text(project, side))
        listed = content["claims"] if isinstance(content, dict) else content
        found = {entry["id"]: entry for entry in listed}
        for entry in found.values():
            if "measured" not in entry or not all(isinstance(entry[name], str) for name in _TEXTS):
                raise ValueError
    except UserMistake:
        raise
    except (ValueError, TypeError, KeyError, AttributeError):
        raise UserMistake(f"compare={side!r}: is neither a claims.json nor a kept file") from None
    return found


def _text(project: Project, side: str) -> str:
    report = project.report_dir(side) / "claims.json"
    if side in project.presets:
        if not report.exists():
            raise UserMistake(f"compare={side!r}: has no report yet; run: transnormer report --preset {side}")
        if damage := sums.damage(report):
            raise UserMistake(f"compare={side!r}: {damage}; write it again: transnormer report --preset {side}")
        return report.read_text(encoding="utf-8")
    with suppress(OSError):  # a name too long for a file, for example
        if Path(side).is_file():
            return Path(side).read_text(encoding="utf-8", errors="replace")
    committed = (project.report_dir(FOLDER) / "claims.json").relative_to(project.root).as_posix()
    if side and not side.startswith("-"):
        place = side if ":" in side else f"{side}:./{committed}"
        command = ["git", "-C", str(project.root), "show", place]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode == 0:
            return done.stdout.decode(errors="replace")
    raise UserMistake(
        f"compare={side!r}: must be a preset ({', '.join(project.presets)}), a claims.json, a kept file, COMMIT:PATH, "
        f"or a COMMIT that has {committed}"
    )


def changes(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> list[Change]:
    """The claims of both sides whose verdict or shown value differs, those whose verdict does first."""
    both = [
        Change(name, after[name]["locus"], after[name]["statement"], before[name], after[name])
        for name in before
        if name in after
    ]
    found = [change for change in both if len(set(change.verdicts)) == 2 or len(set(change.values)) == 2]
    return sorted(found, key=lambda change: change.verdicts[0] == change.verdicts[1])


def compare(project: Project, sides: Sequence[str]) -> int:
    """Print what differs and write ``reports/compare.html``. Returns 0."""
    before, after = (read(project, side) for side in sides)
    found = changes(before, after)
    turned = Counter(change.verdicts for change in found if change.verdicts[0] != change.verdicts[1])
    summary = [f"{number} from {old} to {new}" for (old, new), number in turned.most_common()]
    alone = [len(before.keys() - after.keys()), len(after.keys() - before.keys())]
    same = len(before.keys() & after.keys()) - len(found)
    path = project.root / "reports" / "compare.html"
    path.parent.mkdir(exist_ok=True)
    page = html_page(
        "compare.html.j2",
        marks=False,  # the glossary is beside a preset's pages
        digest=content_digest(list(sides), alone, same, [vars(change) for change in found]),
        page_title=f"TransNormer companion: {sides[0]} and {sides[1]}",
        sides=sides,
        changes=found,
        summary=summary,
        same=same,
        alone=alone,
    )
    write_if_changed(path, page)
    for change in found:
        if change.verdicts[0] != change.verdicts[1]:
            print(f"{change.verdicts[0]:>15} → {change.verdicts[1]:15} {change.locus:20} {change.id}")
    values = sum(change.verdicts[0] == change.verdicts[1] for change in found)
    print(f"compare: {sum(turned.values())} verdicts differ, {values} measurements besides; {same} claims are the same")
    if any(alone):
        print(f"compare: {alone[0]} claims stand in {sides[0]} alone, {alone[1]} in {sides[1]}")
    print(path.resolve().as_uri())
    return 0


def _number(entry: Entry) -> float | None:
    measured = entry["measured"]
    if isinstance(measured, Mapping):
        measured = measured.get("difference", measured.get("mean", measured.get("margin")))
    return float(measured) if isinstance(measured, int | float) and not isinstance(measured, bool) else None


def _value(entry: Entry) -> str:
    if entry["measured"] is None:
        return "–"
    number = _number(entry)
    return shown(entry["measured"]) if number is None else shown(number)
