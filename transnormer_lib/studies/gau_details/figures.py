"""The figures of notebook 14."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from transnormer_lib.show.figures import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, Style
from transnormer_lib.studies.common.figures import band, row_points
from transnormer_lib.studies.gau_details.runs import VARIED

_FALLBACK = Style(GREY, "o", "", "")
_STYLES = {
    "softmax_plus": Style(BLUE, "o", "", "softmax_plus"),
    "softmax": Style(BLACK, "s", (4, 2), "softmax"),
    "relu2-n2": Style(PURPLE, "x", (1, 1), "ReLU² / n²"),
    "relu2-ns": Style(VERMILION, "^", (5, 2), "ReLU² / ns"),
    "relu2-table-2": Style(PURPLE, "p", (3, 1.5), "ReLU² / ns²"),
    "relu2-scaled": Style(ORANGE, "v", (3, 1, 1, 1), "ReLU² / (c ns)"),
    "relu2-rows": Style(GREEN, "D", (4, 1.5, 1, 1.5), "ReLU² / c"),
    "relu2-normed": Style(SKY, "P", (2, 1), "ReLU², RMSNorm"),
    "ungated": Style(GREY, "X", (1, 1.5), "no gate"),
    "mean": Style(GREY, "*", (5, 1.5), "gate alone"),
    "roformer-v2": Style(BLACK, "h", (1, 1), "RoFormerV2"),
    "relu2/relu2": Style(VERMILION, "<", (5, 2), "TransNormer: ReLU²"),
    "relu2-rows/relu2-rows": Style(GREEN, ">", (4, 1.5, 1, 1.5), "TransNormer: ReLU² / c"),
    "relu2-normed/relu2-normed": Style(SKY, "d", (2, 1), "TransNormer: ReLU², RMSNorm"),
}


def style(row: str) -> Style:
    """The style of a row; one of varied length is called so."""
    name = row.removesuffix(VARIED)
    found = _STYLES.get(name, _FALLBACK._replace(label=name))
    return found if row == name else found._replace(label=f"{found.label}, varied")


def losses(bits: Mapping[str, Sequence[float]], floors: Mapping[str, float], unit: str) -> Figure:
    """A line per row, first row on top, points hollow where training lengths vary; n-gram models are vertical lines."""
    figure, axes = plt.subplots(figsize=(6.8, 0.34 * len(bits) + 1.2))
    for height, (row, values) in enumerate(bits.items()):
        row_points(axes, height, values, style(row), hollow=row.endswith(VARIED))
    for name, value in floors.items():
        axes.axvline(value, color=GREY, linewidth=1.1, linestyle=(0, (4, 3)), zorder=0)
        axes.annotate(
            name, (value, 1.0), xycoords=("data", "axes fraction"), xytext=(0, 3), textcoords="offset points",
            ha="center", va="bottom", fontsize="small",
        )  # fmt: skip
    axes.set(xlabel=f"validation loss, {unit}", ylim=(len(bits) - 0.4, -0.6))
    axes.set_yticks(range(len(bits)), [style(row).label for row in bits])
    axes.tick_params(axis="y", length=0)
    return figure


def by_length(frame: pd.DataFrame, trained: int, unit: str) -> Figure:
    """Loss by sequence length, mean and range over seeds; a vertical line at the length that was trained.

    Panels for GAU's normalisers and for the other rows, each trained at one length or at varied length; a panel without
    a row is left out.
    """
    groups: dict[str, list[str]] = {}
    for row in dict.fromkeys(frame["row"]):
        named = row.removesuffix(VARIED).startswith(("softmax", "relu2")) and "/" not in row
        trained_at = "varied length" if row.endswith(VARIED) else "one length"
        groups.setdefault(f"{'GAU' if named else 'other rows'}, trained at {trained_at}", []).append(row)
    figure, panels = plt.subplots(
        len(groups), 1, figsize=(6.8, 3.2 * len(groups) + 0.4), sharex=True, squeeze=False, layout="constrained"
    )
    lengths = sorted(frame["length"].unique())
    for axes, (title, rows) in zip(panels[:, 0], groups.items(), strict=True):
        for row in rows:
            band(axes, frame[frame["row"] == row], "length", "bits", style(row))
        axes.axvline(trained, color=GREY, linewidth=1.1, linestyle=(0, (4, 3)), zorder=0)
        axes.set(xscale="log", ylabel=unit)
        axes.set_title(title)
        axes.set_xticks(lengths, [str(n) for n in lengths])
        axes.minorticks_off()
        axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), fontsize="small")
    panels[-1, 0].set_xlabel("tokens per sequence")
    return figure


_CURVES = ((BLUE, "o"), (VERMILION, "s"), (GREEN, "^"), (PURPLE, "D"), (ORANGE, "v"), (BLACK, "X"))


def entropy(panels: Mapping[str, Mapping[str, Mapping[int, float]]], reference: int) -> Figure:
    """Entropy against the number of keys: a panel per group of curves; log n is dotted, ``reference`` a grey line.

    Curves whose name ends in softmax_plus are solid, the others dashed.
    """
    columns = min(2, len(panels))
    figure, grid = plt.subplots(
        -(-len(panels) // columns), columns, squeeze=False, layout="constrained",
        figsize=(4.3 * columns, 3.9 * -(-len(panels) // columns)),
    )  # fmt: skip
    for axes in grid.flat[len(panels) :]:
        axes.remove()
    for axes, (title, curves) in zip(grid.flat[: len(panels)], panels.items(), strict=True):
        lengths = sorted({n for curve in curves.values() for n in curve})
        axes.plot(lengths, np.log(lengths), color=GREY, linestyle=":", label="log n")
        for (name, curve), (colour, marker) in zip(curves.items(), _CURVES[: len(curves)], strict=True):
            dashes = "-" if name.endswith("plus") else (0, (4, 2))
            axes.plot(list(curve), list(curve.values()), color=colour, marker=marker, linestyle=dashes, label=name)
        if lengths[0] <= reference <= lengths[-1]:
            axes.axvline(reference, color=GREY, linewidth=1.0, zorder=0)
        axes.set(xscale="log", xlabel="keys n", ylabel="entropy of a row (nats)")
        axes.set_title(title)
        axes.set_xticks(lengths, [f"{n:,}" for n in lengths])
        axes.minorticks_off()
        axes.tick_params(axis="x", rotation=45)
        axes.legend(fontsize="x-small")
    return figure


def ranks(frame: pd.DataFrame) -> Figure:
    """Rank over N against the tolerance; columns: kind, size, tolerance, rank. One panel per size of the scores."""
    sizes = list(dict.fromkeys(frame["size"]))
    figure, panels = plt.subplots(1, len(sizes), figsize=(8.6, 3.6), sharey=True, layout="constrained", squeeze=False)
    looks = {"scores": (BLACK, "o"), "squares": (ORANGE, "v"), "ReLU²": (VERMILION, "^"), "softmax": (BLUE, "s")}
    for axes, size in zip(panels[0], sizes, strict=True):
        for kind, (colour, marker) in looks.items():
            mine = frame[(frame["size"] == size) & (frame["kind"] == kind)]
            axes.plot(mine["tolerance"], mine["rank"], color=colour, marker=marker, label=kind)
        axes.set(xscale="log", xlabel="tolerance", title=f"scores of size {size:g}", ylim=(0, 1.05))
    panels[0][0].set_ylabel("rank / N")
    panels[0][-1].legend()
    return figure


def costs(ratios: Mapping[str, Mapping[int, float]], printed: Mapping[str, Mapping[int, float]], ylabel: str) -> Figure:
    """A cost over that of GAU by length, by model: ours with lines, the paper's hollow and dotted."""
    figure, axes = plt.subplots(figsize=(6.4, 3.6))
    looks = {"RoFormerV1": (VERMILION, "s"), "RoFormerV2": (BLUE, "o")}
    for model, (colour, marker) in looks.items():
        ours, theirs = ratios.get(model, {}), printed.get(model, {})
        axes.plot(list(ours), list(ours.values()), color=colour, marker=marker, label=f"{model}, here")
        axes.plot(
            list(theirs), list(theirs.values()), color=colour, marker=marker, markerfacecolor="none", linestyle=":",
            label=f"{model}, Table 4",
        )  # fmt: skip
    axes.axhline(1.0, color=GREY, linewidth=1.0)
    lengths = sorted({n for of in (*ratios.values(), *printed.values()) for n in of})
    axes.set(xscale="log", xlabel="tokens per sequence", ylabel=ylabel)
    axes.set_xticks(lengths, [f"{n:,}" for n in lengths])
    axes.minorticks_off()
    axes.legend()
    return figure
