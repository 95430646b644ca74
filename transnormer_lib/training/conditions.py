"""What a record holds besides the training itself: floating-point operations, memory, provenance.

None of it is part of a run's identity (``training.identity``).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transnormer_lib.training.config import RunConfig


@contextmanager
def run_conditions(config: RunConfig) -> Iterator[dict[str, Any]]:
    """Yields a dict of the conditions under which the block trains ``config``.

    - ``flops``: floating-point operations of the whole training, computed from the architecture (``models.flops``).
    - ``provenance``: commit, versions, machine. Recorded now, because the checkout may change during training.
    - ``peak_memory``, added when the block ends: ``bytes``, and ``of``. On a GPU: peak tensor memory of the block.
      Otherwise: peak resident memory of the process since it started.
    """
    import torch

    from transnormer_lib.models.flops import training_flops
    from transnormer_lib.provenance.environment import peak_memory_bytes, provenance

    sequences = config.steps * config.data.batch_size
    flops = training_flops(config.model, config.data.length, sequences, config.head)
    conditions = {"flops": flops, "provenance": provenance()}
    if torch.cuda.is_initialized():  # a run on the CPU must not initialise a GPU
        torch.cuda.reset_peak_memory_stats()
    yield conditions
    if torch.cuda.is_initialized() and (used := torch.cuda.max_memory_allocated()):
        conditions["peak_memory"] = {"of": "device", "bytes": used}
    else:
        conditions["peak_memory"] = {"of": "process", "bytes": peak_memory_bytes()}
