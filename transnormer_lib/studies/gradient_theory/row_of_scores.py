"""One row of attention scores under three attentions: its weights, and the largest derivative of a weight by a score.

Every value is a unit vector of its own, so the output of a query is its row of weights, o = p, and the derivatives are
those of Equations 8 and 10. For NormAttention p are the scores over their root mean square, and the derivative is that
of Equation 52.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from torch import Tensor

from transnormer_lib.analysis import attention_gradients as gradients
from transnormer_lib.ledger.values import shown
from transnormer_lib.show.figures import GREY, STYLE, look
from transnormer_lib.show.movable import Movable

NAMES = ("softmax", "linear", "norm")  # by their styles
SIZES = (-6.0, 1.0)  # powers of ten by which all scores of a row are multiplied


@dataclass(frozen=True)
class Row:
    """What one attention makes of a row of scores."""

    weights: Tensor  # [N]
    derivative: float  # largest |∂p_ij/∂s_ik|


def rows(s_N: Tensor, eps: float) -> dict[str, Row]:
    """The row of every attention, by name; ``eps`` is RMSNorm's. Scores must be positive."""
    s_1N = s_N[None].double()
    closed = {
        "softmax": (s_1N.softmax(-1), gradients.jacobian_softmax(s_1N)),
        "linear": (gradients.linear_weights(s_1N), gradients.jacobian_linear(s_1N)),
        "norm": (gradients.normalise(s_1N, "rms", eps), gradients.jacobian_norm(s_1N, "rms", eps)),
    }
    return {name: Row(weights[0], float(jacobian.abs().max())) for name, (weights, jacobian) in closed.items()}


def in_words(found: Mapping[str, Row]) -> str:
    """The largest derivative of every attention, in a sentence."""
    said = ", ".join(f"{STYLE[name].label} {shown(row.derivative, 3)}" for name, row in found.items())
    return f"Largest derivative of a weight by a score: {said}."


def figure(relative_N: Tensor, log10_size: float, eps: float) -> Figure:
    """The weights at the scores ``10**log10_size * relative_N``, and the largest derivative as their size changes."""
    drawn, (left, right) = plt.subplots(1, 2, figsize=(9, 2.8), layout="constrained")
    sizes = np.linspace(*SIZES, 71)
    at = [rows(10.0**size * relative_N, eps) for size in sizes]
    for place, (name, row) in enumerate(rows(10.0**log10_size * relative_N, eps).items()):
        style, keys = STYLE[name], np.arange(1, len(relative_N) + 1) + 0.2 * (place - 1)
        left.vlines(keys, 0, row.weights.numpy(), color=style.colour, linewidth=1)
        left.plot(keys, row.weights.numpy(), color=style.colour, marker=style.marker, linestyle="")
        right.loglog(10.0**sizes, [found[name].derivative for found in at], **{**style.line(), "marker": ""})
        right.plot(10.0**log10_size, row.derivative, color=style.colour, marker=style.marker, markersize=8)
    for bound, words in ((0.25, "1/4"), (1 / math.sqrt(eps), "1/√ε")):
        right.axhline(bound, color=GREY, linestyle=":", linewidth=1.2)
        right.annotate(words, (10.0 ** SIZES[0], bound), xytext=(0, 3), textcoords="offset points", fontsize="small")
    left.set(xlabel="key", title="weights", ylim=(0, None))
    right.set(xlabel="all scores times", title="largest derivative", ylabel="largest |∂p / ∂s|")
    drawn.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return drawn


def movable(relative: Sequence[float], log10_size: float, eps: float) -> Movable:
    """The same for a page's script, which lets a visitor change every score, their size, and ε."""
    data = {
        "scores": [round(score, 2) for score in relative],
        "size": log10_size,
        "sizes": SIZES,
        "eps": round(math.log10(eps)),
        "epsilons": (-12, 0),
        "styles": {name: look(name) for name in NAMES},
    }
    return Movable("scores", data)
