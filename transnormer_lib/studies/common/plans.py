"""The plans of a study: what was decided before its judged runs were trained. ``studies/<study>/plan*.yaml``.

A plan maps parts (question, rows, seeds, primary claim, what would count for and against) to texts. It is committed
before its judged runs are trained. Its part ``added`` tells what happened since and is no part of what was decided; a
claim that is added afterwards is exploratory (``ledger.claims.Claim.exploratory``).

A study with several plans names the runs of each in its ``__init__.py``, as patterns:
``PLANS = {"plan_of_recall": ("recall-*",), "plan": ("*",)}``. A run belongs to the first plan that names it.
"""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from transnormer_lib import studies
from transnormer_lib.files import read_yaml
from transnormer_lib.provenance import history
from transnormer_lib.sums import sha256

STUDIES = Path(__file__).parents[1]
# Said beside every plan's primary claim: a reader may expect it to be tested alone.
NO_EASIER = "No easier than the others: Holm's correction counts it among them."


def files(study: str) -> list[Path]:
    """The files of a study's plans; [] for a study without one."""
    return sorted((STUDIES / study).glob("plan*.yaml"))


def table(study: str, name: str = "plan") -> list[dict[str, str]]:
    """A plan as a table's lines, last the commit that first decided the same, where git knows it.

    Raises FileNotFoundError for a plan that the study does not have.
    """
    path = STUDIES / study / f"{name}.yaml"
    content: dict[str, str] = read_yaml(path)
    if "primary" in content:
        content = content | {"the primary claim's test": NO_EASIER}
    commit = _commit(path)
    if commit is not None:
        content = content | {"commit": f"{commit.name[:12]}, {commit.date[:10]}"}
    return [{"part": part.replace("_", " "), "the plan": text} for part, text in content.items()]


def evidence(study: str, judged: Mapping[str, str | None]) -> list[dict[str, Any]]:
    """For ``ledger.kept``, per plan: its content, its commit, and how many of its judged runs came after that.

    ``judged`` maps runs to the commits of the code that trained them. A run came after a plan if that code was
    committed with or after what the plan decides: ``after`` is their number, None if git knows none of these commits,
    or no commit of the plan.
    """
    owners = _owners(study, judged)
    found = []
    for path in files(study):
        commit = _commit(path)
        own = [judged[run] for run, names in owners.items() if path.stem in names]
        known = [code and commit and history.came_after(path.parent, code, commit.name) for code in own]
        found.append(
            {
                "file": path.name,
                "sha256": sha256(path),
                "commit": None if commit is None else commit.name,
                "date": None if commit is None else commit.date,
                "judged": len(own),
                "after": None if all(one is None for one in known) else sum(one is True for one in known),
            }
        )
    return found


def _commit(path: Path) -> history.Commit | None:
    return history.commit_of(path, same=lambda text: _decided(text) == _decided(path.read_text(encoding="utf-8")))


def _decided(text: str) -> Any:
    """What a plan decides; of a text that is no plan, the text."""
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError:
        return text.strip()
    return {part: said for part, said in content.items() if part != "added"} if isinstance(content, dict) else content


def _owners(study: str, runs: Iterable[str]) -> dict[str, list[str]]:
    """The plans that each run belongs to; every plan where the study does not say."""
    patterns = patterns_of(study)
    if not patterns:
        return {run: [path.stem for path in files(study)] for run in runs}
    return {
        run: [plan for plan, names in patterns.items() if any(fnmatch(run, name) for name in names)][:1] for run in runs
    }


def patterns_of(study: str) -> Mapping[str, tuple[str, ...]]:
    """The names of the runs of each plan, as the study says them."""
    return getattr(import_module(f"{studies.__name__}.{study}"), "PLANS", {})
