"""What a record says beyond the training itself: work, memory, provenance.

Training does not import this module, so that counting differently trains nothing anew (``provenance.imports``).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transnormer_lib.training.config import RunConfig


@contextmanager
def measured_memory() -> Iterator[dict[str, Any]]:
    """Fills a dict with ``peak_memory``: ``bytes``, and ``of`` what.

    Of a GPU: the most that tensors took during the block. Else: the most that the process had resident since it
    began, so that a process that trains several runs shows the largest so far.
    """
    import torch

    from transnormer_lib.provenance.environment import peak_memory_bytes

    measured: dict[str, Any] = {}
    # Not asked for before the run has touched it: a run on the CPU must not wake a GPU.
    if torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()
    yield measured
    used = torch.cuda.max_memory_allocated() if torch.cuda.is_initialized() else 0
    if used:
        measured["peak_memory"] = {"of": "device", "bytes": used}
    else:
        measured["peak_memory"] = {"of": "process", "bytes": peak_memory_bytes()}


def run_conditions(config: RunConfig) -> dict[str, Any]:
    """``flops``: floating-point operations that training the whole config takes, as computed from the architecture
    (``models.flops``); ``provenance``: commit, versions, machine."""
    from transnormer_lib.models.flops import training_flops
    from transnormer_lib.provenance.environment import provenance

    sequences = config.steps * config.data.batch_size
    return {
        "flops": training_flops(config.model, config.data.length, sequences, config.head),
        "provenance": provenance(),
    }
