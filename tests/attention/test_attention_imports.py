"""The attention package needs torch alone, and its modules import each other in one direction."""

import subprocess
import sys
from graphlib import TopologicalSorter

import grimp

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
    assert done.stdout.split("\n")[:2] == ["[]", "['transnormer_lib.checks', 'transnormer_lib.choices']"]


def test_no_module_imports_itself_by_way_of_others():
    graph = grimp.build_graph("transnormer_lib", cache_dir=None)  # with imports inside functions and for types
    package = graph.find_descendants("transnormer_lib.attention")
    TopologicalSorter({name: graph.find_modules_directly_imported_by(name) & package for name in package}).prepare()
