"""The readers of files under inputs that a coverage-guided fuzzer finds; needs the extra ``fuzz``."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from chaos_trials import Tried, trials


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_no_input_that_a_guided_fuzzer_finds_is_unexplained(seed: int, tmp_path: Path, tried: Tried) -> None:
    pytest.importorskip("atheris", reason="needs the extra fuzz")
    runs = trials(2_000, 20_000)
    script = Path(__file__).with_name("guided_parsers.py")
    command = [sys.executable, str(script), str(tmp_path), f"-atheris_runs={runs}", f"-seed={seed}", "-max_len=400"]
    done = subprocess.run(command, cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    tried("an input that a coverage-guided fuzzer found", runs)
