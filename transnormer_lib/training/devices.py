"""Accelerate, set up for one run: device, precision, processes, tracker."""

import os
from pathlib import Path
from typing import Any

from transnormer_lib.training.config import Precision, RunRefused

_MIXED = {"fp32": "no", "bf16": "bf16", "fp16": "fp16"}


def launched_processes() -> int:
    """How many processes the launcher (``torchrun``) started for this run; 1 without one."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def build_accelerator(precision: Precision, tracker: Any = None, tracking_dir: Path | None = None) -> Any:
    """An ``accelerate.Accelerator`` that computes in ``precision`` on the device at hand.

    Under ``torchrun`` it joins the processes: NCCL on GPUs, gloo on CPUs (also where ACCELERATE_USE_CPU keeps a
    machine with GPUs on its CPUs). ``tracker`` is a name that Accelerate knows or one of its ``GeneralTracker``s;
    trackers that write files write them below ``tracking_dir``.

    Raises:
        RunRefused: fp16 without a GPU; a tracker that Accelerate does not know or whose package is not installed.
    """
    import torch
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, PartialState

    # Asked for a CPU, Accelerate joins the processes over gloo; left to find out alone, it would not join them.
    state = PartialState(cpu=not torch.accelerator.is_available())
    if precision == "fp16" and state.device.type == "cpu":
        raise RunRefused("precision='fp16': needs a GPU, and this run is on the CPU; take 'bf16' or 'fp32'")
    if tracker is not None:
        _check_tracker(tracker)
    # Accelerate keeps one precision per process; a notebook trains runs of several.
    if AcceleratorState._shared_state and AcceleratorState().mixed_precision != _MIXED[precision]:
        AcceleratorState._reset_state()
    return Accelerator(
        mixed_precision=_MIXED[precision], log_with=tracker, project_dir=None if tracker is None else tracking_dir
    )


def _check_tracker(tracker: Any) -> None:
    from accelerate.tracking import GeneralTracker, LoggerType, get_available_trackers

    if isinstance(tracker, GeneralTracker):
        return
    known = sorted(set(LoggerType.list()) - {"all"})
    if tracker not in known:
        raise RunRefused(f"tracker={tracker!r}: must be one of {', '.join(known)}")
    if tracker not in [str(available) for available in get_available_trackers()]:
        package = tracker.replace("_", "-")
        raise RunRefused(f"tracker={tracker!r}: needs the package {package}, which is not installed")
