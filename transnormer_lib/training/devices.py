"""Accelerate, set up for one run: device, precision, processes, sharding, tracker.

Processes copy the model (DDP) unless Accelerate's configuration says FSDP: ``accelerate launch --use_fsdp``, its
config file, or ``ACCELERATE_USE_FSDP=true`` with the ``FSDP_…`` variables under ``torchrun``. FSDP means its second
version, whose optimiser sees the parameters by name.
"""

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
        RunRefused: fp16 without a GPU; FSDP of the first version; a tracker that Accelerate does not know or whose
            package is not installed.
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
    # Every process draws the same weights from the seed; there is nothing to send round.
    plugin.cpu_ram_efficient_loading = False
    return plugin


def _shard_on_cpus(accelerator: Any, plugin: Any) -> None:
    """Let processes on CPUs shard too, which Accelerate leaves to accelerators: asked for FSDP there, it copies the
    model without a word (``AcceleratorState.__init__``, 1.15). PyTorch's ``fully_shard`` needs no GPU, and so the
    sharded path can be tested without one.
    """
    from accelerate.state import PartialState
    from accelerate.utils import DistributedType

    accelerator.state.fsdp_plugin = plugin
    for shared in (PartialState(), accelerator.state):  # each holds the type by itself
        shared.distributed_type = DistributedType.FSDP


def shards(accelerator: Any) -> bool:
    """Whether the processes hold parts of the model (FSDP) instead of copies of it."""
    return bool(accelerator.is_fsdp2)


def whole_state(model: Any) -> dict[str, Any]:
    """A copy on the CPU of a model's parameters and persistent buffers, put together where they are sharded.

    Every process calls this.
    """
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
        package = tracker.replace("_", "-")
        raise RunRefused(f"tracker={tracker!r}: needs the package {package}, which is not installed")
