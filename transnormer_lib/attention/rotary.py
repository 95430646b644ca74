"""Rotary position embedding: queries and keys rotated by their positions, so that scores depend on distance alone.

    R_i = diag of 2 × 2 rotations by i·θ_m          (R_i q)·(R_j k) = q · R_{j−i} k

The paper does not mention it; the released language models rotate queries and keys (OpenNLPLab/fairseq-evo@38fa81f) by
what is here ``lrpe``: one fixed random Householder reflection of both, then rotations whose angles θ are learned, one
set per layer, shared by the heads. ``rope`` is the rotation alone with RoFormer's fixed angles (Su et al., 2021). Both
rotate neighbouring pairs of numbers ("interleaved").

Shapes: B batch, H heads, N length, D head_dim.
"""

import torch
from torch import Tensor, nn

from transnormer_lib.attention.norms import KeepsFloat32, wide_dtype, widen
from transnormer_lib.choices import Rotary as RotaryName


def check_even(rotary: RotaryName, head_dim: int) -> None:
    """Refuse to rotate an odd number of features: ValueError."""
    if rotary != "none" and head_dim % 2:
        raise ValueError(f"head_dim={head_dim}: must be even with rotary={rotary!r}, which rotates pairs of features")


class Rotary(KeepsFloat32):
    """``lrpe`` if ``learned``, else ``rope``, which has no parameter, on q and k [..., N, D] with an even D.

    ``lrpe`` has the parameter ``theta`` [D/2] in radians per token, initially 10000^(−2m/D), and the persistent
    buffer ``reflection_D``, a unit vector, drawn from torch's global random state without a generator. Both stay in
    float32 when a model is cast to a half dtype: a position multiplies θ's error, in bfloat16 to a radian at a distance
    of some 500. Raises ValueError for an odd ``head_dim``.
    """

    reflection_D: Tensor

    def __init__(self, head_dim: int, learned: bool, generator: torch.Generator | None = None) -> None:
        super().__init__()
        check_even("lrpe" if learned else "rope", head_dim)
        self.head_dim, self.learned = head_dim, learned
        if learned:
            dtype = wide_dtype(torch.get_default_dtype())
            self.theta = nn.Parameter(torch.empty(head_dim // 2, dtype=dtype))
            self.register_buffer("reflection_D", torch.empty(head_dim, dtype=dtype))
            self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Set θ to its initial value and draw the reflection, uniform over directions; ``rope`` has neither."""
        if self.learned:
            self.theta.copy_(self._initial_angles(self.theta.device))
            nn.init.normal_(self.reflection_D, generator=generator)
            self.reflection_D /= torch.linalg.vector_norm(self.reflection_D)

    def forward(self, *tensors: Tensor, start: int | Tensor = 0, period: int = 0) -> tuple[Tensor, ...]:
        """Tensors [..., N, D] of one dtype, such as q and k, rotated by their positions start, start + 1, …

        ``start`` may be an int64 scalar on their device. With a ``period`` positions are taken modulo it. Results have
        their inputs' dtype; half-precision inputs are rotated in float32.
        """
        x = tensors[0]
        positions_N = torch.arange(x.shape[-2], device=x.device) + start
        if period:
            positions_N = positions_N % period
        phases = self._phases(positions_N, wide_dtype(x.dtype))
        if not self.learned:
            return tuple(_rotated(widen(x), phases).to(x.dtype) for x in tensors)
        u = self.reflection_D.to(wide_dtype(x.dtype))
        back = -2 * u / u.square().sum()  # drawn in float32, u is no unit vector to float64
        reflected = [torch.addcmul(x, (x * u).sum(-1, keepdim=True), back) for x in map(widen, tensors)]
        return tuple(_rotated(y, phases).to(x.dtype) for x, y in zip(tensors, reflected, strict=True))

    def angles(self, device: torch.device) -> Tensor:
        """θ [D/2] in radians per token: the learned ones, or RoFormer's in float64 on ``device``."""
        return self.theta if self.learned else self._initial_angles(device)

    def _initial_angles(self, device: torch.device) -> Tensor:
        m = torch.arange(self.head_dim // 2, dtype=torch.float64, device=device)
        return 10000.0 ** (-2 * m / self.head_dim)

    def _phases(self, positions_N: Tensor, dtype: torch.dtype) -> Tensor:
        """e^{i·n·θ_m}, complex [N, D/2]: a rotation by an angle is a product with a complex number."""
        # In float64, because an angle of 65,536 radians is 0.004 off in float32.
        angles = positions_N.double()[:, None] * self.angles(positions_N.device).double()
        return torch.complex(angles.cos().to(dtype), angles.sin().to(dtype))


def _rotated(x: Tensor, phases: Tensor) -> Tensor:
    """x [..., N, D] with its neighbouring pairs as complex numbers times phases [N, D/2]."""
    pairs = x.unflatten(-1, (-1, 2))
    if any(step % 2 for step in pairs.stride()[:-1]) or pairs.stride(-1) != 1 or pairs.storage_offset() % 2:
        pairs = pairs.clone(memory_format=torch.contiguous_format)  # no pair may start at an odd place in memory
    return torch.view_as_real(torch.view_as_complex(pairs) * phases).flatten(-2)
