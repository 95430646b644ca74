"""Training, evaluation, generation and a report, over and over in one process, watched: ``make soak``.

A round trains a run into a store of its own, measures it, writes text with it, and runs and publishes the notebook of a
small project. What must stay as it is: memory, open files, processes, and the processor time of a round's training,
evaluation and generation. Two rounds are not counted, because they import and fill caches.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "factories"))
from project_factory import make_project
from training_cases import config

from transnormer_lib.project import Project
from transnormer_lib.report.make import make_report
from transnormer_lib.training.evaluation import evaluate
from transnormer_lib.training.setup import load_data
from transnormer_lib.training.store import RunStore

WARM_UP = 2  # rounds
MOST_GROWTH, MOST_DRIFT = 0.02, 0.05


@dataclass(frozen=True)
class Round:
    """What a round left behind."""

    bytes: int  # of memory that the process holds
    files: int  # open files, sockets among them
    children: int  # processes, the ended that nobody asked after among them
    seconds: float  # of the processor, for training, evaluation and generation


@contextmanager
def silence() -> Iterator[None]:
    """Nothing is printed inside, by the processes that a report starts neither."""
    sys.stdout.flush()
    kept, nothing = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nothing)


def play(folder: Path, project: Project, number: int) -> Round:
    """One round; its run has the seed ``number``."""
    clock = time.process_time()
    run_config = config(steps=150, evaluations=3, seed=number)
    run = RunStore(folder / "runs").get(run_config)
    evaluate(run.model(), run_config, load_data(run_config), torch.device("cpu"))
    run.generate("The ", tokens=400, seed=number)
    seconds = time.process_time() - clock
    shutil.rmtree(folder / "runs")
    shutil.rmtree(project.root / "reports", ignore_errors=True)
    with silence():
        code = make_report(project, "quick", None, 1, ())
    if code:
        raise RuntimeError(f"round {number}: the report ended with {code}")
    me = psutil.Process()
    return Round(me.memory_info().rss, me.num_fds(), len(me.children(recursive=True)), seconds)


def judged(rounds: Sequence[Round]) -> list[tuple[str, bool]]:
    """What the rounds show, line by line, and whether it is as it should be: the last third against the first."""
    third = max(len(rounds) // 3, 1)
    first, last = rounds[:third], rounds[-third:]
    memory = [median(one.bytes for one in part) for part in (first, last)]
    speed = [median(one.seconds for one in part) for part in (first, last)]
    growth, drift = memory[1] / memory[0] - 1, speed[1] / speed[0] - 1
    files, children = {one.files for one in rounds}, {one.children for one in rounds}
    return [
        (f"memory: {memory[0] / 1e6:.1f} MB, then {growth:+.2%} (at most {MOST_GROWTH:+.0%})", growth <= MOST_GROWTH),
        (f"open files: {min(files)} to {max(files)} (always the same)", len(files) == 1),
        (f"processes left: {max(children)} (none)", children == {0}),
        (f"a round's work: {speed[0]:.2f} s, then {drift:+.1%} (within {MOST_DRIFT:.0%})", abs(drift) <= MOST_DRIFT),
    ]


def main() -> int:
    """Exit code 1 if anything did not stay as it was."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long; at least five rounds are played")
    minutes = parser.parse_args().minutes
    torch.set_num_threads(1)
    rounds: list[Round] = []
    end = time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory() as name:
        project = make_project(Path(name) / "project", {"01_a": ["size"]})
        while time.monotonic() < end or len(rounds) < WARM_UP + 3:
            rounds.append(play(Path(name), project, len(rounds)))
            if len(rounds) % 20 == 0:
                now = rounds[-1]
                sizes = f"{now.bytes / 1e6:.1f} MB, {now.files} open files, {now.seconds:.2f} s"
                print(
                    f"soak: round {len(rounds)}: {sizes}; {max(end - time.monotonic(), 0) / 60:.0f} min left",
                    flush=True,
                )
    lines = judged(rounds[WARM_UP:])
    print(f"soak: {len(rounds)} rounds, the first {WARM_UP} not counted")
    for line, good in lines:
        print(f"soak: {'ok' if good else 'NOT OK'}  {line}")
    return 0 if all(good for _, good in lines) else 1


if __name__ == "__main__":
    raise SystemExit(main())
