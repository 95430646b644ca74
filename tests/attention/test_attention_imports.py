"""The attention package stands on torch alone."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys, torch
before = set(sys.modules)
import transnormer_lib.attention
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(new - sys.stdlib_module_names - {"transnormer_lib", "torch"}))
print(sorted(name for name in sys.modules if name.startswith("transnormer_lib.") and "attention" not in name))
"""


def test_importing_attention_brings_in_nothing_but_torch():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "[]"]
