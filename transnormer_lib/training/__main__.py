"""``python -m transnormer_lib.training CONFIG.yaml``: train one run from one YAML into the store.

The YAML holds a :class:`~transnormer_lib.training.config.RunConfig` as plain values. Under
``torchrun --nproc-per-node N -m transnormer_lib.training CONFIG.yaml`` N processes share each batch, on GPUs or on a
CPU, and the main one writes.

Exit codes: 0 trained, or there already; 1 the run diverged, stopped outside a band, or failed; 2 a mistake in
what was asked for, said in one line; 130 interrupted, to be continued by the same command.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transnormer_lib.training.config import RunConfig, RunRefused, run_config


def read_config(path: Path) -> RunConfig:
    """The config in a YAML file; raises ValueError in one line for a file that does not hold one."""
    import yaml

    try:
        values: Any = yaml.safe_load(path.read_text())
    except OSError as problem:
        raise ValueError(f"{path}: {problem.strerror}") from None
    except yaml.YAMLError as problem:
        raise ValueError(f"{path}: no YAML: {' '.join(str(problem).split())}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path}: must hold a mapping of a run's fields, not {type(values).__name__}")
    try:
        return run_config(values)
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None


def _say(text: str) -> None:
    """Once, not once per process."""
    if os.environ.get("RANK", "0") == "0":
        print(text, file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train what the command line says; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m transnormer_lib.training", description="Train one run from one YAML into the store of runs."
    )
    parser.add_argument("config", type=Path, metavar="CONFIG.yaml", help="the run's fields (training/config.py)")
    parser.add_argument("--store", type=Path, default=None, help="the runs (default: $TRANSNORMER_RUNS or runs/)")
    parser.add_argument("--tracker", default=None, help="also report to this tracker: tensorboard, wandb, ...")
    parser.add_argument("--ignore-bands", action="store_true", help="go on where a loss is outside its band")
    parser.add_argument(
        "--accept-divergence", action="store_true", help="a run that diverged is a result: exit code 0 for it too"
    )
    options = parser.parse_args(arguments)
    try:
        return _train(options)
    except KeyboardInterrupt:
        _say("interrupted; the same command goes on from the last checkpoint")
        return 130
    finally:
        _leave_processes()


def _train(options: argparse.Namespace) -> int:
    from transnormer_lib.data.faults import DataUnavailable
    from transnormer_lib.training.bands import explain
    from transnormer_lib.training.store import RunFailed, RunStore, run_id
    from transnormer_lib.training.substance import parameters_of

    try:
        # All that a mistake in the YAML can break, before anything is trained: what fails later is no user's mistake.
        config = read_config(options.config)
        store = RunStore(options.store, check_bands=False if options.ignore_bands else None)
        parameters_of(config)
        run_id(config)
    except ValueError as mistake:
        _say(" ".join(str(mistake).split()))
        return 2
    except DataUnavailable as problem:
        _say(f"no data: {problem}")
        return 1
    try:
        run = store.get(config, options.tracker)
    except RunRefused as mistake:
        _say(" ".join(str(mistake).split()))
        return 2
    except DataUnavailable as problem:
        _say(f"no data: {problem}")
        return 1
    except (RunFailed, OSError) as problem:
        _say(f"{type(problem).__name__}: {' '.join(str(problem).split())}")
        return 1
    if run.record["status"] == "outside-band":
        _say(f"{run.path}: {explain(run.record['outside'])}")
        return 1
    if run.record["status"] != "finished":
        where = run.record["divergence"]
        _say(
            f"{run.path}: {run.record['status']} at step {where['step']}: {where['what']} not finite, {where['layer']}"
        )
        return 0 if options.accept_divergence else 1
    _say(f"{run.path}: " + ", ".join(f"{name} {value:.4g}" for name, value in run.validation.items()))
    return 0


def _leave_processes() -> None:
    import torch.distributed

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    raise SystemExit(main())
