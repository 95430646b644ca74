"""Checks on Table 7 and Section 5.3: arithmetic on the printed speeds."""

from transnormer_lib.analysis.arena_speed import PARTS, Part
from transnormer_lib.choices import VARIANTS
from transnormer_lib.papers import settings
from transnormer_lib.studies.speed import published
from transnormer_lib.studies.what_the_paper_leaves_out.register.checks import Found, check
from transnormer_lib.studies.what_the_paper_leaves_out.register.inputs import said


def speedups(part: Part) -> list[float]:
    """How many times as fast as FLASH-quad both variants are, over the lengths of Table 7."""
    return [times for row in VARIANTS for times in published.ratios(row, "flash-quad", part).values()]


@check("speed-over-flash-quad")
def speed_over_flash_quad() -> Found:
    train, infer = speedups("training"), speedups("inference")
    return Found(
        {
            "speed over FLASH-quad's in training, least and most": [min(train), max(train)],
            "in inference": [min(infer), max(infer)],
        },
        {
            "300 % faster, four times the speed, is reached at no length": max(train) < 4.0,
            "300 % of the speed is reached at some lengths only": max(train) > 3.0 > min(train),
            "150 % faster, 2.5 times the speed, is reached at every length": min(infer) >= 2.5,
        },
    )


@check("not-all-report-worse-speed")
def not_all_worse() -> Found:
    ties = [
        (f"{published.PUBLISHED[rival]} and {row}", length, part)
        for row in VARIANTS
        for rival, length, part in published.not_faster(row)
    ]
    return Found(
        {"rivals that are no slower": [f"{names}, {part} at {length // 1024}K" for names, length, part in ties]},
        {
            "there is one": bool(ties),
            "it occurs only in training at 1K": all((length, part) == (1024, "training") for _, length, part in ties),
        },
    )


@check("memory-is-gone-at-3k")
def memory_gone() -> Found:
    printed = {part: {n: published.speed("vanilla", n, part) for n in published.LENGTHS} for part in PARTS}
    return Found(
        {f"speed of the vanilla transformer by length, {part}": speeds for part, speeds in printed.items()},
        {
            "no speed is printed at 3K itself": all(speeds[3072] is None for speeds in printed.values()),
            "one is printed at 2K": all(speeds[2048] is not None for speeds in printed.values()),
        },
    )


@check("vanilla-not-slowest")
def vanilla_not_slowest() -> Found:
    slow, cells = published.slowest("vanilla")
    slower = [
        f"{published.PUBLISHED[row]}, {part}: {published.speed(row, 1024, part)}"
        for part in PARTS
        for row in published.RIVALS
        if (published.ratio("vanilla", row, 1024, part) or 0.0) > 1
    ]
    return Found(
        {"cells in which it is the slowest, and cells with a speed": [slow, cells], "slower at 1K": slower},
        {"it is not the slowest at 1K": bool(slower), "it is the slowest in half of its cells": 2 * slow == cells},
    )


@check("flash-quad-is-not-the-best-linear")
def flash_quad_not_best() -> Found:
    best = {split: published.best_linear("table_4", column) for split, column in published.SPLITS.items()}
    glue = published.best_linear("table_5", "avg")
    return Found(
        {"FLASH-quad is the best linear baseline in Table 4, by split": best, "in Table 5, by average": glue},
        {
            "on Table 4's test set it is not": not best["test"],
            "on Table 4's validation set and in Table 5 it is": best["validation"] and glue,
        },
    )


@check("speed-batch-not-named")
def speed_batch_not_named() -> Found:
    batches = said(settings.SKYFORMER, "arena", "batch")
    return Found(
        {"Skyformer's batches": batches},
        {"the named configuration has more than one batch size": len(set(batches.values())) > 1},
    )
