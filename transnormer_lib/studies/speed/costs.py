"""Operations and times against the length for softmax attention, 1+elu and T2: a figure that a visitor can move."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from transnormer_lib.analysis import length_growth
from transnormer_lib.analysis.arena_speed import PARTS, Part
from transnormer_lib.models.config import ClassifierHead
from transnormer_lib.models.flops import forward_flops
from transnormer_lib.show.figures import GREY, STYLE, look
from transnormer_lib.show.movable import Movable
from transnormer_lib.studies.speed.figures import short
from transnormer_lib.studies.speed.models import model
from transnormer_lib.studies.speed.results import Results
from transnormer_lib.studies.speed.runs import BLOCK, WIDTH

ROWS = ("vanilla", "linear", "transnormer-t2")
WIDTHS = (32, 64, 128, 256, 512)  # of the model, with two heads
LENGTHS = (16, 65_536)  # tokens between which the figure can be moved
_SOFTMAX, _OURS = ROWS[0], ROWS[-1]
_TICKS = (16, 128, 1024, 8192, 65_536)
_CHECKED = (1, 5, 63, 64, 65, 100, 1000, 1024, 4097, 65_536)  # lengths at which the formula is compared with the count


@dataclass(frozen=True)
class Operations:
    """Exact operations of a forward pass over N tokens.

    ``squared``·N² + ``linear``·N + ``constant`` + ``blocks``·(⌊N/w⌋·w² + (N mod w)²), w the block of DiagAttention.
    """

    squared: int
    linear: int
    constant: int
    blocks: int

    def at(self, n: int) -> int:
        """The operations for ``n`` tokens."""
        inside = n // BLOCK * BLOCK**2 + (n % BLOCK) ** 2
        return self.squared * n**2 + self.linear * n + self.constant + self.blocks * inside


@lru_cache
def operations(row: str, width: int = WIDTH) -> Operations:
    """The formula of a row, from exact counts of its model. Raises ArithmeticError if it misses a count."""
    config = model(row, max(LENGTHS), width)
    count = {
        n: forward_flops(config.model, n, head=ClassifierHead(config.classes))
        for n in (*_CHECKED, BLOCK, 2 * BLOCK, 3 * BLOCK)
    }
    whole = [count[k * BLOCK] for k in (1, 2, 3)]
    squared = Fraction(whole[2] - 2 * whole[1] + whole[0], 2 * BLOCK**2)
    per_token = Fraction(whole[1] - whole[0], BLOCK) - 3 * BLOCK * squared  # the blocks included
    constant = whole[0] - squared * BLOCK**2 - per_token * BLOCK
    # The count of one token has 1 in place of BLOCK per token of a whole block.
    blocks = (squared + per_token + constant - count[1]) / (BLOCK - 1)
    exact = (squared, per_token - blocks * BLOCK, constant, blocks)
    found = Operations(*(int(value) for value in exact))
    if any(value.denominator != 1 for value in exact) or any(found.at(n) != count[n] for n in count):
        raise ArithmeticError(f"row={row!r}, width={width}: {found} misses a count of {count}")
    return found


def fewer_from(row: str, other: str, width: int = WIDTH) -> int | None:
    """The length from which on ``row`` needs fewer operations than ``other``; None: not at the longest length."""
    fewer = [operations(row, width).at(n) < operations(other, width).at(n) for n in range(1, max(LENGTHS) + 1)]
    if not fewer[-1]:
        return None
    return 1 if all(fewer) else len(fewer) - fewer[::-1].index(False) + 1


def faster_from(results: Results, part: Part) -> str:
    """From which length on T2 is faster than softmax attention here, in words."""
    ours, softmax = results.medians(_OURS, part), results.medians(_SOFTMAX, part)
    if not set(ours) & set(softmax):
        return f"in {part} they were not measured at one length"
    found = length_growth.crossover(ours, softmax)
    if found.length is None:
        return f"in {part} it is not faster at the longest length of both, {max(set(ours) & set(softmax)):,} tokens"
    shortest = ", the fewest measured" if found.from_start else ""
    return f"in {part} it is faster from {found.length:,.0f} tokens on{shortest}"


def in_words(results: Results) -> str:
    """From which lengths on T2 needs fewer operations than softmax attention and is faster, in a sentence."""
    fewer = fewer_from(_OURS, _SOFTMAX)
    counted = "never needs fewer operations" if fewer is None else f"needs fewer operations from {fewer:,} tokens on"
    timed = "; ".join(faster_from(results, part) for part in PARTS)
    return f"{STYLE[_OURS].label} {counted} than softmax attention ({STYLE[_SOFTMAX].label}); {timed}."


def figure(results: Results) -> Figure:
    """Three panels over the length: operations of a forward pass, and the medians measured, in both parts."""
    drawn, (exact, *timed) = plt.subplots(1, 3, figsize=(9, 3), layout="constrained", sharex=True)
    timed[1].sharey(timed[0])
    lengths = np.unique(np.geomspace(*LENGTHS, 65).round().astype(int))
    for row in ROWS:
        style = STYLE[row].line() | {"zorder": 3 if row == "linear" else 2}  # its dashes lie on T2's line
        exact.loglog(lengths, [operations(row).at(int(n)) for n in lengths], **{**style, "marker": ""})
        for panel, part in zip(timed, PARTS, strict=True):
            medians = results.medians(row, part)
            panel.loglog(list(medians), [1e3 * seconds for seconds in medians.values()], **style)
            panel.set(title=f"{part}, ms", xlabel="tokens")
    if (crossing := fewer_from(_OURS, _SOFTMAX)) is not None:
        exact.axvline(crossing, color=GREY, linestyle=":", linewidth=1.2)
    exact.set(title="operations, forward pass", xlabel="tokens")
    exact.set_xticks(_TICKS, [short(n) for n in _TICKS])
    exact.minorticks_off()
    drawn.legend(*exact.get_legend_handles_labels(), loc="outside lower center", ncols=len(ROWS))
    return drawn


def movable(results: Results) -> Movable:
    """The same for a page's script, which lets a visitor change the length and the model's width."""
    data = {
        "rows": [
            look(row)
            | {
                "operations": {width: list(vars(operations(row, width)).values()) for width in WIDTHS},
                "seconds": {part: _points(results, row, part) for part in PARTS},
            }
            for row in ROWS
        ],
        "block": BLOCK,
        "widths": WIDTHS,
        "width": WIDTH,
        "lengths": LENGTHS,
        "fewer": {width: fewer_from(_OURS, _SOFTMAX, width) for width in WIDTHS},
        "parts": PARTS,
    }
    return Movable("cost", data)


def _points(results: Results, row: str, part: Part) -> Sequence[tuple[int, float]]:
    return [(n, float(f"{seconds:.5g}")) for n, seconds in sorted(results.medians(row, part).items())]
