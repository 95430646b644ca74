"""``python -m transnormer_lib.training CONFIG.yaml``: train one run from a YAML file into the store.

The YAML holds a :class:`~transnormer_lib.training.config.RunConfig` as plain values. Under
``torchrun --nproc-per-node N -m transnormer_lib.training CONFIG.yaml`` N processes share each batch, on GPUs or on a
CPU, and the main process writes.

Exit codes: 0 trained, or already in the store; 1 the run diverged, stopped outside a band, or failed; 2 a mistake in
the request, explained in one line; 130 interrupted: the same command resumes the run.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transnormer_lib.exhausted import out_of_memory
from transnormer_lib.files import read_yaml
from transnormer_lib.strict import from_plain
from transnormer_lib.training.config import DECODED, DataConfig, RunConfig, RunRefused
from transnormer_lib.variables import names_refused_variables
from transnormer_lib.visible import shows_plainly

if TYPE_CHECKING:
    from transnormer_lib.training.store import RunStore


def read_config(path: Path) -> RunConfig:
    """The config in a YAML file; raises ValueError in one line for a file that does not hold one.

    A ``model`` with the field ``architecture`` is that of ``models.architectures.architecture`` with the other fields;
    kind, vocabulary size and longest sequence follow from ``data`` unless they are given.
    """
    try:
        values: Any = read_yaml(path)
        if isinstance(values, dict):
            return from_plain(RunConfig, _with_architecture(values))
        reason = f"must hold a mapping of a run's fields, not {type(values).__name__}"
    except OSError as problem:
        reason = str(problem.strerror)
    except ValueError as problem:
        reason = str(problem).removeprefix(f"{path.name}: ")
    raise ValueError(f"{path}: {reason}")


def _with_architecture(values: dict[str, Any]) -> dict[str, Any]:
    from transnormer_lib.data.context_tasks import ContextTask
    from transnormer_lib.data.corpora import corpus_vocabulary_size
    from transnormer_lib.data.pixels import VALUES
    from transnormer_lib.data.speech_tasks import speech_task
    from transnormer_lib.models.architectures import architecture

    model = values.get("model")
    if not isinstance(model, dict) or "architecture" not in model:
        return values
    data = from_plain(DataConfig, values.get("data", {}))
    decoder = data.task in DECODED
    given: dict[str, Any] = {"kind": "decoder" if decoder else "encoder", "max_length": data.length}
    given |= {name: value for name, value in model.items() if name != "architecture"}
    if data.task == "context":
        given.setdefault("vocab_size", ContextTask(data.task_name, data.length).vocab_size)
    elif data.task == "pixels":
        given.setdefault("vocab_size", VALUES)
    elif data.task == "speech":
        task = speech_task(data.task_name, data.length)
        given = {"vocab_size": len(task.symbols), "features": task.features} | given
    else:
        given.setdefault("vocab_size", corpus_vocabulary_size(data.corpus, data.vocabulary))
    try:
        return values | {"model": asdict(architecture(model["architecture"], **given))}
    except TypeError as mistake:  # a field that is missing or unknown
        raise ValueError(f"model: {str(mistake).removeprefix('architecture() ')}") from None


@shows_plainly
@names_refused_variables
def main(arguments: Sequence[str] | None = None) -> int:
    """Train the run that the command line names; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m transnormer_lib.training", description="Train one run from one YAML into the store of runs."
    )
    parser.add_argument("config", type=Path, metavar="CONFIG.yaml", help="the run's fields (training/config.py)")
    parser.add_argument("--store", type=Path, default=None, help="the runs (default: $TRANSNORMER_RUNS or runs/)")
    parser.add_argument("--tracker", default=None, help="also report to this tracker: tensorboard, wandb, ...")
    parser.add_argument("--ignore-bands", action="store_true", help="continue when a loss is outside its band")
    parser.add_argument("--accept-divergence", action="store_true", help="exit with 0 also when the run diverged")
    options = parser.parse_args(arguments)
    try:
        return _train(options)
    except KeyboardInterrupt:
        _say("interrupted; the same command goes on from the last checkpoint")
        return 130
    finally:
        if "torch" in sys.modules:
            import torch.distributed

            if torch.distributed.is_available() and torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()


def _train(options: argparse.Namespace) -> int:
    from transnormer_lib.data.faults import DataUnavailable
    from transnormer_lib.training.bands import explain
    from transnormer_lib.training.records import explain_divergence
    from transnormer_lib.training.stored_run import RunFailed

    try:
        config, store = _checked(options)
        run = store.get(config, options.tracker)
    except RunRefused as mistake:
        _say(str(mistake))
        return 2
    except DataUnavailable as problem:
        _say(f"no data: {problem}")
        return 1
    except (RunFailed, OSError) as problem:
        _say(f"{type(problem).__name__}: {problem}")
        return 1
    except (MemoryError, RuntimeError) as problem:
        if not out_of_memory(problem):
            raise
        _say("out of memory; with more of it the same command goes on from the last checkpoint")
        return 1
    status = run.record["status"]
    if status == "outside-band":
        _say(f"{run.path}: {explain(run.record['outside'])}")
        return 1
    if status != "finished":
        _say(f"{run.path}: diverged: {explain_divergence(run.record['divergence'])}")
        return 0 if options.accept_divergence else 1
    _say(f"{run.path}: " + ", ".join(f"{name} {value:.4g}" for name, value in run.validation.items()))
    return 0


def _checked(options: argparse.Namespace) -> "tuple[RunConfig, RunStore]":
    """The run and the store, checked before training for every mistake that a YAML can hold; raises RunRefused."""
    from transnormer_lib.training.identity import run_id
    from transnormer_lib.training.setup import parameters_of
    from transnormer_lib.training.store import RunStore

    try:
        config = read_config(options.config)
        store = RunStore(options.store, check_bands=False if options.ignore_bands else None, told=_say)
        parameters_of(config)
        run_id(config)
    except ValueError as mistake:
        raise RunRefused(str(mistake)) from mistake
    return config, store


def _say(text: str) -> None:
    """Print ``text`` in one line, once instead of once per process."""
    rank, processes = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    if not (rank.isdecimal() and processes.isdecimal() and 0 < int(rank) < int(processes)):
        print(" ".join(text.split()), file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
