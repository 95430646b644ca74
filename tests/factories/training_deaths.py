"""Kills the command that trains a run at random points, runs it again, and prints the outcomes as JSON.

``python training_deaths.py FOLDER CASE MANNER COUNT SEED``; see tests/chaos/test_training_deaths.py.
"""

import json
import os
import random
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import torch
import yaml
from deaths import ATTEMPTS, EARLIER, Manner, died, fork, killed, undisturbed, wait
from small_disks import small_disk
from training_cases import RUN_CONDITIONS, classifier, config

from transnormer_lib.training.__main__ import main as train
from transnormer_lib.training.conditions import run_conditions
from transnormer_lib.training.config import DataConfig, RunConfig
from transnormer_lib.training.identity import run_id
from transnormer_lib.training.store import RunStore

CASES: dict[str, RunConfig] = {
    "causal": config(steps=12, evaluations=3, waypoints=(0, 5), gradients="norms"),
    "accumulated": config(
        steps=12, accumulate=2, data=DataConfig(length=16, batch_size=4), gradients="norms", evaluations=2
    ),
    "bf16": config("vanilla", "masked", steps=12, precision="bf16", gradients="norms"),
    "masked": config("transnormer-t1", "masked", steps=12, accumulate=2),
    "classifier": classifier(
        steps=12, evaluations=4, keep="best", measured_at_end=("test",), start_from=config("transnormer-t2", "masked")
    ),
}


def stored(store: Path, run: RunConfig) -> dict[str, Any] | None:
    """What the store holds of a run, without run conditions; None if it has none. Fails for half-written runs."""
    found = RunStore(store).find(run)
    if found is None:
        assert not (store / run_id(run)).exists(), "a run that is not whole has its final name"
        return None
    record = {name: value for name, value in found.record.items() if name not in RUN_CONDITIONS}
    return {"record": record, "arrays": {path.name: path.read_bytes() for path in found.path.glob("*.safetensors")}}


def main(folder: Path, case: str, manner: Manner, count: int, seed: int) -> None:
    torch.set_num_threads(1)
    # Do the slow work that trains nothing before forking: imports, the corpus, the commit.
    from accelerate import Accelerator  # noqa: F401
    from safetensors.torch import save_model  # noqa: F401
    from torch import _dynamo  # noqa: F401  optimisers import it

    run = CASES[case]
    run_id(run)
    with run_conditions(run):
        pass
    os.environ |= {"TRANSNORMER_CHECKPOINT_SECONDS": "0"}  # a checkpoint after every step
    file, errors = folder / "run.yaml", folder / "errors"
    file.write_text(yaml.safe_dump(json.loads(json.dumps(asdict(run)))))  # through JSON: no tuples

    def work(store: Path) -> Any:
        return lambda: train([str(file), "--store", str(store)])

    seconds = undisturbed(work(folder / "undisturbed"), errors)
    expected = stored(folder / "undisturbed", run)
    needed = sum(path.stat().st_size for path in (folder / "undisturbed").rglob("*")) + 50_000
    assert expected is not None
    draw, outcomes = random.Random(f"{case} {manner} {seed}"), []
    for number in range(count if manner == "disk" else ATTEMPTS * count):
        store = folder / str(number)
        partial = store / f".partial-{run_id(run)}"
        errors.write_text("")
        moments = (partial / "checkpoints" / ".writing", partial / "complete")
        disk = None
        if manner == "disk":
            disk = small_disk(store, int(draw.uniform(0.0, 1.0) * needed))
            code = wait(fork(disk.limiting(work(store)), errors), errors)
        else:
            code = killed(work(store), manner, seconds, draw, errors, moments)
        told = errors.read_text()
        truncated = [place.name for place in moments if place.exists()] if disk else []
        resumable = any((partial / "checkpoints").glob("step-*")) and not (store / run_id(run)).exists()
        whole = stored(store, run) in (None, expected)
        if disk:
            disk.make_room()
        elif number % 4 == 3:  # the store goes on in another place
            store = store.rename(folder / f"elsewhere {number}")
        undisturbed(work(store), errors)
        names = {run_id(run)} | ({run_id(run.start_from)} if run.start_from else set())
        outcome = {
            "code": code,
            "died": died(manner, code),
            "told": told,
            "truncated": truncated,
            "whole": whole,
            "equal": stored(store, run) == expected,
            "left": sorted({path.name for path in store.iterdir() if path.is_dir()} - names),
            "resumable": resumable,
            "sessions": json.loads((store / run_id(run) / "record.json").read_text())["sessions"],
        }
        outcomes.append(outcome)
        if disk:
            disk.remove()
        shutil.rmtree(store)
        if sum(one["died"] for one in outcomes) == count:
            break
        if not outcome["died"]:
            seconds *= EARLIER
    print(json.dumps(outcomes))


if __name__ == "__main__":
    chosen = sys.argv[3]
    assert chosen in get_args(Manner)
    main(Path(sys.argv[1]), sys.argv[2], chosen, int(sys.argv[4]), int(sys.argv[5]))  # type: ignore[arg-type]
