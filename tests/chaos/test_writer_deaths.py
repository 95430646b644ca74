"""What fills the data cache may die at any point: the next process has the same data, and no worker stays behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from chaos_trials import Tried, trials
from chinese_data import needs_chinese

SCRIPT = Path(__file__).parents[1] / "factories" / "writer_deaths.py"
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "16384", "MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_ARENA_MAX": "1"}

# The trials of ``make chaos``; the others try one or two.
CASES = {
    ("token file", "kill"): 8, ("vocabulary", "kill"): 6, ("features", "kill"): 6, ("listops", "kill"): 8,
    ("pathfinder", "kill"): 6, ("reviews", "kill"): 4, ("listops", "term"): 4, ("token file", "interrupt"): 4,
    ("token file", "memory"): 4, ("reviews", "memory"): 4, ("vocabulary", "memory"): 4, ("features", "memory"): 4,
    ("listops", "memory"): 4, ("pathfinder", "memory"): 4, ("token file", "disk"): 8, ("features", "disk"): 6,
    ("vocabulary", "disk"): 6, ("reviews", "disk"): 8, ("listops", "disk"): 4,
}  # fmt: skip
SHORT = [("token file", "kill"), ("listops", "kill"), ("reviews", "disk")]


def marks(kind: str, manner: str) -> list[pytest.MarkDecorator]:
    """Most trials are slow, and the reviews come with an extra."""
    return [*([] if (kind, manner) in SHORT else [pytest.mark.slow]), *([needs_chinese] if kind == "reviews" else [])]


@pytest.mark.parametrize(
    ("kind", "manner"),
    [pytest.param(*key, id="-".join(key), marks=marks(*key)) for key in CASES],
)
def test_data_whose_writer_died_are_made_again_the_same(kind: str, manner: str, tmp_path: Path, tried: Tried) -> None:
    environment = os.environ | ALLOCATOR | {"OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(SCRIPT.parent), os.environ.get("PYTHONPATH", "")])
    count = trials(2, CASES[kind, manner])
    command = [sys.executable, str(SCRIPT), str(tmp_path), kind, manner, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert [one for one in found if not one["equal"] or one["left"]] == []
    # An unfinished file is no damaged one: nothing is said of it.
    assert [one["told"] for one in found if "damaged" in one["told"]] == []
    if manner == "disk":
        assert [one["told"] for one in found if "the disk is full" not in one["told"]] == []
        tried("full disk under the cache", len(found))
        return
    assert sum(one["died"] for one in found) == count, "too few trials ended the writer"
    tried(f"writers of data ended by {manner}", count)
