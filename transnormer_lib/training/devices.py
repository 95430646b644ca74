"""Accelerate, configured for one run: device, precision, processes, sharding, tracker.

Processes copy the model (DDP) unless Accelerate's configuration asks for FSDP: ``accelerate launch --use_fsdp``, its
config file, or ``ACCELERATE_USE_FSDP=true`` with the ``FSDP_…`` variables under ``torchrun``. Only FSDP version 2 is
supported.
"""

import os
from pathlib import Path
from typing import Any

from transnormer_lib.project import UserMistake
from transnormer_lib.training.config import Precision, RunRefused

_OF_A_LAUNCHER = ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
_MIXED = {"fp32": "no", "bf16": "bf16", "fp16": "fp16"}


def launched_processes() -> int:
    """The number of processes that the launcher (``torchrun``) started; 1 without a launcher.

    Raises :class:`RunRefused` for a ``WORLD_SIZE`` that is no such number, for a ``RANK`` or ``LOCAL_RANK`` that does
    not fit it, and for several processes without what a launcher sets beside it.
    """
    text = os.environ.get("WORLD_SIZE", "1")
    if not text.isdecimal() or int(text) < 1:
        raise RunRefused(f"WORLD_SIZE={text!r}: must be a whole number of at least 1, as a launcher sets it")
    processes = int(text)
    for name in ("RANK", "LOCAL_RANK"):
        rank = os.environ.get(name, "0")
        if not rank.isdecimal() or int(rank) >= processes:
            raise RunRefused(
                f"{name}={rank!r}: must be a whole number below WORLD_SIZE={processes}, as a launcher sets it"
            )
    if lacking := [name for name in _OF_A_LAUNCHER if processes > 1 and not os.environ.get(name)]:
        raise RunRefused(f"WORLD_SIZE={text!r}: a launcher also sets {', '.join(lacking)}; start the run with torchrun")
    return processes


def build_accelerator(precision: Precision, tracker: Any = None, tracking_dir: Path | None = None) -> Any:
    """An ``accelerate.Accelerator`` that computes in ``precision`` on the available device.

    Under ``torchrun`` it joins the processes, by NCCL on GPUs and gloo on CPUs. ``tracker`` is a name that Accelerate
    knows or a ``GeneralTracker``; trackers that write files write them below ``tracking_dir``. Raises
    :class:`RunRefused` for fp16 without a GPU, FSDP version 1, a tracker that is unknown or not installed, and wrong
    settings of Accelerate's in the environment.
    """
    try:
        return _accelerator(precision, tracker, tracking_dir)
    except UserMistake:
        raise
    except (ValueError, KeyError) as problem:
        given = [f"{name}={value!r}" for name, value in sorted(os.environ.items()) if name.startswith("ACCELERATE_")]
        said = " ".join(str(problem).split())
        raise RunRefused(f"Accelerate cannot be set up with {', '.join(given) or 'its settings'}: {said}") from problem


def _accelerator(precision: Precision, tracker: Any, tracking_dir: Path | None) -> Any:
    import torch
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, PartialState
    from accelerate.utils import parse_flag_from_env

    parse_flag_from_env("ACCELERATE_USE_FSDP")  # which is read again with every step
    # Without cpu=True, Accelerate would not join processes on CPUs.
    state = PartialState(cpu=not torch.accelerator.is_available())
    if precision == "fp16" and state.device.type == "cpu":
        raise RunRefused("precision='fp16': needs a GPU, and this run is on the CPU; use 'bf16' or 'fp32'")
    if tracker is not None:
        _check_tracker(tracker)
    # Accelerate keeps one precision per process, but a notebook may train runs of several precisions.
    if AcceleratorState._shared_state and AcceleratorState().mixed_precision != _MIXED[precision]:
        AcceleratorState._reset_state()
    plugin = _sharding() if state.num_processes > 1 else None
    accelerator = Accelerator(
        mixed_precision=_MIXED[precision],
        log_with=tracker,
        project_dir=None if tracker is None else tracking_dir,
        fsdp_plugin=plugin,
    )
    if plugin is not None and not shards(accelerator):
        _shard_on_cpus(accelerator, plugin)
    return accelerator


def _sharding() -> Any:
    """Accelerate's FSDP plugin where its configuration asks for one, else None."""
    if os.environ.get("ACCELERATE_USE_FSDP", "false").lower() != "true":
        return None
    from accelerate.utils import FullyShardedDataParallelPlugin

    version = os.environ.setdefault("FSDP_VERSION", "2")
    if version != "2":
        raise RunRefused(f"FSDP_VERSION={version!r}: must be '2'")
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2)
    # Every process draws the same weights from the seed, so none need to be broadcast.
    plugin.cpu_ram_efficient_loading = False
    return plugin


def _shard_on_cpus(accelerator: Any, plugin: Any) -> None:
    """Make Accelerate shard on CPUs, so that the sharded path can be tested without a GPU.

    Asked for FSDP on CPUs, Accelerate silently copies the model instead (``AcceleratorState.__init__``, 1.15).
    """
    from accelerate.state import PartialState
    from accelerate.utils import DistributedType

    accelerator.state.fsdp_plugin = plugin
    for shared in (PartialState(), accelerator.state):  # each has its own copy of the type
        shared.distributed_type = DistributedType.FSDP


def shards(accelerator: Any) -> bool:
    """Whether each process holds a part of the model (FSDP) instead of a copy."""
    return bool(accelerator.is_fsdp2)


def whole_state(model: Any) -> dict[str, Any]:
    """A CPU copy of a model's parameters and persistent buffers, gathered if sharded; every process calls this."""
    from torch.distributed.tensor import DTensor

    return {
        name: (value.full_tensor() if isinstance(value, DTensor) else value).detach().to("cpu", copy=True)
        for name, value in model.state_dict().items()
    }


def _check_tracker(tracker: Any) -> None:
    from accelerate.tracking import GeneralTracker, LoggerType, get_available_trackers

    if isinstance(tracker, GeneralTracker):
        return
    known = sorted(set(LoggerType.list()) - {"all"})
    if tracker not in known:
        raise RunRefused(f"tracker={tracker!r}: must be one of {', '.join(known)}")
    if tracker not in [str(available) for available in get_available_trackers()]:
        raise RunRefused(f"tracker={tracker!r}: needs the package {tracker.replace('_', '-')}, which is not installed")
