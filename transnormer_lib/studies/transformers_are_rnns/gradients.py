"""Section 3.3.1 of "Transformers are RNNs": Algorithm 1, the naive form that it replaces, and what either keeps.

Reference code, token by token as printed. Shapes: N length, C features, M numbers of a value; one head of one sequence.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from transnormer_lib.analysis.tensor_memory import allocations


def forward(phi_q_NC: Tensor, phi_k_NC: Tensor, v_NM: Tensor) -> Tensor:
    """The numerator of Eq. 9 as Algorithm 1 computes it: V̄ [N, M]."""
    s_CM = phi_q_NC.new_zeros(phi_k_NC.shape[1], v_NM.shape[1])
    rows = []
    for q_C, k_C, v_M in zip(phi_q_NC, phi_k_NC, v_NM, strict=True):
        s_CM = s_CM + torch.outer(k_C, v_M)  # Eq. 10
        rows.append(q_C @ s_CM)
    return torch.stack(rows)


def algorithm_1(phi_q_NC: Tensor, phi_k_NC: Tensor, v_NM: Tensor, g_NM: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Algorithm 1's backward pass: the gradients of φ(Q), φ(K) and V, for the gradient g of V̄. One S is kept."""
    dq_NC, dk_NC, dv_NM = torch.empty_like(phi_q_NC), torch.empty_like(phi_k_NC), torch.empty_like(v_NM)
    s_CM = phi_q_NC.new_zeros(phi_k_NC.shape[1], v_NM.shape[1])
    for i in range(len(v_NM)):
        s_CM += torch.outer(phi_k_NC[i], v_NM[i])
        dq_NC[i] = g_NM[i] @ s_CM.mT  # Eq. 13
    s_CM.zero_()
    for i in reversed(range(len(v_NM))):
        s_CM += torch.outer(phi_q_NC[i], g_NM[i])
        dv_NM[i] = s_CM.mT @ phi_k_NC[i]  # Eq. 15, with the transpose that is missing in print
        dk_NC[i] = s_CM @ v_NM[i]  # Eq. 14
    return dq_NC, dk_NC, dv_NM


def equation_15_as_printed(phi_q_NC: Tensor, phi_k_NC: Tensor, g_NM: Tensor) -> Tensor:
    """(Σ_{j≥i} φ(Q_j) g_j^T) φ(K_i) without the transpose; it exists for C = M only."""
    sums_NCM = (phi_q_NC[:, :, None] * g_NM[:, None, :]).flip(0).cumsum(0).flip(0)
    return torch.einsum("ncm,nm->nc", sums_NCM, phi_k_NC)


def states_kept(phi_q_NC: Tensor, phi_k_NC: Tensor, v_NM: Tensor) -> Tensor:
    """The naive form of Eq. 12's numerator, which keeps every S_i for the backward pass."""
    s_NCM = (phi_k_NC[:, :, None] * v_NM[:, None, :]).cumsum(0)
    return torch.einsum("nc,ncm->nm", phi_q_NC, s_NCM)


def kept_bytes(call: Callable[[], Tensor]) -> int:
    """Bytes that autograd keeps for the backward pass of ``call``; a storage counts once."""
    storages: dict[int, int] = {}

    def keep(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return x

    with saved_tensors_hooks(keep, lambda x: x):
        output = call()  # alive until counted, so that no address is used twice
    del output
    return sum(storages.values())


def largest_allocation(call: Callable[[], object]) -> int:
    """Bytes of the largest tensor that ``call`` allocates, temporary ones included."""
    return max(allocations(call), default=0)
