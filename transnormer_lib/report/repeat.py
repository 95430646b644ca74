"""Train some of the kept runs once more, from nothing, and compare their measurements: ``transnormer repeat``.

The runs are made in ``reports/<preset>/.repeat``, which is removed when all are compared. So the same command goes on
after an interruption; runs of other code are not taken.
"""

import math
import random
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transnormer_lib.ledger import kept
from transnormer_lib.ledger.kept import Kept
from transnormer_lib.ledger.values import shown
from transnormer_lib.progress import left_text, say
from transnormer_lib.project import Project, UserMistake

if TYPE_CHECKING:
    from transnormer_lib.training.config import RunConfig


@dataclass(frozen=True)
class Pick:
    """A kept run that is made again."""

    origin: Kept
    number: int  # in the study's order

    @property
    def record(self) -> Mapping[str, Any]:
        """What was kept of it."""
        return self.origin.runs[self.number]


def repeat(project: Project, preset: str, notebooks: Sequence[str], sample: int, seed: int, tolerance: float) -> int:
    """Make ``sample`` kept runs again, drawn with ``seed``, and print how far each is from what was kept.

    Returns 0 if no measurement of any run differs by more than ``tolerance``, as a share of the kept one, else 1.
    Raises :class:`UserMistake` if nothing is kept, if the study has lost a run that was kept, or for another repeat of
    the preset that is running.
    """
    from filelock import FileLock, Timeout

    found = [one for notebook in notebooks if (one := kept.read(preset, notebook, project))]
    picks = draw(found, sample, seed)
    if not picks:
        raise UserMistake(f"preset={preset!r}: no training run of these notebooks is kept in {kept.folder(project)}")
    configs = [_config(project, preset, pick) for pick in picks]
    folder = project.report_dir(preset) / ".repeat"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder.with_name(".repeat.lock"), timeout=0):
            every, took = sum(len(one.runs) for one in found), sum(pick.record["seconds"] for pick in picks)
            say(f"repeat: {len(picks)} of {every} kept runs, from nothing; they took {took:.0f} s when they were kept")
            far = _make(folder, picks, configs, tolerance)
            shutil.rmtree(folder)
    except Timeout:
        raise UserMistake(f"preset={preset!r}: another repeat of it is running") from None
    say(f"repeat: {len(picks) - far} of {len(picks)} give the kept numbers")
    return 1 if far else 0


def _make(folder: Path, picks: Sequence[Pick], configs: "Sequence[RunConfig]", tolerance: float) -> int:
    """Make the runs that ``folder`` lacks and say of each how far it is; returns how many are too far."""
    import torch

    from transnormer_lib.provenance.imports import source_digest
    from transnormer_lib.training.store import RunStore
    from transnormer_lib.training.stored_run import RunFailed

    # What other code or another torch made may differ in the last bit, which is what is asked.
    store = RunStore(folder / f"{source_digest([RunStore.__module__])}-torch-{torch.__version__}")
    for other in folder.iterdir():
        if other != store.root:
            shutil.rmtree(other, ignore_errors=True)
    here = [store.find(config) is not None for config in configs]
    if any(here):
        say(f"repeat: {sum(here)} of them were made before the interruption")
    # What each run needs, by the seconds that it took when it was kept.
    needs = [0.0 if made else pick.record["seconds"] for pick, made in zip(picks, here, strict=True)]
    far, begun = 0, time.perf_counter()
    for number, (pick, config) in enumerate(zip(picks, configs, strict=True), 1):
        try:
            difference = largest_difference(pick.record, store.get(config).record)
            words = f"{told(difference, tolerance)} (kept from {pick.origin.device})"
            far += difference is None or difference > tolerance
        except RunFailed as failure:  # of the run that this one starts from
            words = str(failure)
            far += 1
        done, all_of_them = sum(needs[:number]), sum(needs)
        left = f", {left_text(time.perf_counter() - begun, done, all_of_them)}" if 0 < done < all_of_them else ""
        say(f"  {pick.origin.notebook[:2]} {config.name}, {number} of {len(picks)}: {words}{left}")
    return far


def draw(found: Sequence[Kept], sample: int, seed: int) -> list[Pick]:
    """``sample`` of all kept runs without repetition, or all if there are fewer, in their order."""
    every = [Pick(one, number) for one in found for number in range(len(one.runs))]
    chosen = random.Random(seed).sample(range(len(every)), min(sample, len(every)))
    return [every[place] for place in sorted(chosen)]


def _config(project: Project, preset: str, pick: Pick) -> "RunConfig":
    """The pick's config under the parameters that were kept; those that came later have today's values."""
    from transnormer_lib import studies
    from transnormer_lib.report.parameters import resolve

    notebook, wanted = pick.origin.notebook, pick.record
    try:
        values = resolve(project, preset, notebook)
        if unknown := pick.origin.parameters.keys() - values.keys():
            raise UserMistake(f"{notebook}: the code has lost the kept parameter {min(unknown)!r}")
        values |= pick.origin.parameters
        configs = studies.runs(notebook, values)
    except ValueError as mistake:
        raise UserMistake(f"{notebook}: the kept parameters are not of this code: {mistake}") from None
    for config in configs:
        if (config.name, config.seed) == (wanted["name"], wanted["seed"]):
            return config
    raise UserMistake(
        f"{notebook}: the study has no run {wanted['name']!r} any more, which was kept of commit {pick.origin.commit}"
    )


def largest_difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    """The largest difference of two records' validation measurements, as a share of the first.

    None if they cannot be compared: the runs ended in another way, or measured nothing. What only one of them measured,
    because evaluation has learned to measure more, is left out.
    """
    points = before["validation"], after["validation"]
    same = all(before[name] == after[name] for name in ("status", "steps", "parameters"))
    if not same or not points[0] or len(points[0]) != len(points[1]):
        return None
    shares = [0.0]
    for old, new in zip(*points, strict=True):
        both = old.keys() & new.keys() - {"step"}
        if old["step"] != new["step"] or not both:
            return None
        shares += [_share(old[name], new[name]) for name in both]
    return max(shares)


def _share(old: float, new: float) -> float:
    if old == new or (math.isnan(old) and math.isnan(new)):
        return 0.0
    share = abs(new - old) / abs(old) if old else math.inf
    return math.inf if math.isnan(share) else share


def told(difference: float | None, tolerance: float) -> str:
    """The difference in words."""
    if difference is None:
        return "differs: it ended in another way, or neither measured anything"
    if difference == 0.0:
        return "the same bit for bit"
    words = f"at most {shown(difference, 2)} away, as a share"
    return words if difference <= tolerance else f"differs: {words}"
