"""What Table 6 says by itself: its averages, and the sentences of Section 5.2 about it."""

import math
from typing import Any

from transnormer_lib.choices import VARIANTS
from transnormer_lib.studies.common.published import number

# Rows of Table 6 by our names.
PUBLISHED = {
    "vanilla": "Transformer",
    "kernelized": "Kernelized Attention",
    "nystromformer": "Nystromformer",
    "linformer": "Linformer",
    "informer": "Informer",
    "performer": "Performer",
    "reformer": "Reformer",
    "bigbird": "BigBird",
    "skyformer": "Skyformer",
    "transformer-ls": "LS",
    "cosformer": "cosFormer",
    "flash-quad": "FLASH-quad",
    "flash": "FLASH",
    "transnormer-t1": "TransNormer T1",
    "transnormer-t2": "TransNormer T2",
}

# The tasks of the Long Range Arena: columns of Table 6.
TASKS = ("text", "listops", "retrieval", "pathfinder", "image")


def table_6(row: str, column: str) -> float:
    """What Table 6 prints for a row, by our name for it, in percent: a task, or ``avg``."""
    return number("table_6", column, model=PUBLISHED[row])


def averages_off() -> dict[str, float]:
    """The printed average minus the mean of the five columns, by row."""
    return {row: table_6(row, "avg") - math.fsum(table_6(row, task) for task in TASKS) / 5 for row in PUBLISHED}


def places_in_table_6() -> dict[str, dict[str, int]]:
    """The ranks of T1 and T2 in each column of Table 6, the average included: 1 is the highest score."""
    return {
        row: {
            column: 1 + sum(table_6(other, column) > table_6(row, column) for other in PUBLISHED)
            for column in (*TASKS, "avg")
        }
        for row in VARIANTS
    }


def section_5_2() -> dict[str, Any]:
    """The sentences of Section 5.2 on Table 6, recomputed from the table as printed.

    - ``one_of_two``: in every task at least one of the two variants is first or second.
    - ``t1``, ``t2``: in every task that variant is.
    - ``averages``: both averages are above those of all other methods.
    - ``lead``: each variant's average minus the best other one, in points.
    """
    ranks = places_in_table_6()
    best_other = max(table_6(row, "avg") for row in PUBLISHED if row not in VARIANTS)
    return {
        "one_of_two": all(min(ranks[row][task] for row in VARIANTS) <= 2 for task in TASKS),
        **{row[-2:]: all(ranks[row][task] <= 2 for task in TASKS) for row in VARIANTS},
        "averages": all(table_6(row, "avg") > best_other for row in VARIANTS),
        "lead": {row: round(table_6(row, "avg") - best_other, 2) for row in VARIANTS},
    }


def highest_averages() -> str:
    """The averages of T1 and T2 with their ranks, and the best other method's, in a sentence."""
    ranks = places_in_table_6()
    ours = [f"{PUBLISHED[row]} {table_6(row, 'avg'):.2f} (rank {ranks[row]['avg']})" for row in VARIANTS]
    others = {row: table_6(row, "avg") for row in PUBLISHED if row not in VARIANTS}
    best = max(others, key=others.__getitem__)
    return f"{' and '.join(ours)}; the best other method, {PUBLISHED[best]}, has {others[best]:.2f}."
