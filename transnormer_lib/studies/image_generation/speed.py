"""The ways to write images of Tables 1 and 2, with the same trained weights, and what their ratios come from."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch

from transnormer_lib.analysis import decoding, pixel_speed
from transnormer_lib.analysis.operation_counts import counted
from transnormer_lib.analysis.pixel_speed import Throughput, Timing, Way
from transnormer_lib.attention import Attention
from transnormer_lib.data.pixels import VALUES
from transnormer_lib.ledger.values import significant
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.models.language_model import LanguageModel, build_model
from transnormer_lib.models.pixel_generation import with_attention
from transnormer_lib.papers.settings import said
from transnormer_lib.studies.image_generation.published import PAPER
from transnormer_lib.studies.image_generation.runs import Parameters, lsh_options

LINEAR, CACHED, SOFTMAX = "linear, recurrent", "softmax, cached", "softmax, recomputed"
LSH_1, LSH_4 = "lsh-1, recomputed", "lsh-4, recomputed"
WAYS = (LINEAR, CACHED, SOFTMAX, LSH_1, LSH_4)
SPARE = 256  # positions beyond the longest image, because every timed pixel moves a state on by one


def ways(
    model: LanguageModel,
    parameters: Parameters,
    longest: int,
    batches: Sequence[int],
    lsh_longest: int,
    device: str = "cpu",
) -> dict[str, Way]:
    """The ways to write images of up to ``longest`` values with the weights of ``model``, all in the same batches.

    The clock does not see what a model has learned, and the three mechanisms have the same weights, so they are read
    with each in turn. LSH, the slowest, is timed up to ``lsh_longest`` values. Raises ValueError for the device cuda
    where there is none.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("speed_device='cuda': there is no GPU; use 'cpu'")
    room, sizes = longest + SPARE, tuple(batches)

    def read_with(mechanism: str, **options: object) -> LanguageModel:
        return with_attention(model, mechanism, room, **options).to(device)

    softmax = read_with("softmax")
    found = {LINEAR: Way(read_with("linear"), False, sizes), CACHED: Way(softmax, False, sizes)}
    found[SOFTMAX] = Way(softmax, True, sizes)
    for way, row in ((LSH_1, "lsh-1"), (LSH_4, "lsh-4")):
        found[way] = Way(read_with("reformer", **lsh_options(row, parameters)), True, sizes, lsh_longest - 1)
    return found


def positions(lengths: Sequence[int]) -> list[int]:
    """Where a pixel is timed: at the start, in the middle of the shortest image, and at the end of every length."""
    ends = [length - 1 for length in sorted(lengths)]
    return sorted({1, ends[0] // 2, *ends})


def measure(
    found: Mapping[str, Way], lengths: Sequence[int], *, memory: float, rounds: int, repeats: int
) -> list[Timing]:
    """Time the ways. Every batch is tried at the shortest length; the ways without a cache go on with the best one."""
    places = positions(lengths)
    return pixel_speed.timings(found, places, memory=memory, rounds=rounds, repeats=repeats, settle=min(lengths) - 1)


@dataclass(frozen=True)
class Factors:
    """How many times faster linear attention writes than softmax attention without a cache, and why: per round.

    In the smallest batch that all three ways were timed in, the lead is ``cache`` × ``recurrence``. In the batch that
    suits each best it is ``whole``, by the factor ``batch``: what linear attention gains by its own over what softmax
    attention gains.
    """

    cache: tuple[float, ...]  # softmax with a cache over softmax without one
    recurrence: tuple[float, ...]  # linear over softmax with a cache
    batch: tuple[float, ...]  # the gain of linear over the gain of softmax without a cache
    batches: Mapping[str, int]  # of each way, the best
    gains: Mapping[str, tuple[float, ...]]  # of each way: its best batch over the smallest one

    @property
    def whole(self) -> tuple[float, ...]:
        return tuple(a * b * c for a, b, c in zip(self.cache, self.recurrence, self.batch, strict=True))

    def medians(self) -> dict[str, float]:
        """The median of each factor over the rounds, by name."""
        return {name: median(getattr(self, name)) for name in ("cache", "recurrence", "batch", "whole")}


def factors(times: Sequence[Timing], pixels: int) -> Factors:
    """The factors at one length. Raises ValueError where no batch was timed in all three ways."""
    ways_ = (LINEAR, CACHED, SOFTMAX)
    best = pixel_speed.throughputs(times, pixels)
    for batch in sorted({timing.batch for timing in times}):
        same = pixel_speed.throughputs(times, pixels, batch)
        if same.keys() >= set(ways_):
            break
    else:
        raise ValueError(f"pixels={pixels}: no batch was timed in all of {', '.join(ways_)}")
    gains = {way: _over(best[way], same[way]) for way in ways_}
    return Factors(
        _over(same[CACHED], same[SOFTMAX]),
        _over(same[LINEAR], same[CACHED]),
        tuple(a / b for a, b in zip(gains[LINEAR], gains[SOFTMAX], strict=True)),
        {way: best[way].batch for way in ways_},
        gains,
    )


def factor_lines(of: Mapping[int, Factors]) -> list[dict[str, object]]:
    """One line per length: the three factors, their product, and each way's batch with what it gains by it."""
    lines: list[dict[str, object]] = []
    for pixels, found in of.items():
        line: dict[str, object] = {"values per image": pixels}
        line |= {name: significant(value, 3) for name, value in found.medians().items()}
        for way, batch in found.batches.items():
            line[f"batch of {way}"] = f"{batch}, {significant(median(found.gains[way]), 2)} times"
        lines.append(line)
    return lines


def table(times: Sequence[Timing], lengths: Sequence[int]) -> list[dict[str, object]]:
    """Per length and way: the best batch, images per second, and how many times softmax without a cache."""
    lines: list[dict[str, object]] = []
    for pixels in lengths:
        best = pixel_speed.throughputs(times, pixels)
        for way in (way for way in WAYS if way in best):
            times_softmax = _over(best[way], best[SOFTMAX])
            lines.append(
                {
                    "values per image": pixels,
                    "way": way,
                    "images at once": best[way].batch,
                    "images per second": significant(median(best[way].per_round), 3),
                    "times softmax, recomputed": f"{significant(median(times_softmax), 3)} "
                    f"({significant(min(times_softmax), 3)} to {significant(max(times_softmax), 3)})",
                }
            )
    return lines


def seconds_per_image(times: Sequence[Timing], way: str, pixels: int) -> tuple[float, ...] | None:
    """Of a way at its best batch, per round; None where it was not timed so far."""
    best = pixel_speed.throughputs(times, pixels)
    return tuple(1.0 / one for one in best[way].per_round) if way in best else None


def leads(times: Sequence[Timing], pixels: int) -> dict[str, tuple[float, ...]]:
    """How many times as many images per second linear attention writes as every other way, per round."""
    best = pixel_speed.throughputs(times, pixels)
    return {way: _over(best[LINEAR], best[way]) for way in WAYS if way in best and way != LINEAR}


def step_seconds(times: Sequence[Timing], way: str, batch: int | None = None) -> dict[int, tuple[float, ...]]:
    """Seconds of one pixel by position, per round, at ``batch`` or at the largest batch that was timed everywhere."""
    mine = [timing for timing in times if timing.way == way and batch in (None, timing.batch)]
    everywhere = max(len(timing.seconds) for timing in mine)
    return dict(max((t for t in mine if len(t.seconds) == everywhere), key=lambda t: t.batch).seconds)


def _over(one: Throughput, other: Throughput) -> tuple[float, ...]:
    return tuple(a / b for a, b in zip(one.per_round, other.per_round, strict=True))


def lead_of(
    model: LanguageModel,
    parameters: Parameters,
    lengths: Sequence[int],
    batches: Sequence[int],
    device: str,
    **given: Any,
) -> tuple[float, ...]:
    """The lead over softmax without a cache at the longest of ``lengths``, with the weights and layers of ``model``.

    ``given`` as in :func:`measure`.
    """
    every = ways(model, parameters, max(lengths), batches, 0, device)
    return leads(measure({way: every[way] for way in (LINEAR, SOFTMAX)}, lengths, **given), max(lengths))[SOFTMAX]


def numbers_held(way: Way, position: int) -> int:
    """The numbers that a way with a state or a cache holds per image after ``position`` values, spare room included."""
    device = next(way.model.parameters()).device
    with torch.no_grad():
        _, states = way.model.read(torch.zeros(1, position, dtype=torch.int64, device=device))
    return decoding.state_numbers(states, 1)


def printed_bytes() -> dict[str, int]:
    """Bytes held for one MNIST image in the model of Section 4.2.1, at the image's end, in float32."""
    layers, heads, dim, length = (
        said(PAPER, "Section 4.2.1", "mnist", name) for name in ("layers", "heads", "dim", "length")
    )

    def held(mechanism: str) -> int:
        config = ModelConfig(
            "decoder", VALUES, length, dim, heads, (mechanism,) * layers, tied=False, logistics=1, positions="none"
        )
        return Way(build_model(config, 0), False, (1,)).state_bytes(length)

    return {LINEAR: held("linear"), CACHED: held("softmax")}


def attention_powers(model: LanguageModel, near: int = 512) -> dict[str, float]:
    """The power of the position by which the operations of the attention for one more pixel grow, per way.

    Operations of one layer are counted at ``near`` and twice as many values.
    """

    def one_pixel(mechanism: str, position: int, recompute: bool) -> Callable[[], object]:
        options = {"impl": "reference"} if recompute else {}
        attention = with_attention(model.cpu(), mechanism, 2 * near + SPARE, **options).stack()[0].mechanisms[0]
        heads, dim = model.config.heads, model.config.head_dim
        q = torch.randn(1, heads, position, dim, generator=torch.Generator().manual_seed(0))
        assert isinstance(attention, Attention)
        if recompute:
            return partial(attention, q, q, q)
        state = attention.prefill(q[:, :, :-1], q[:, :, :-1], q[:, :, :-1])[1]
        return partial(attention.step, q[:, :, -1], q[:, :, -1], q[:, :, -1], state)

    kinds = {LINEAR: ("linear", False), CACHED: ("softmax", False), SOFTMAX: ("softmax", True)}
    return {
        way: math.log2(counted(one_pixel(name, 2 * near, again)) / counted(one_pixel(name, near, again)))
        for way, (name, again) in kinds.items()
    }


def growth_in_words(times: Sequence[Timing]) -> str:
    """How many times as long a pixel takes at the last position of a way as at its first, in a sentence."""
    said = []
    for way in dict.fromkeys(timing.way for timing in times):
        by_position = step_seconds(times, way)
        first, last = min(by_position), max(by_position)
        said.append(f"{way} {median(by_position[last]) / median(by_position[first]):,.1f}")
    return f"The last pixel over the first: {'; '.join(said)}."


def leads_in_words(times: Sequence[Timing], lengths: Sequence[int]) -> str:
    """How many times as many images linear attention writes as softmax with and without a cache, at both ends."""
    ends = {n: leads(times, n) for n in (min(lengths), max(lengths))}
    said = [
        f"{way} " + ", ".join(f"{median(of[way]):,.0f} at {n:,} values" for n, of in ends.items() if way in of)
        for way in (SOFTMAX, CACHED)
    ]
    return f"Linear attention's lead: over {'; over '.join(said)}."
