"""What a model refuses to read, in one line that names the argument, its value and the rule.

Values are looked at after a failure only: on a GPU that would wait for the device, which asserts ids in range itself.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from transnormer_lib.attention.interface import check_padding_mask, check_tensor
from transnormer_lib.data.batches import IGNORE


def check_ids(name: str, ids: object, size: int) -> None:
    """Refuse what is no tensor of whole numbers in [0, ``size``): TypeError or ValueError."""
    check_tensor(name, ids)
    assert isinstance(ids, Tensor)
    if ids.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"{name}.dtype={ids.dtype}: must be int64 or int32")
    _check_range(name, ids, size)


def _check_range(name: str, ids: Tensor, size: int) -> None:
    if not ids.is_meta and len(wrong := ids[(ids < 0) | (ids >= size)]):
        raise ValueError(f"{name}: holds {int(wrong[0])}, must be in [0, {size})")


def check_targets(targets: object, shape: tuple[int, ...], size: int, weight: Tensor) -> None:
    """Refuse all but int64 targets of ``shape`` on the weights' device, in [0, ``size``) or ``IGNORE``."""
    check_tensor("targets", targets)
    assert isinstance(targets, Tensor)
    if targets.dtype != torch.int64:
        raise TypeError(f"targets.dtype={targets.dtype}: must be int64")
    check_shape("targets", targets, shape)
    check_device("targets", targets, weight)
    if not targets.is_meta:
        _check_range("targets", targets[targets != IGNORE], size)


def check_device(name: str, x: Tensor, weight: Tensor) -> None:
    """Refuse an input on another device than the weights."""
    if x.device != weight.device:
        raise ValueError(f"{name}.device={x.device}: must equal the weights' device={weight.device}")


def check_shape(name: str, x: Tensor, shape: tuple[int, ...]) -> None:
    """Refuse another shape."""
    if tuple(x.shape) != shape:
        raise ValueError(f"{name}.shape={tuple(x.shape)}: must be {shape}")


def check_sequences(name: str, x: Tensor, shape: str, mask: Tensor | None, weight: Tensor) -> None:
    """Refuse an x of another ``shape`` than "[B, N]", "[B, C, N] with …", on another device than the weights, or with
    no token, and a padding mask that does not fit it."""
    if x.ndim != shape.count(",") + 1 or x.shape[-1] < 1:
        raise ValueError(f"{name}.shape={tuple(x.shape)}: must be {shape}, N at least 1")
    check_device(name, x, weight)
    if mask is not None:
        check_tensor("key_padding_mask", mask)
        check_shape("key_padding_mask", mask, tuple(x.shape))
        check_padding_mask(mask.flatten(0, -2), x[..., 0].numel(), x.shape[-1], x.device)


@contextmanager
def explained(check: Callable[[], None]) -> Iterator[None]:
    """After a failure inside, make the check, which may say it better; else the failure stands."""
    try:
        yield
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
        check()
        raise
