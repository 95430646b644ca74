"""The fewest bytes a case can move: every input read once, every output written once, nothing in between.

Per token and head, with one vector of D numbers as the unit. NormAttention forward: q, k, v read, o written, 4.
Backward: q, k, v and the gradient g read, dq, dk, dv written, 7; with the fused norm also o, since the gradient before
the norm, r·(g − o·mean(g·o)), needs the normalised output of all heads, 8. DiagAttention likewise: a block fits on the
chip, so its scores are formed again and nothing is kept of them. The row scales r (one float32 per token) and the
states that segments hand on are a design's, not the problem's, and are not counted. A rotation reads its cosine and
sine [N, D/2] in float32 once in each direction. A decoding step reads and writes its float32 state [B, H, D, D].

The floor is these bytes at the rate of the device's own copy, measured in the same run. At these shapes the matrix
products take less: at most 96 operations a byte, where an H200 has 184 to offer.
"""

from math import prod

from transnormer_kernels.bench.cases import Case


def tensors(case: Case) -> dict[str, int]:
    """Bytes by what is moved; a name ending in ' again' is what the backward pass moves a second time."""
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
