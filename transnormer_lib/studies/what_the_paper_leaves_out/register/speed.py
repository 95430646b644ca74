"""Checks on Table 7 and on what Section 5.3 says of it: arithmetic on the speeds as printed."""

from transnormer_lib.analysis.arena_speed import PARTS, Part
from transnormer_lib.choices import VARIANTS
from transnormer_lib.papers import settings
from transnormer_lib.studies.speed import published
from transnormer_lib.studies.what_the_paper_leaves_out.register.checks import Found, check


def speedups(part: Part) -> list[float]:
    """How many times as fast as FLASH-quad both variants are, over the lengths of Table 7."""
    return [times for row in VARIANTS for times in published.ratios(row, "flash-quad", part).values()]


@check("speed-over-flash-quad")
def speed_over_flash_quad() -> Found:
    train, infer = speedups("training"), speedups("inference")
    return Found(
        {
            "times as fast in training, least and most": [min(train), max(train)],
            "in inference": [min(infer), max(infer)],
        },
        {
            "300 % faster, four times as fast, is reached at no length": max(train) < 4.0,
            "300 % of the speed is reached at some lengths and not at others": max(train) > 3.0 > min(train),
            "150 % faster, 2.5 times as fast, is reached at every length": min(infer) >= 2.5,
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
        {"methods that are no slower": [f"{names}, {part} at {length // 1024}K" for names, length, part in ties]},
        {
            "there is one": bool(ties),
            "only in training at 1K": all((length, part) == (1024, "training") for _, length, part in ties),
        },
    )


@check("memory-is-gone-at-3k")
def memory_gone() -> Found:
    printed = {part: {n: published.speed("vanilla", n, part) for n in published.LENGTHS} for part in PARTS}
    return Found(
        {f"the vanilla transformer's speed by length, {part}": of_part for part, of_part in printed.items()},
        {
            "there is none at 3K itself": all(of_part[3072] is None for of_part in printed.values()),
            "there is one at 2K": all(of_part[2048] is not None for of_part in printed.values()),
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
        {"cells in which it is the slowest, of those it has": [slow, cells], "slower at 1K": slower},
        {"it is not the slowest at 1K": bool(slower), "it is the slowest in half of its cells": 2 * slow == cells},
    )


@check("flash-quad-is-not-the-best-linear")
def flash_quad_not_best() -> Found:
    best = {split: published.best_linear("table_4", column) for split, column in published.SPLITS.items()}
    glue = published.best_linear("table_5", "avg")
    return Found(
        {"FLASH-quad is the best linear baseline of Table 4, by split": best, "of Table 5, by average": glue},
        {
            "in Table 4, on test, it is not": not best["test"],
            "in Table 4, on validation, and in Table 5 it is": best["validation"] and glue,
        },
    )


@check("speed-batch-not-named")
def speed_batch_not_named() -> Found:
    batches = settings.said("transnormer", settings.SKYFORMER, "arena", "batch")
    return Found(
        {"Skyformer's batches": batches},
        {"the configuration that is named has more than one batch": len(set(batches.values())) > 1},
    )
