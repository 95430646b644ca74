"""Draw a model's architecture from the parts of a forward pass (``analysis.anatomy``)."""

from collections.abc import Sequence

from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from transnormer_lib.analysis.anatomy import Part

# Colour by role, with a hatch as the second cue. Other parts are grey (embedding, norms).
_ROLES = {
    "DiagAttention": ("#0072B2", "///"),
    "NormAttention": ("#D55E00", "\\\\\\"),
    "SoftmaxAttention": ("#009E73", ".."),
    "LinearAttention": ("#CC79A7", "xx"),
}


def draw_architecture(parts: Sequence[Part], title: str) -> Figure:
    """One box per part, from bottom to top in the order of the forward pass, as in the paper's Figure 3."""
    height, gap, width = 0.62, 0.2, 6.6
    figure, axes = plt.subplots(figsize=(7.6, 0.34 * len(parts) + 0.9))
    y = 0.0
    layer_spans: dict[int, tuple[float, float]] = {}
    for part in parts:
        colour, hatch = _ROLES.get(part.name, ("#7f7f7f", ""))
        weight, alpha = ("bold", 0.28) if part.name in _ROLES else ("normal", 0.12)
        box = FancyBboxPatch(
            (0, y), width, height, boxstyle="round,pad=0.02", facecolor=colour, alpha=alpha, linewidth=0
        )
        axes.add_patch(box)
        if hatch:
            axes.add_patch(Rectangle((0, y), 0.22, height, fill=False, hatch=hatch, edgecolor=colour, linewidth=0))
        middle = y + height / 2
        axes.text(0.35, middle, part.name, va="center", weight=weight)
        axes.text(2.75, middle, part.detail, va="center", fontsize="small")
        axes.text(width + 0.2, middle, " × ".join(map(str, part.shape)), va="center", fontsize="small")
        axes.text(width + 3.2, middle, f"{part.parameters:,}", va="center", ha="right", fontsize="small")
        if part.layer is not None:
            low, _ = layer_spans.get(part.layer, (y, y))
            layer_spans[part.layer] = (low, y + height)
        y += height + gap
    axes.text(width + 0.2, y + 0.1, "output", fontsize="small", weight="bold")
    axes.text(width + 3.2, y + 0.1, "parameters", ha="right", fontsize="small", weight="bold")
    for layer, (low, high) in layer_spans.items():
        axes.plot([-0.25, -0.25], [low, high], color="#7f7f7f", linewidth=1.5)
        axes.text(-0.4, (low + high) / 2, f"layer {layer}", rotation=90, va="center", ha="right", fontsize="small")
    axes.set(xlim=(-0.9, width + 3.3), ylim=(-0.2, y + 0.5), title=title)
    axes.axis("off")
    return figure
