"""The fewest bytes a case can move: every input read once, every output written once, nothing in between.

Counted per token and head, in vectors of D numbers. NormAttention's forward pass moves 4: it reads q, k, v and writes
o. The backward pass moves 7: it reads q, k, v and the gradient g and writes dq, dk, dv. With the fused norm it moves 8:
the gradient before the norm, r·(g − o·mean(g·o)), also needs the normalised output o of all heads. DiagAttention moves
the same: a block fits on the chip, so its scores are recomputed, not stored. The row scales r (one float32 per token)
and the states between segments are a design's choice and not counted. A rotation reads its cosines and sines [N, D/2]
in float32 once per pass. A decoding step reads and writes its float32 state [B, H, D, D].

The floor is the time of these bytes at the rate of the device's own copy, measured in the same run. At these shapes the
matrix products take less time: at most 96 operations per byte, where an H200 can do 184.
"""

from math import prod

from transnormer_kernels.bench.cases import Case


def tensors(case: Case) -> dict[str, int]:
    """Bytes moved, by tensor; ' again' marks those that the backward pass moves a second time."""
    vector = prod(case.tokens) * case.torch_dtype.itemsize
    moved = dict.fromkeys(("q", "k", "v", "o"), vector)
    if case.operation == "step":
        state = 4 * case.batch * case.heads * case.head_dim**2
        moved |= {"state read": state, "state written": state}
    angles = 4 * case.length * case.head_dim + 4 * case.head_dim if case.rotated else 0  # the tables, the reflection
    if angles:
        moved["rotation"] = angles
    if case.backward:
        moved |= dict.fromkeys(("q again", "k again", "v again", "g", "dq", "dk", "dv"), vector)
        if case.norm == "embedding":
            moved["o again"] = vector
        if angles:
            moved["rotation again"] = angles + 4 * (case.head_dim // 2)  # and dθ
    return moved


def moved_bytes(case: Case) -> int:
    """The sum of :func:`tensors`."""
    return sum(tensors(case).values())
