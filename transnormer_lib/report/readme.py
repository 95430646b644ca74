"""README's answers, its table of costs and its pictures, written from the last report and the plans. None is typed.

``python -m transnormer_lib.report.readme`` writes them from ``reports/quick``, as ``make readme`` does.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

from transnormer_lib.choices import SCALES
from transnormer_lib.ledger import kept, theses
from transnormer_lib.ledger.claims import by_id
from transnormer_lib.ledger.judging import read_json_list, write_if_changed
from transnormer_lib.ledger.kept import Kept
from transnormer_lib.ledger.theses import Answer
from transnormer_lib.ledger.values import shown
from transnormer_lib.papers.catalogue import papers
from transnormer_lib.project import Project, UserMistake, find_project
from transnormer_lib.report import front
from transnormer_lib.report.findings import how_sure, training_hours, why
from transnormer_lib.report.plan import UTILISATION, Device, PlannedRun, hours, measure_device, plan
from transnormer_lib.report.publish import FOLDER
from transnormer_lib.visible import shows_plainly

PARTS = ("answers", "costs")  # each stands between two marks
PICTURES: Mapping[str, tuple[str, str]] = {  # the file's stem → notebook, figure; README shows them
    "losses": ("04_autoregressive_lm", "losses"),
    "cost": ("11_transformers_are_rnns", "figure-1"),
    "completions": ("12_image_generation", "completions-night"),
}
_INDEX = f"reports/{FOLDER}/index.html"
_FOLDER = "docs/pictures"
_PRESET = "quick"


def marks(part: str) -> tuple[str, str]:
    """What stands before and after a part of README."""
    return f"<!-- {part}: make readme writes them -->", f"<!-- end of the {part} -->"


def answers(project: Project, preset: str = _PRESET) -> tuple[list[Answer], list[Kept]]:
    """The theses' answers from the last report of ``preset``, and what is kept of larger scales.

    Raises UserMistake if there is no report, or if its claims.json was edited.
    """
    judged = read_json_list(project.report_dir(preset) / "claims.json")
    entries = {entry["id"]: entry for entry in judged}
    claims, asked = theses.everything()
    known = by_id(claims)
    found = [theses.answer(paper, thesis, known, entries) for paper, thesis in asked]
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
        ours = [answer in decided for answer in mine if answer.beyond]
        beside = f", and {sum(ours)} of {len(ours)} questions of our own" if ours else ""
        told = f"{len(decided) - sum(ours)} of {len(mine) - len(ours)} theses decided{beside}"
        parts.append(f"**{paper.title}** ({told})\n")
        parts += [line(answer) for answer in decided]
        if len(decided) < len(mine):
            rest = [
                f"[{answer.thesis.short}]({_INDEX}#thesis-{answer.thesis.id})"
                for answer in mine
                if answer.answer == "cannot tell"
            ]
            parts.append(f"- Cannot tell yet: {'; '.join(rest)}.")
        parts.append("")
    return "\n".join([*parts, *how_sure(above)]).strip()


def line(answer: Answer) -> str:
    """One decided thesis: the answer, the sentence, what speaks against it, the effect beside the printed one."""
    size, printed = front.effect_text(answer), front.published_text(answer)
    measured = [f"Measured: {size}{f'; in print {printed}' if printed else ''}."] if size else []
    against = why(answer)
    word = f"[{answer.answer.capitalize()}]({_INDEX}#thesis-{answer.thesis.id}):"
    trends = [answer.trends] if answer.trends else []
    return " ".join([f"- {word} {answer.thesis.sentence}", *against, *measured, *trends])


def costs(planned: Mapping[str, Sequence[PlannedRun]], device: Device, above: Sequence[Kept]) -> str:
    """What each preset trains, as a Markdown table: runs, the largest model, operations, hours.

    The hours are those that the kept runs took, and an estimate for ``device``.
    """
    heads = ["preset", "runs", "largest model, parameters", "operations", "hours taken", "hours of one core, estimated"]
    lines = [f"| {' | '.join(heads)} |", f"|---{'|--:' * (len(heads) - 1)}|"]
    for preset, runs in planned.items():
        own = [run for run in runs if run.shared_with is None]
        flops = sum(run.flops for run in own)
        sizes = f"{len(own):,} | {max(run.parameters for run in own):,} | {shown(float(flops), 2)}"
        taken = training_hours([one for one in above if one.preset == preset])
        lines.append(
            f"| `{preset}` | {sizes} | {shown(taken, 3) if taken else '–'} | {shown(hours(flops, device), 3)} |"
        )
    rate = f"{UTILISATION:.0%} of {device.rate / 1e9:,.0f} GFLOP/s, a rate measured on {device.name}"
    note = (
        "Operations of training, an upper limit. Hours taken: of the kept runs, each on one core, others beside it. "
        f"Estimated: at {rate}, which models as small as those of `quick` and `night` do not reach."
    )
    return "\n".join([*lines, "", f"{note} `transnormer plan` asks the machine that you have, a GPU included."])


def one_core() -> Device:
    """One core of this machine."""
    import torch

    torch.set_num_threads(1)
    return measure_device(gpu=False)


def pictures(project: Project, preset: str = _PRESET) -> dict[str, bytes]:
    """The SVG of each picture by its path, from the executed notebooks of ``preset``.

    Raises UserMistake where a notebook or its figure is missing.
    """
    found = {}
    for stem, (notebook, figure) in PICTURES.items():
        path = project.report_dir(preset) / f"{notebook}.ipynb"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        source = re.search(rf'id=\\"fig-{figure}\\".*?src=\\"data:image/svg\+xml,([^"\\]+)', text)
        if source is None:
            raise UserMistake(f"figure={figure!r}: {notebook} of preset {preset} does not show it; run: make report")
        found[f"{_FOLDER}/{stem}.svg"] = unquote(source[1]).encode()
    return found


def write(readme: Path, texts: Mapping[str, str]) -> bool:
    """Put each part between its marks in a file; returns whether that changed it.

    Raises UserMistake where marks are missing, and then writes nothing.
    """
    text = readme.read_text(encoding="utf-8")
    for part, content in texts.items():
        begin, end = marks(part)
        if text.count(begin) != 1 or text.count(end) != 1 or text.index(end) < text.index(begin):
            raise UserMistake(f"{readme.name}: must hold {begin} once and {end} once, in this order")
        head, tail = text.split(begin)[0], text.split(end)[1]
        text = f"{head}{begin}\n{content}\n{end}{tail}"
    return write_if_changed(readme, text)


@shows_plainly
def main() -> int:
    """Write README's parts and pictures; exit code 2 without a report."""
    try:
        project = find_project()
        drawn = pictures(project)
        device = one_core()
        planned = {name: plan(project, name, project.notebooks, device) for name in SCALES}
        found, above = answers(project)
        texts = {"answers": block(found, above), "costs": costs(planned, device, above)}
        changed = write(project.root / "README.md", texts)
    except UserMistake as mistake:
        print(f"readme: {mistake}", file=sys.stderr)
        return 2
    (project.root / _FOLDER).mkdir(parents=True, exist_ok=True)
    for name, svg in drawn.items():
        (project.root / name).write_bytes(svg)
    print(f"readme: README.md {'has' if changed else 'had'} the answers of reports/{_PRESET}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
