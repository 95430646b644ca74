"""Draw a model's architecture from the parts that a forward pass went through (``analysis.anatomy``)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from transnormer_lib.analysis.anatomy import Part

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colour by role, hatch as the second cue; names not listed are drawn plain (embedding, norms).
_ROLES = {
    "DiagAttention": ("#0072B2", "///"),
    "NormAttention": ("#D55E00", "\\\\\\"),
    "SoftmaxAttention": ("#009E73", ".."),
    "LinearAttention": ("#CC79A7", "xx"),
}


def draw_architecture(parts: Sequence[Part], title: str) -> "Figure":
    """One box per part, bottom to top in the order of the forward pass, as the paper's Figure 3 draws it."""
    from matplotlib import pyplot as plt
    from matplotlib.patches import FancyBboxPatch, Rectangle

    height, gap = 0.62, 0.2
    figure, axes = plt.subplots(figsize=(7.2, 0.42 * len(parts) + 0.9))
    y, layer_spans = 0.0, {}
    for part in parts:
        colour, hatch = _ROLES.get(part.name, ("#777777", ""))
        weight = 0.28 if part.name in _ROLES else 0.12
        box = FancyBboxPatch((0, y), 5.2, height, boxstyle="round,pad=0.02", facecolor=colour, alpha=weight, linewidth=0)
        axes.add_patch(box)
        if hatch:
            axes.add_patch(Rectangle((0, y), 0.22, height, fill=False, hatch=hatch, edgecolor=colour, linewidth=0))
        axes.text(0.35, y + height / 2, part.name, va="center", weight="bold" if part.name in _ROLES else "normal")
        axes.text(2.2, y + height / 2, part.detail, va="center", fontsize="small")
        shape = " × ".join(map(str, part.shape))
        axes.text(5.4, y + height / 2, f"{shape}   {part.parameters:,} parameters", va="center", fontsize="small")
        if part.layer is not None:
            low, _ = layer_spans.get(part.layer, (y, y))
            layer_spans[part.layer] = (low, y + height)
        y += height + gap
    for layer, (low, high) in layer_spans.items():
        axes.plot([-0.25, -0.25], [low, high], color="#777777", linewidth=1.5)
        axes.text(-0.4, (low + high) / 2, f"layer {layer}", rotation=90, va="center", ha="right", fontsize="small")
    axes.set(xlim=(-0.9, 8.6), ylim=(-0.2, y), title=title)
    axes.axis("off")
    return figure
