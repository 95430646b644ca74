"""The store of runs: an identical run is loaded, a new one is trained and kept.

``runs/<name>-<digest>/`` holds ``config.json``, ``record.json`` and ``model.safetensors``. The digest covers the
config, the fingerprint of the data and the code that training imports (without comments and docstrings, so that a
clarified sentence costs no training). A folder appears under its name only when it is complete: an interrupted run
leaves nothing behind but its own partial folder, which the next attempt removes.
"""

import hashlib
import json
import os
import shutil
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from transnormer_lib.training.config import RunConfig, run_config


class RunFailed(RuntimeError):
    """A stored run did not finish; the message names the run and what its record says."""


@dataclass(frozen=True)
class Run:
    """A finished run on disk."""

    path: Path
    config: RunConfig
    record: dict[str, Any]

    def model(self) -> Any:
        """The trained :class:`~transnormer_lib.models.language_model.LanguageModel`, in evaluation mode."""
        from transnormer_lib.models.language_model import build_model
        from transnormer_lib.training.checkpoints import load_weights

        model = build_model(self.config.model, self.config.seed)
        load_weights(model, self.path / "model.safetensors")
        return model.eval()

    @property
    def validation(self) -> dict[str, float]:
        """The last validation result; raises :class:`RunFailed` where the run diverged before one was made."""
        if self.record["status"] != "finished":
            raise RunFailed(f"run {self.path.name}: {self.record['status']} after {self.record['steps']} steps")
        return self.record["validation"][-1]


def default_root() -> Path:
    """``$TRANSNORMER_RUNS``, else ``runs/`` of the checkout this package lies in, else of the current folder."""
    if "TRANSNORMER_RUNS" in os.environ:
        return Path(os.environ["TRANSNORMER_RUNS"])
    checkout = Path(__file__).resolve().parents[2]
    return (checkout if (checkout / "pyproject.toml").exists() else Path.cwd()) / "runs"


@lru_cache
def _code() -> str:
    from transnormer_lib.provenance.imports import code_digest

    return code_digest("transnormer_lib.training.trainer")


@lru_cache
def _data_fingerprint(corpus: str, vocabulary: str) -> str:
    from transnormer_lib.data.text import load_text_corpus

    return load_text_corpus(corpus, vocabulary).fingerprint


def run_id(config: RunConfig) -> str:
    """``<name>-<digest>``: equal for equal config, data and code."""
    content = {
        "config": config.to_dict(),
        "data": _data_fingerprint(config.data.corpus, config.data.vocabulary),
        "code": _code(),
    }
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    return f"{config.name}-{digest}"


class RunStore:
    """Runs under one folder. Several processes may share it: a run that one trains, the others wait for."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = Path(root) if root is not None else default_root()

    def find(self, config: RunConfig) -> Run | None:
        """The stored run of this config, or None."""
        path = self.root / run_id(config)
        if not (path / "record.json").exists():
            return None
        record = json.loads((path / "record.json").read_text())
        return Run(path, run_config(json.loads((path / "config.json").read_text())), record)

    def get(self, config: RunConfig) -> Run:
        """The stored run of this config; trains it first where there is none."""
        if found := self.find(config):
            return found
        from filelock import FileLock

        identity = run_id(config)
        self.root.mkdir(parents=True, exist_ok=True)
        with FileLock(self.root / f".{identity}.lock"):
            return self.find(config) or self._train(config, identity)

    def _train(self, config: RunConfig, identity: str) -> Run:
        from tqdm import tqdm

        from transnormer_lib.provenance.environment import provenance
        from transnormer_lib.training.checkpoints import save_weights
        from transnormer_lib.training.trainer import train

        # Nobody watches a bar where standard error is no terminal. A notebook's never is one: there the bar shows
        # unless TQDM_DISABLE says that the notebook runs in batch.
        quiet = {} if "ipykernel" in sys.modules else {"disable": None}
        with tqdm(total=config.steps, desc=config.name, unit="step", leave=False, **quiet) as bar:

            def progress(step: int, loss: float) -> None:
                bar.update(step - bar.n)
                bar.set_postfix(loss=f"{loss:.3f}", refresh=False)

            model, record = train(config, progress)
        record["provenance"] = provenance()
        partial = self.root / f".partial-{identity}"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        (partial / "config.json").write_text(json.dumps(config.to_dict(), indent=1, sort_keys=True))
        save_weights(model, partial / "model.safetensors")
        (partial / "record.json").write_text(json.dumps(record, indent=1, sort_keys=True))
        path = self.root / identity
        shutil.rmtree(path, ignore_errors=True)  # an incomplete folder of the same name, from outside
        partial.replace(path)
        return Run(path, config, record)
