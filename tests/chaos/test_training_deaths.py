"""Training that dies at a random point is resumed, and ends bit-identical to training that was not disturbed."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from chaos_trials import FULL, Tried, trials

SCRIPT = Path(__file__).parents[1] / "factories" / "training_deaths.py"
# Every allocation of a few pages asks the system, so that a limit on memory is felt at once.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "16384", "MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_ARENA_MAX": "1"}


def outcomes(folder: Path, case: str, manner: str, count: int) -> list[dict[str, Any]]:
    environment = os.environ | ALLOCATOR | {"OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(SCRIPT.parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(SCRIPT), str(folder), case, manner, str(count), "0"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# The trials of ``make chaos``; the others try one or two.
CASES = {
    ("causal", "kill"): 12, ("accumulated", "kill"): 12, ("bf16", "kill"): 12, ("masked", "kill"): 12,
    ("classifier", "kill"): 12, ("causal", "memory"): 10, ("classifier", "memory"): 10, ("causal", "term"): 10,
    ("masked", "term"): 5, ("causal", "interrupt"): 10, ("classifier", "interrupt"): 5,
    ("classifier", "disk"): 10, ("causal", "disk"): 10,
}  # fmt: skip
SHORT = [("causal", "kill"), ("causal", "memory"), ("causal", "disk")]


@pytest.mark.parametrize(
    ("case", "manner"),
    [pytest.param(*key, id="-".join(key), marks=() if key in SHORT else pytest.mark.slow) for key in CASES],
)
def test_a_run_that_dies_resumes_and_ends_bit_identical(case: str, manner: str, tmp_path: Path, tried: Tried) -> None:
    count = trials(2, CASES[case, manner])
    found = outcomes(tmp_path, case, manner, count)
    assert [one for one in found if not (one["whole"] and one["equal"] and one["left"] == [])] == []
    # What was left of a checkpoint is used, unless the run had been stored.
    assert [one for one in found if one["resumable"] and one["sessions"] < 2] == []
    for one in found:  # where the run will be is no fault
        one["told"] = re.sub(r"run \S+: it will be in .*\n", "", one["told"])
    if manner in ("term", "interrupt", "disk"):
        # Python drops an interruption that meets the end of a weak reference, and says so; that run goes on.
        told = [one["told"] for one in found if one["died"] or manner == "disk"]
        assert [text for text in told if "Traceback" in text or text.count("\n") > 1] == []
    if manner == "disk":
        full = [one for one in found if one["code"]]
        assert full
        line = r"DiskFull: \S+: the disk is full; free some space and run the same command again\n"
        assert [one for one in full if one["truncated"] or not re.fullmatch(line, one["told"])] == []
    if FULL and manner == "memory":  # a library may abort first, with words of its own
        assert any(one["told"].startswith("out of memory; with more") for one in found)
    if FULL and case != "classifier" and manner != "disk":
        assert any(one["sessions"] > 1 for one in found), "no trial hit a run that had a checkpoint"
    if manner == "disk":
        tried("full disk under a store", len(full))
        return
    assert sum(one["died"] for one in found) == count, "too few trials ended the training"
    tried(f"training ended by {manner}", count)
