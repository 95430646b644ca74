"""One row of a figure: a point per finished run, a line for their range, a bar at their mean."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from transnormer_lib.analysis.seeds import finished, mean
from transnormer_lib.show.figures import Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def row_points(
    axes: "Axes", height: float, values: Sequence[float], style: Style, *, hollow: bool = False, half: float = 0.28
) -> None:
    """Draw the values of one row at ``height``; a text at the right counts the infinite ones, the runs that diverged.

    ``half`` is half the height of the mean's bar; ``hollow`` points are not filled.
    """
    finite = finished(values)
    if finite:
        axes.plot([min(finite), max(finite)], [height] * 2, color=style.colour, linewidth=1.2)
        axes.plot([mean(finite)] * 2, [height - half, height + half], color=style.colour)
        face = "none" if hollow else style.colour
        levels = [height] * len(finite)
        axes.plot(finite, levels, style.marker, color=style.colour, markerfacecolor=face, linestyle="none")
    if lost := len(values) - len(finite):
        side = axes.get_yaxis_transform()  # x in fractions of the panel, y in rows
        ground = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}  # over lines that cross the panel
        said = f"{lost} of {len(values)} diverged"
        axes.text(1.0, height, said, transform=side, ha="right", va="center", fontsize="small", bbox=ground)
