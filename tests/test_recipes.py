"""CONTRIBUTING's recipes, followed in a copy of the library: a mechanism, a claim, a thesis and a term.

The recipe of a study has its own test, in ``studies/toy``.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from project_factory import CHECKOUT

MECHANISM = '''"""Linear attention with the square as feature map."""

from dataclasses import dataclass

from torch import Tensor

from transnormer_lib.attention.feature_attention import FeatureAttention
from transnormer_lib.attention.interface import AttentionConfig
from transnormer_lib.attention.linear import scale_rows
from transnormer_lib.attention.registry import register


@dataclass(frozen=True)
class ToyConfig(AttentionConfig):
    denominator_floor: float = 1e-6


@register("toy", ToyConfig)
class ToyAttention(FeatureAttention):
    config: ToyConfig

    def __init__(self, config: ToyConfig) -> None:
        super().__init__(config)
        self.feature_count = config.head_dim
        self.floor = config.denominator_floor

    def attention_matrix(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        q, k = self.rotated(q, k)
        s = q.square() @ k.square().mT
        return scale_rows(s if allowed is None else s.masked_fill(~allowed, 0.0), self.floor)

    def query_features(self, q: Tensor, start: int) -> Tensor:
        return q.square()
'''
CLAIM = """
- id: toy-is-ahead
  locus: Section 3
  statement: Beyond the paper, the toy has a lower loss than nothing.
  kind: ordering
  published: null
  decided_at: night
  exploratory: true
"""
THESIS = """
- id: toys-are-ahead
  locus: Beyond the paper
  sentence: Toys are ahead.
  short: the lead of toys
  for:
    - claim: toy-is-ahead
      holds: the toy is ahead
      fails: the toy is not ahead
  effect: {claim: toy-is-ahead, form: percent, unit: percent of the loss}
  would_change: A toy.
  objection: It is a toy.
  reply: Granted.
"""
TERM = """
    - term: toy mechanism
      means: A mechanism that nobody needs.
"""
LOOK = """
import json, torch
from transnormer_lib.attention import about, build, names
from transnormer_lib.ledger import theses
from transnormer_lib.ledger.claims import by_id
from transnormer_lib.report.terms import terms
claims, asked = theses.everything()
toy = build("toy", {"heads": 2, "head_dim": 4, "causal": True})
print(json.dumps({
    "names": "toy" in names(), "title": about("toy").title, "shape": list(toy(*torch.randn(3, 1, 2, 9, 4)).shape),
    "notebook": by_id(claims)["toy-is-ahead"].notebook,
    "thesis": [thesis.claims for _, thesis in asked if thesis.id == "toys-are-ahead"],
    "term": any(term.term == "toy mechanism" for term in terms()),
}))
"""


def _add(path: Path, text: str, before: str = "") -> None:
    """Text at a file's end, or before the first line that begins with ``before``."""
    whole = path.read_text(encoding="utf-8")
    at = whole.index(f"\n{before}") + 1 if before else len(whole)
    path.write_text(whole[:at] + text + whole[at:], encoding="utf-8")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the library in which the recipes were followed."""
    root = tmp_path_factory.mktemp("a copy")
    for name in ("transnormer_lib", "kernels", "notebooks"):
        shutil.copytree(CHECKOUT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    library = root / "transnormer_lib"
    (library / "attention" / "toy.py").write_text(MECHANISM)
    _add(library / "attention" / "__init__.py", "from transnormer_lib.attention.toy import ToyAttention, ToyConfig\n")
    _add(
        library / "attention" / "mechanisms.csv",
        "toy,Toy attention,N·D²,N·D,nowhere,loops over tokens\n",
        "transformer-ls,",
    )
    _add(library / "studies" / "autoregressive_lm" / "claims.yaml", CLAIM)
    _add(library / "papers" / "transnormer" / "theses.yaml", THESIS)
    _add(library / "report" / "terms.yaml", TERM)
    return root


def _run(copy: Path, *command: str) -> str:
    paths = os.pathsep.join([str(copy), str(copy / "kernels"), str(CHECKOUT / "tests" / "factories")])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *command], cwd=copy, env=environment, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_mechanism_a_claim_a_thesis_and_a_term_are_found_where_the_recipes_put_them(copy: Path) -> None:
    assert json.loads(_run(copy, "-c", LOOK)) == {
        "names": True,
        "title": "Toy attention",
        "shape": [1, 2, 9, 4],
        "notebook": "04_autoregressive_lm",
        "thesis": [["toy-is-ahead"]],
        "term": True,
    }


def test_the_page_of_mechanisms_is_written_anew_with_it(copy: Path) -> None:
    assert "| toy | Toy attention |" in _run(copy, "-m", "transnormer_lib.models.catalogue")


@pytest.mark.slow
def test_the_tests_of_every_mechanism_try_the_new_one(copy: Path) -> None:
    tests = CHECKOUT / "tests" / "attention" / "test_every_mechanism.py"
    tried = _run(
        copy, "-m", "pytest", str(tests), "-k", "toy", "-q", "-n0", "-p", "no:cacheprovider", f"--rootdir={copy}"
    )
    assert " passed" in tried
    assert "failed" not in tried
