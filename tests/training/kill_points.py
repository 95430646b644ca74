"""Kills training runs at random moments, resumes them, and prints the outcomes as JSON.

Run by test_resume.py in a process of its own: it forks, and a test process with threads must not.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from training_cases import RUN_CONDITIONS, classifier, config

from transnormer_lib.training.conditions import run_conditions
from transnormer_lib.training.config import DataConfig, RunConfig
from transnormer_lib.training.identity import run_id
from transnormer_lib.training.store import RunStore

CASES: dict[str, RunConfig] = {
    "causal": config(steps=12, evaluations=3, waypoints=(0, 5), gradients="norms"),
    "causal, accumulate 2": config(
        steps=12, accumulate=2, data=DataConfig(length=16, batch_size=4), gradients="norms", evaluations=2
    ),
    "masked, bf16": config("vanilla", "masked", steps=12, precision="bf16", gradients="norms"),
    "masked, accumulate 2": config("transnormer-t1", "masked", steps=12, accumulate=2),
    "classifier, best of 4": classifier(
        steps=12, evaluations=4, keep="best", measured_at_end=("test",), start_from=config("transnormer-t2", "masked")
    ),
}
KILLS_PER_CASE = 4


def begin(store: Path, run: RunConfig) -> int:
    """Train in a child process, with a checkpoint after every step; returns its id."""
    if child := os.fork():
        return child
    code = 1
    try:
        torch.set_num_threads(1)
        RunStore(store, checkpoint_seconds=0.0).get(run)
        code = 0
    finally:
        os._exit(code)


def finish(store: Path, run: RunConfig) -> None:
    _, status = os.waitpid(begin(store, run), 0)
    assert status == 0, f"the child ended with {status}"


def result(store: Path, run: RunConfig) -> dict[str, object]:
    folder = store / run_id(run)
    record = json.loads((folder / "record.json").read_text())
    same = {name: value for name, value in record.items() if name not in RUN_CONDITIONS}
    arrays = {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}
    return {"record": same, "arrays": arrays, "entries": sorted(p.name for p in store.iterdir() if p.is_dir())}


def kill_once(store: Path, run: RunConfig, seconds: float, draw: random.Random) -> dict[str, object]:
    """Kill one run, half of the time while it writes a checkpoint; returns what the kill left behind."""
    partial = store / f".partial-{run_id(run)}" / "checkpoints"
    wait, while_writing, delay = draw.uniform(0.05, 0.9) * seconds, draw.random() < 0.5, draw.uniform(0.0, 0.02)
    child = begin(store, run)
    time.sleep(wait)
    patience = time.monotonic() + seconds
    while while_writing and not (partial / ".writing").exists() and time.monotonic() < patience:
        time.sleep(0.0005)
    if while_writing:
        time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return {
        "killed": os.WIFSIGNALED(status),
        "complete": len(list(partial.glob("step-*"))),
        "unfinished": (partial / ".writing").exists(),
        "stored": (store / run_id(run)).exists(),  # killed after its end
    }


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    # Do the slow work that trains nothing before forking: imports, the corpus, the code digest.
    from accelerate import Accelerator  # noqa: F401
    from accelerate.utils import broadcast_object_list  # noqa: F401
    from safetensors.torch import save_model  # noqa: F401
    from torch import _dynamo  # noqa: F401  optimisers import it

    for run in CASES.values():
        run_id(run)
    with run_conditions(config()):
        pass
    draw = random.Random(20)
    outcomes = []
    for name, run in CASES.items():
        undisturbed = folder / name / "undisturbed"
        started = time.monotonic()
        finish(undisturbed, run)
        seconds = time.monotonic() - started
        expected = result(undisturbed, run)
        for number in range(KILLS_PER_CASE):
            store = folder / name / str(number)
            left = kill_once(store, run, seconds, draw)
            finish(store, run)
            sessions = json.loads((store / run_id(run) / "record.json").read_text())["sessions"]
            outcomes.append({"case": name, "equal": result(store, run) == expected, "sessions": sessions, **left})
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
