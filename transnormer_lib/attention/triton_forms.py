"""What the Triton kernels of ``transnormer_kernels`` cannot do, and the arguments they share.

The kernels take [B, N, H, D], the layout a projection leaves: transposing to it copies nothing. Mechanisms import them
when a kernel first runs, so that the package imports with torch alone.
"""

from importlib.util import find_spec

import torch
from torch import Tensor

from transnormer_lib.attention.rotary import Rotary

_HEAD_DIMS = (16, 32, 64, 80, 96, 128)
_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
_HAS_TRITON = find_spec("triton") is not None and find_spec("transnormer_kernels") is not None


def refusal(head_dim: int, dtype: torch.dtype, device: torch.device) -> str:
    """Why no kernel can serve q, k and v of ``dtype``, in half a sentence; empty if one can."""
    if not _HAS_TRITON:
        return "triton is not installed"
    if head_dim not in _HEAD_DIMS:
        return f"head_dim={head_dim} is none of {', '.join(map(str, _HEAD_DIMS))}"
    if dtype not in _DTYPES:
        return f"{dtype} is not a dtype of the kernels"
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0):
        return "the kernels need compute capability 8.0"
    return ""


def rotation(rotary: Rotary | None, device: torch.device) -> dict[str, Tensor]:
    if rotary is None:
        return {}
    theta = {"theta": rotary.angles(device)}
    return theta | {"reflection": rotary.reflection_D} if rotary.learned else theta
