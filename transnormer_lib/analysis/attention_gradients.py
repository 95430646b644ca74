"""Exact gradients of softmax, linear and normalised attention, one query at a time (Eq. 7-10, 47, 52, 58).

The paper's symbols, with the row index i dropped because every quantity belongs to one query:

- s_ij: score of key j, `s`;  p_ij: its attention weight;  φ: `kernel`;  q_i, k_j, v_j: `q`, `k`, `v`;
- O_i: the output, o = Σ_j p_ij v_j;  T_i: what XNorm normalises, t = Σ_j s_ij v_j;  R = ∂o/∂t;
- g = ∇_{O_i}L: the upstream gradient;  ε: `eps`.

Shapes: B independent cases, N keys, D features. A Jacobian's last two letters are (output, input), so
jacobian_BNN[b, j, k] = ∂p_ij/∂s_ik. The formulas are defined wherever the derivative is: only
`jacobian_as_printed` divides by s_ik, as Eq. 10 does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from transnormer_lib.analysis.kernel_maps import KernelMap
from transnormer_lib.attention.norms import layer_norm, rms_norm
from transnormer_lib.checks import check_choice, check_positive

Norm = Literal["rms", "rms-outside", "layer"]


def check_norm(norm: str, eps: float) -> None:
    """Refuse a normalisation that is not a `Norm`, and an eps that is not positive."""
    check_choice("norm", norm, Norm)
    check_positive("eps", eps)


def _eye(like: Tensor) -> Tensor:
    """The identity matrix over the last axis of `like`."""
    return torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)


def _outer(a: Tensor, b: Tensor) -> Tensor:
    return a[..., :, None] * b[..., None, :]


def scores(q_BD: Tensor, k_BND: Tensor, kernel: KernelMap) -> Tensor:
    """Scores s_ij = φ(q_i)ᵀφ(k_j) of Eq. 6, [B, N]."""
    return torch.einsum("bd,bnd->bn", kernel.phi(q_BD), kernel.phi(k_BND))


def linear_weights(s_BN: Tensor) -> Tensor:
    """p_ij = s_ij / Σ_k s_ik (Eq. 4 with f(x) = x), [B, N]."""
    return s_BN / s_BN.sum(-1, keepdim=True)


def jacobian_as_printed(s_BN: Tensor, f: Callable[[Tensor], Tensor], f_prime: Callable[[Tensor], Tensor]) -> Tensor:
    """Eq. 7 as printed, f′(s_ik)/f(s_ik) · (1{j=k} p_ij − p_ij p_ik), [B, N, N]; NaN where f(s_ik) = 0."""
    p_BN = f(s_BN) / f(s_BN).sum(-1, keepdim=True)
    return (f_prime(s_BN) / f(s_BN))[..., None, :] * (torch.diag_embed(p_BN) - _outer(p_BN, p_BN))


def jacobian_softmax(s_BN: Tensor) -> Tensor:
    """∂p_ij/∂s_ik = 1{j=k} p_ij − p_ij p_ik for softmax (Eq. 8), [B, N, N]."""
    p_BN = s_BN.softmax(-1)
    return torch.diag_embed(p_BN) - _outer(p_BN, p_BN)


def jacobian_linear(s_BN: Tensor) -> Tensor:
    """∂p_ij/∂s_ik = (1{j=k} − p_ij) / Σ_l s_il, [B, N, N].

    Equal to Eq. 10 wherever Eq. 10 is defined. Needs only a non-zero sum, so scores may be zero or negative.
    """
    total_B11 = s_BN.sum(-1)[..., None, None]
    return (_eye(s_BN) - linear_weights(s_BN)[..., :, None]) / total_B11


def jacobian_clamped(s_BN: Tensor, floor: float) -> Tensor:
    """∂p_ij/∂s_ik for p_ij = s_ij / max(Σ_k s_ik, floor), as released implementations divide, [B, N, N]."""
    check_positive("floor", floor)
    below_B11 = (s_BN.sum(-1) < floor)[..., None, None]
    return torch.where(below_B11, _eye(s_BN) / floor, jacobian_linear(s_BN))


def score_gradient_softmax(s_BN: Tensor, v_BND: Tensor, g_BD: Tensor) -> Tensor:
    """∂L/∂s_ij = p_ij g·(v_j − o) for softmax (Eq. 47 summed out), [B, N]."""
    p_BN = s_BN.softmax(-1)
    along_BN = torch.einsum("bnd,bd->bn", v_BND, g_BD)
    return p_BN * (along_BN - (p_BN * along_BN).sum(-1, keepdim=True))


def score_gradient_linear(s_BN: Tensor, v_BND: Tensor, g_BD: Tensor) -> Tensor:
    """∂L/∂s_ij = g·(v_j − o) / Σ_k s_ik for linear attention (Eq. 47 summed out), [B, N]."""
    along_BN = torch.einsum("bnd,bd->bn", v_BND, g_BD)
    mean_B1 = (linear_weights(s_BN) * along_BN).sum(-1, keepdim=True)
    return (along_BN - mean_B1) / s_BN.sum(-1, keepdim=True)


def normalise(t_BD: Tensor, norm: Norm, eps: float) -> Tensor:
    """XNorm of Eq. 14 without gain, [B, D].

    `rms` is Definition D.1, t/√(σ²+ε). `rms-outside` is the release, t/(√σ²+ε)
    (OpenNLPLab/fairseq-evo@38fa81f). `layer` subtracts the mean and has ε inside the root.
    """
    check_norm(norm, eps)
    if norm == "layer":
        return layer_norm(t_BD, eps)
    return rms_norm(t_BD, eps, "outside" if norm == "rms-outside" else "inside")


def jacobian_norm(t_BD: Tensor, norm: Norm, eps: float) -> Tensor:
    """∂o_j/∂t_k of `normalise`, [B, D, D]; for `rms` this is Eq. 52.

    With ε outside the root the map is differentiable at t = 0 too: its Jacobian there is I/ε.
    """
    check_norm(norm, eps)
    d, eye_DD = t_BD.shape[-1], _eye(t_BD)
    if norm == "layer":
        t_BD = t_BD - t_BD.mean(-1, keepdim=True)
        eye_DD = eye_DD - 1 / d
    second_moment_B1 = t_BD.square().mean(-1, keepdim=True)
    if norm == "rms-outside":
        # The clamp avoids 0/0 at t = 0, where the outer product vanishes faster than the rms.
        rms_B1 = second_moment_B1.clamp(min=torch.finfo(t_BD.dtype).tiny).sqrt()
        unit_BD = t_BD / rms_B1
        shrink_B1 = rms_B1 / (rms_B1 + eps)
        return (eye_DD - shrink_B1[..., None] * (_outer(unit_BD, unit_BD) / d)) / (rms_B1 + eps)[..., None]
    root_B1 = (second_moment_B1 + eps).sqrt()
    o_BD = t_BD / root_B1
    return (eye_DD - _outer(o_BD, o_BD) / d) / root_B1[..., None]


def score_gradient_norm(s_BN: Tensor, v_BND: Tensor, g_BD: Tensor, norm: Norm, eps: float) -> Tensor:
    """∂L/∂s_ij = g R v_j for o = XNorm(Σ_j s_ij v_j) (Eq. 58), [B, N]."""
    t_BD = torch.einsum("bn,bnd->bd", s_BN, v_BND)
    gradient_of_t_BD = torch.einsum("bd,bde->be", g_BD, jacobian_norm(t_BD, norm, eps))
    return torch.einsum("be,bne->bn", gradient_of_t_BD, v_BND)


def weights_by_query(q_BD: Tensor, k_BND: Tensor, kernel: KernelMap) -> Tensor:
    """∂p_ij/∂q_ia of linear attention, [B, N, D]: φ′(q_a) [φ(k_j)_a − p_j Σ_l φ(k_l)_a] / Σ_l s_l."""
    s_BN, phi_k_BND = scores(q_BD, k_BND, kernel), kernel.phi(k_BND)
    shift_BND = phi_k_BND - linear_weights(s_BN)[..., None] * phi_k_BND.sum(1, keepdim=True)
    return kernel.slope(q_BD)[:, None] * shift_BND / s_BN.sum(-1)[:, None, None]


def weights_by_key(q_BD: Tensor, k_BND: Tensor, kernel: KernelMap) -> Tensor:
    """∂p_ij/∂k_la of linear attention, [B, N(j), N(l), D]: φ′(k_la) φ(q)_a (1{j=l} − p_j) / Σ_m s_m."""
    jacobian_BNN = jacobian_linear(scores(q_BD, k_BND, kernel))
    through_BND = kernel.slope(k_BND) * kernel.phi(q_BD)[:, None]
    return jacobian_BNN[..., None] * through_BND[:, None]


def softmax_weights_by_query(q_BD: Tensor, k_BND: Tensor) -> Tensor:
    """∂p_ij/∂q_ia of softmax attention with the 1/√d of Eq. 5, [B, N, D]."""
    scale = q_BD.shape[-1] ** -0.5
    p_BN = (torch.einsum("bd,bnd->bn", q_BD, k_BND) * scale).softmax(-1)
    mean_BD = torch.einsum("bn,bnd->bd", p_BN, k_BND)
    return p_BN[..., None] * (k_BND - mean_BD[:, None]) * scale
