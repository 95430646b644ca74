"""The kernels' benchmark as a figure and a table, from the JSON of ``transnormer_kernels.bench``."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from transnormer_kernels.bench.contestants import OURS
from transnormer_kernels.bench.results import read

from transnormer_lib.show.figures import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION

# A contestant's family by the beginning of its name, special cases first; label, colour and marker of the family.
_FAMILIES = {
    "transnormer": ("this project's kernels", GREEN, "D"),
    "fla chunk, bare": ("flash-linear-attention, bare", SKY, "v"),
    "fla fused chunk, bare": ("flash-linear-attention, bare", SKY, "v"),
    "fla recurrent, bare": ("flash-linear-attention, bare", SKY, "v"),
    "fla ": ("flash-linear-attention", BLUE, "^"),
    "SDPA softmax": ("PyTorch's softmax attention", BLACK, "o"),
    "SDPA": ("fused attention in blocks", PURPLE, "s"),
    "flash-attn": ("fused attention in blocks", PURPLE, "s"),
    "FlexAttention": ("FlexAttention", ORANGE, "P"),
    "compiled": ("torch.compile", VERMILION, "X"),
    "eager": ("eager PyTorch", GREY, "h"),
}


_EVEN = 0.01  # a difference that is none: clocks drift by as much within a run


def rows(result: Mapping[str, Any]) -> pd.DataFrame:
    """One row per contestant that was timed: case, contestant, family, status, median_us, times_floor, of_floor, error.

    ``error`` is the one nearest to its bound, missing where an output is missing or not finite.
    """
    found = [
        {
            "case": case["name"],
            "contestant": row["name"],
            "family": _family(row["name"])[0],
            "status": row["status"],
            "median_us": 1e6 * row["seconds"]["median"],
            "times_floor": row["seconds"]["median"] / case["floor_seconds"],
            "of_floor": row["of_floor"],
            "error": row["errors"][row["worst"]],
        }
        for case in result["cases"]
        for row in case["rows"]
        if row["status"] in ("measured", "wrong")
    ]
    columns = ["case", "contestant", "family", "status", "median_us", "times_floor", "of_floor", "error"]
    return pd.DataFrame(found, columns=columns)


def speed(result: Mapping[str, Any]) -> Figure:
    """Median time of every contestant over the memory floor, by case; a cross marks wrong results.

    Raises ValueError if nothing was timed.
    """
    import seaborn as sns  # here, because it takes seconds and only a committed benchmark is drawn with it

    timed = rows(result)
    if timed.empty:
        raise ValueError("result: nothing in it was timed, so there is nothing to draw")
    cases = list(dict.fromkeys(timed.case))
    families = list(dict.fromkeys(name for name, _, _ in _FAMILIES.values()))
    looks = {name: (colour, marker) for name, colour, marker in _FAMILIES.values()}
    figure, axes = plt.subplots(figsize=(7.4, 1.3 + 0.36 * len(cases)))
    timed["place"] = timed.case.map(cases.index)
    right, wrong = timed[timed.status == "measured"], timed[timed.status == "wrong"]
    shown = [name for name in families if name in set(right.family)]
    if not right.empty:
        sns.scatterplot(
            right, x="times_floor", y="place", hue="family", style="family", hue_order=shown, style_order=shown,
            palette={name: looks[name][0] for name in shown}, markers={name: looks[name][1] for name in shown},
            s=46, ax=axes, zorder=3,
        )  # fmt: skip
    if not wrong.empty:
        axes.scatter(wrong.times_floor, wrong.place, marker="x", color=GREY, label="computes something wrong", zorder=3)
    axes.axvline(1.0, color=BLACK, linewidth=1.0)
    axes.set_xscale("log")
    axes.set_yticks(range(len(cases)), cases)
    axes.set_ylim(len(cases) - 0.5, -0.5)
    axes.grid(axis="y", linewidth=0.4)
    axes.set(xlabel="time / time in which this machine copies the fewest bytes possible", ylabel="")
    axes.set_title(f"{result['device']}, {result['date'][:10]}{', quick: no result' if result['quick'] else ''}")
    axes.legend(title=None, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def beside(result: Mapping[str, Any]) -> pd.DataFrame:
    """This project's kernel in each case beside the fastest other that computes the same, and softmax attention.

    Times are medians in µs; a row of a contestant with a wrong result does not count. A case in which this project's
    own was not timed, or is wrong, has no number for it.
    """
    found = []
    for case in result["cases"]:
        medians = {row["name"]: 1e6 * row["seconds"]["median"] for row in case["rows"] if row["status"] == "measured"}
        same = {row["name"] for row in case["rows"] if row.get("computes") == {}} & medians.keys()
        ours = medians.get(OURS, math.nan)
        rival = min(same - {OURS}, key=medians.__getitem__, default=None)
        found.append(
            {
                "case": case["name"],
                "this project, µs": ours,
                "% of memory speed": 1e8 * case["floor_seconds"] / ours,
                "fastest other": rival,
                "its µs": medians.get(rival),
                "times as fast as it": medians[rival] / ours if rival else None,
                "softmax attention, µs": medians.get("SDPA softmax"),
            }
        )
    return pd.DataFrame(found)


def kept(folder: Path) -> dict[str, dict[str, Any]]:
    """The results in ``folder`` by file name without its ending, sorted."""
    paths = sorted(folder.glob("kernels-*.json"))
    if not paths:
        return {}
    return {path.stem: read(path) for path in paths}


def in_words(result: Mapping[str, Any]) -> str:
    """How much of the floor's speed this project's kernel reaches, by case."""
    timed = rows(result)
    ours = timed[timed.contestant.str.startswith("transnormer") & (timed.status == "measured")]
    shares = [f"{row.case}: {100 * row.of_floor:.0f}%" for row in ours.itertuples()]
    return "This project's kernels, percent of memory speed. " + "; ".join(shares) + "."


def beaten(result: Mapping[str, Any]) -> str:
    """In how many cases this project's kernel is faster than every other that computes the same, by more than 1%, and
    in which it is as fast, slower, or was not timed with a right result.
    """
    pairs = beside(result).dropna(subset="fastest other")
    ratio = pairs["times as fast as it"]
    said = [f"Faster than all others that compute the same in {(ratio > 1 + _EVEN).sum()} of {len(pairs)} cases"]
    for words, these in (
        ("as fast in", (ratio - 1).abs() <= _EVEN),
        ("slower in", ratio < 1 - _EVEN),
        ("without a right result in", ratio.isna()),
    ):
        names = [f"{case} ({other})" for case, other in pairs.loc[these, ["case", "fastest other"]].to_numpy()]
        said += [f"{words} {', '.join(names)}"] if names else []
    return "; ".join(said) + "."


def machine(result: Mapping[str, Any]) -> str:
    """Where and with what a result was measured, and without what."""
    names = [f"{name} {version}" for name, version in result["versions"].items() if version]
    missing = [name for name, version in result["versions"].items() if not version]
    without = f"; not installed: {', '.join(missing)}" if missing else ""
    quick = " A quick run, whose times are no result." if result["quick"] else ""
    return f"{result['device']}, driver {result['driver']}, {result['date'][:10]}: {', '.join(names)}{without}.{quick}"


def reached(result: Mapping[str, Any]) -> str:
    """From which to which share of the floor's speed this project's kernels reach over the cases."""
    timed = rows(result)
    ours = timed[timed.contestant.str.startswith("transnormer") & (timed.status == "measured")]
    if ours.empty:
        return "This project's kernels were not timed."
    low, high = ours.loc[ours.of_floor.idxmin()], ours.loc[ours.of_floor.idxmax()]
    return (
        f"This project's kernels reach {100 * low.of_floor:.0f}% ({low.case}) to {100 * high.of_floor:.0f}% "
        f"({high.case}) of its speed."
    )


def _family(contestant: str) -> tuple[str, str, str]:
    for beginning, family in _FAMILIES.items():
        if contestant.startswith(beginning):
            return family
    return "others", GREY, "."
