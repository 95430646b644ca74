"""The kernels' argument checks. An error is one line that names the argument, its value and the rule."""

import math

import torch
from torch import Tensor
from triton.runtime.jit import JITFunction

HEAD_DIMS = (16, 32, 64, 80, 96, 128)
DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse a value that is not among ``choices``."""
    if value not in choices:
        raise ValueError(f"{name}={value!r}: must be one of {', '.join(choices)}")


def check_positive(name: str, value: object) -> None:
    """Refuse anything but a positive finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value < math.inf:
        raise ValueError(f"{name}={value!r}: must be a positive finite number")


def check_qkv(q: Tensor, k: Tensor, v: Tensor, shape: str = "[B, N, H, D]") -> None:
    """Refuse q, k, v that do not match, and a head dimension or dtype that no kernel supports."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.ndim != shape.count(",") + 1 or 0 in x.shape:
            raise ValueError(f"{name}.shape={tuple(x.shape)}: must be {shape}, none of them zero")
        if x.shape != q.shape:
            raise ValueError(f"{name}.shape={tuple(x.shape)}: must equal q.shape={tuple(q.shape)}")
        if x.dtype != q.dtype:
            raise TypeError(f"{name}.dtype={x.dtype}: must equal q.dtype={q.dtype}")
        if x.device != q.device:
            raise ValueError(f"{name}.device={x.device}: must equal q.device={q.device}")
    if q.dtype not in DTYPES:
        raise TypeError(f"q.dtype={q.dtype}: must be one of {', '.join(map(str, DTYPES))}")
    if q.shape[-1] not in HEAD_DIMS:
        raise ValueError(f"head_dim={q.shape[-1]}: must be one of {', '.join(map(str, HEAD_DIMS))}")


def check_device(x: Tensor, kernel: object) -> None:
    """Refuse a device on which ``kernel`` cannot run: compiled it needs a GPU, interpreted a CPU."""
    interpreted = not isinstance(kernel, JITFunction)
    if x.device.type != ("cpu" if interpreted else "cuda") and x.device.type != "meta":
        rule = (
            "TRITON_INTERPRET=1 runs on a CPU" if interpreted else "on a CPU set TRITON_INTERPRET=1 before the import"
        )
        raise ValueError(f"q.device={x.device}: the kernels run on a CUDA device; {rule}")
    if interpreted and x.dtype == torch.bfloat16:
        raise TypeError("q.dtype=torch.bfloat16: Triton's interpreter computes it wrongly; use float16 or float32")
    if not interpreted and x.dtype == torch.float64:
        raise TypeError("q.dtype=torch.float64: runs only under TRITON_INTERPRET=1, to check the kernels")


def check_padding(padding: Tensor | None, q: Tensor) -> None:
    """Refuse a mask that is not bool [B, N] on q's device."""
    if padding is None:
        return
    if padding.dtype != torch.bool:
        raise TypeError(f"key_padding_mask.dtype={padding.dtype}: must be torch.bool, True on padding")
    if padding.shape != q.shape[:2] or padding.device != q.device:
        where = f"{tuple(padding.shape)} on {padding.device}"
        raise ValueError(f"key_padding_mask is {where}: must be [B, N] = {tuple(q.shape[:2])} on {q.device}")


def check_rotation(theta: Tensor | None, reflection: Tensor | None, q: Tensor) -> None:
    """Refuse angles other than [D/2] and a reflection other than [D], on q's device."""
    for name, x, size in (("theta", theta, q.shape[-1] // 2), ("reflection", reflection, q.shape[-1])):
        if x is None:
            continue
        if x.shape != (size,) or x.device != q.device:
            raise ValueError(f"{name} is {tuple(x.shape)} on {x.device}: must be ({size},) on {q.device}")
        if x.dtype not in (torch.float32, torch.float64):
            raise TypeError(f"{name}.dtype={x.dtype}: must be float32 or float64; a half dtype loses far positions")
    if reflection is not None and theta is None:
        raise ValueError("reflection without theta: without a rotation it cancels in every score")


def check_cu_seqlens(cu_seqlens: Tensor | None, q: Tensor) -> None:
    """Refuse offsets that are not int32 [B' + 1] on q's device, and a batch of more than one."""
    if cu_seqlens is None:
        return
    if cu_seqlens.dtype != torch.int32 or cu_seqlens.ndim != 1 or cu_seqlens.numel() < 2:
        what = f"{cu_seqlens.dtype} {tuple(cu_seqlens.shape)}"
        raise ValueError(f"cu_seqlens is {what}: must be int32 [sequences + 1], from 0 to N")
    if cu_seqlens.device != q.device:
        raise ValueError(f"cu_seqlens.device={cu_seqlens.device}: must equal q.device={q.device}")
    if q.shape[0] != 1:
        raise ValueError(f"q.shape={tuple(q.shape)}: packed sequences (cu_seqlens) have B = 1")
