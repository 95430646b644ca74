"""What the signals do that ask a process to end."""

import signal
import subprocess
import sys

import pytest
from project_factory import listen

from transnormer_lib.report.signals import ENDING

_TWICE = """
import os, sys
from transnormer_lib.report.signals import interrupt_once, on_ending
first, second = map(int, sys.argv[1:])
on_ending(interrupt_once)
try:
    os.kill(os.getpid(), first)
except KeyboardInterrupt:
    os.kill(os.getpid(), second)
    print("cleaned up")
"""


@pytest.mark.parametrize("second", ENDING, ids=lambda number: number.name)
@pytest.mark.parametrize("first", ENDING, ids=lambda number: number.name)
def test_a_second_signal_does_not_cut_the_clean_up_short(first: signal.Signals, second: signal.Signals) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _TWICE, str(int(first)), str(int(second))],
        capture_output=True,
        text=True,
        preexec_fn=listen,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "cleaned up\n", "")
