"""Memory of torch's tensors, by torch's own count, which what the process did before does not change.

On a CPU the bytes are counted that torch asks its allocator for. Not counted: scratch that libraries such as MKL and
oneDNN take for themselves, memory of NumPy and of Python, and what the allocator holds beyond what it was asked for.
"""

import gc
import os
from collections.abc import Callable
from itertools import accumulate

import torch
from torch.autograd.profiler import profile  # torch.profiler's imports torch._dynamo, which takes seconds

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # no messages of the profiler, which reads this when it first runs


def _changes(call: Callable[[], object]) -> list[int]:
    """Bytes allocated (positive) and freed (negative) by ``call``, in order."""
    with profile(profile_memory=True) as profiler:
        call()
    events = [e for e in profiler.kineto_results.events() if e.name() == "[memory]"]
    cpu = torch._C._autograd.DeviceType.CPU
    return [e.nbytes() for e in sorted(events, key=lambda e: e.start_ns()) if e.device_type() == cpu]


def peak_bytes(call: Callable[[], object], device: str = "cpu") -> int:
    """The most that is alive at one time of what ``call`` allocates, temporary memory of operators included.

    On ``device`` "cuda" by torch's caching allocator, which rounds every request up.
    """
    if device == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        call()
        return torch.cuda.max_memory_allocated() - before
    return max(0, *accumulate(_changes(call), initial=0))


def allocations(call: Callable[[], object]) -> list[int]:
    """The bytes of every tensor that ``call`` allocates, temporary ones included."""
    return [size for size in _changes(call) if size > 0]


def held_bytes() -> int:
    """What the tensors of this process hold now; those frozen by ``gc.freeze`` are left out."""
    gc.collect()
    plain = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)  # not a fake one, which has no memory
    tensors = [found for found in gc.get_objects() if type(found) in plain]
    storages = [tensor.untyped_storage() for tensor in tensors if tensor.device.type == "cpu"]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())  # views share a storage
