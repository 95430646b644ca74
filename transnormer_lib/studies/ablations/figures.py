"""The figures of Tables 8 to 12: our losses beside the printed perplexities, one line per row of the table."""

from collections.abc import Mapping, Sequence

from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from transnormer_lib.show.figures import GREY, STYLE
from transnormer_lib.studies.common.figures import row_points

_APART = 0.17  # distance of the two variants from the middle of their line


def question(
    losses: Mapping[str, Mapping[str, Sequence[float]]],
    published: Mapping[str, Mapping[str, float | None]],
    floors: Mapping[str, float],
    *,
    unit: str,
) -> Figure:
    """Our losses on the left, a point per run and a bar at the mean; the printed perplexities on the right.

    ``losses``: one value per seed by line of the table and variant, empty if nothing was run; ``published``: the
    table's numbers; ``floors``: values drawn as vertical lines. The first line of the table is on top. Raises
    ValueError unless both have the same lines.
    """
    if list(losses) != list(published):
        raise ValueError(f"losses={list(losses)!r}: must have the lines of published={list(published)!r}")
    variants = list(next(iter(losses.values())))
    size = (6.8, 0.5 * len(losses) + 1.5)
    figure, (left, right) = plt.subplots(1, 2, figsize=size, sharey=True, width_ratios=[1.7, 1], layout="constrained")
    for height, label in enumerate(losses):
        for variant, shift in zip(variants, (-_APART, _APART), strict=True):
            style, printed = STYLE[variant], published[label][variant]
            row_points(left, height + shift, losses[label][variant], style, half=0.14)
            if printed is not None:
                right.plot([printed], [height + shift], style.marker, color=style.colour)
                right.annotate(
                    f"{printed:.2f}", (printed, height + shift), xytext=(6, 0), textcoords="offset points",
                    va="center", fontsize="x-small",
                )  # fmt: skip
    for name, value in floors.items():
        left.axvline(value, color=GREY, linewidth=1.2, linestyle=(0, (4, 3)), zorder=0)
        left.annotate(
            name, (value, 1.0), xycoords=("data", "axes fraction"), xytext=(0, 3), textcoords="offset points",
            ha="center", va="bottom", fontsize="small",
        )  # fmt: skip
    left.set(ylim=(len(losses) - 0.4, -0.6), xlabel=f"ours: {unit}")
    left.set_yticks(range(len(losses)), list(losses))
    right.set(xlabel="published: perplexity")
    right.margins(x=0.25)
    for panel in (left, right):
        panel.tick_params(axis="y", length=0)
        for edge in range(1, len(losses)):
            panel.axhline(edge - 0.5, color=GREY, linewidth=0.4, alpha=0.6)
    handles = [
        plt.Line2D([], [], color=STYLE[v].colour, marker=STYLE[v].marker, linestyle="none", label=STYLE[v].label)
        for v in variants
    ]
    figure.legend(handles=handles, loc="outside upper right", ncols=2)
    return figure
