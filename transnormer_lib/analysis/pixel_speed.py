"""How fast a model writes images: the time of one more pixel at several positions, added up over an image.

Four ways to write: ``recurrent`` (linear attention as an RNN), ``cached`` (softmax attention with its keys and values
kept), and ``recomputed`` (the whole prefix read for every pixel, as the paper's baselines do; softmax or LSH). The cost
of a pixel depends on its position alone, so a few positions give the curve, and its integral the time of an image of
any length. Shapes: B images.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from transnormer_lib.analysis.interleaved import interleaved
from transnormer_lib.attention.recurrent import repeated
from transnormer_lib.checks import check_count, check_distinct, check_positive
from transnormer_lib.models.language_model import LanguageModel, ModelState
from transnormer_lib.models.pixel_generation import head_of
from transnormer_lib.models.stepper import Stepper
from transnormer_lib.progress import tracked

_BYTES = 4  # float32
# Pixels that a way with a state or a cache writes in a turn. Writing goes on from pixel to pixel, with the state in the
# processor's caches; a single one would be timed with what the other ways have left there.
PER_TURN = 8


@dataclass(frozen=True)
class Way:
    """One way to write images, and the batches in which it is timed."""

    model: LanguageModel
    recompute: bool
    batches: tuple[int, ...]
    longest: int | None = None  # the last position that is timed; None: every one

    def last(self, positions: Sequence[int]) -> int:
        """The last of the positions at which it is timed."""
        return max((p for p in positions if self.longest is None or p <= self.longest), default=0)

    def fits(self, position: int, memory: float) -> list[int]:
        """The batches that are timed at a position."""
        if self.longest is not None and position > self.longest:
            return []
        return [batch for batch in self.batches if self.bytes_at(position, batch) <= memory]

    def bytes_at(self, position: int, batch: int) -> int:
        """What is held between two pixels (a state or a cache), or while the prefix is read (its widest layer)."""
        config = self.model.config
        if self.recompute:
            return _BYTES * batch * position * max(config.hidden_width, 4 * config.dim)
        return batch * self.state_bytes(position)

    def state_bytes(self, position: int) -> int:
        """Of one image, without the spare room of a cache."""
        total = 0
        for block in self.model.stack():
            for mechanism in block.mechanisms:
                for shape in mechanism.state_shapes().values():
                    total += math.prod(position if size < 0 else size for size in (*mechanism.state_leading, *shape))
        return _BYTES * total


@dataclass(frozen=True)
class Timing:
    """Seconds of one pixel of each image of a batch, by position, one per round."""

    way: str
    batch: int
    seconds: Mapping[int, tuple[float, ...]]

    def image_seconds(self, pixels: int, round_: int) -> float | None:
        """Seconds per image of ``pixels`` values in one round; None where it was not timed so far.

        The integral of the curve through the measured positions (piecewise cubic and monotone: Fritsch and Carlson).
        """
        from scipy.interpolate import PchipInterpolator

        places = sorted(self.seconds)
        if len(places) < 2 or places[-1] < pixels - 1:
            return None
        curve = PchipInterpolator(places, [self.seconds[place][round_] for place in places])
        before = self.seconds[places[0]][round_] * places[0]  # pixels before the first place cost as much as it
        return float(before + curve.integrate(places[0], pixels - 1)) / self.batch


@torch.no_grad()
def timings(
    ways: Mapping[str, Way],
    positions: Sequence[int],
    *,
    memory: float,
    rounds: int = 5,
    repeats: int = 3,
    settle: int | None = None,
) -> list[Timing]:
    """Time one pixel of every way, batch and position, in turns, where it needs no more than ``memory`` bytes.

    In a turn a way with a state or a cache writes :data:`PER_TURN` pixels one after the other, whose mean counts.

    Beyond the position ``settle`` a way that recomputes, whose time grows with the batch, keeps one batch: the smallest
    whose time per image, at the last position before, is at most a tenth above the shortest, of those that fit to its
    end. The models must be on one device. Raises ValueError for counts below 1, equal positions, memory that is not
    positive, and a position from which a model cannot write as many pixels as are timed.
    """
    check_positive("memory", memory)
    check_count("rounds", rounds)
    check_distinct("positions", positions)
    last = max(positions) + PER_TURN * (rounds * repeats + 1)  # the first call of each is not timed
    for name, way in ways.items():
        room = way.model.config.max_length
        if not way.recompute and last > room and way.fits(max(positions), memory):
            raise ValueError(f"positions={max(positions)}: {name} would write up to {last}, its max_length is {room}")
    found: dict[tuple[str, int], dict[int, tuple[float, ...]]] = {}
    before = max((p for p in positions if settle is not None and p <= settle), default=None)
    for position in tracked(sorted(positions), "position", sorted(positions)):
        calls: dict[tuple[str, int], Callable[[], object]] = {}
        for name, way in ways.items():
            fitting = way.fits(position, memory)
            if fitting and way.recompute and before is not None and position > before:
                fitting = _settled(name, way, found, before, way.last(positions), memory)
            if way.recompute:
                calls |= {(name, batch): _reader(way.model, position, batch) for batch in fitting}
            else:
                calls |= _writers(name, way.model, position, fitting, PER_TURN)
        named = {f"{name} {batch}": (name, batch) for name, batch in calls}
        if not calls:
            continue
        turns = {label: calls[key] for label, key in named.items()}
        wait = _wait(ways.values())
        for label, values in interleaved(turns, rounds=rounds, repeats=repeats, wait=wait).items():
            pixels = 1 if ways[named[label][0]].recompute else PER_TURN
            found.setdefault(named[label], {})[position] = tuple(value / pixels for value in values)
    return [Timing(name, batch, by) for (name, batch), by in found.items()]


def _settled(
    name: str,
    way: Way,
    found: Mapping[tuple[str, int], Mapping[int, Sequence[float]]],
    at: int,
    last: int,
    memory: float,
) -> list[int]:
    """The batch that a way keeps, as a list; empty where it is not timed beyond ``at``, or none fits to ``last``."""
    each = {batch: median(found[name, batch][at]) / batch for batch in way.fits(last, memory) if (name, batch) in found}
    return [min(batch for batch in each if each[batch] <= 1.1 * min(each.values()))] if each and last > at else []


def _wait(ways: Iterable[Way]) -> Callable[[], object]:
    """What returns when the work of the models' device is done."""
    on_gpu = any(next(way.model.parameters()).is_cuda for way in ways)
    return torch.cuda.synchronize if on_gpu else lambda: None


def _random_ids(model: LanguageModel, batch: int, length: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    ids_BN = torch.randint(model.config.vocab_size, (batch, length), generator=generator)
    return ids_BN.to(next(model.parameters()).device)


def _reader(model: LanguageModel, position: int, batch: int) -> Callable[[], object]:
    ids_BN = _random_ids(model, batch, position)
    return lambda: head_of(model).mixtures(model.hidden(ids_BN)[:, -1]).draw()


class _Writer:
    """Writes on from a state; every call is ``pixels`` more pixels of each image."""

    def __init__(self, model: LanguageModel, states: ModelState, ids_B: Tensor, pixels: int) -> None:
        self.stepper, self.head, self.states, self.ids_B = Stepper(model), head_of(model), states, ids_B
        self.pixels = pixels

    def __call__(self) -> None:
        for _ in range(self.pixels):
            hidden_BD, self.states = self.stepper.advance(self.ids_B, self.states)
            self.ids_B = self.head.mixtures(hidden_BD).draw()


def _writers(
    name: str, model: LanguageModel, position: int, batches: Sequence[int], pixels: int = 1
) -> dict[tuple[str, int], Callable[[], object]]:
    """The prefix of one image, read once; every batch begins with copies of its state."""
    if not batches:
        return {}
    _, one = model.read(_random_ids(model, 1, position))
    made: dict[tuple[str, int], Callable[[], object]] = {}
    for batch in batches:
        states = [repeated(state, batch) for state in one]
        made[name, batch] = _Writer(model, states, _random_ids(model, batch, 1)[:, 0], pixels)
    return made


@torch.no_grad()
def along(
    way: Way, positions: Sequence[int], batch: int, *, rounds: int = 9, repeats: int = 5
) -> list[dict[int, float]]:
    """Per round, the seconds of one pixel at every position, where the positions take turns.

    So a drift of the machine affects all positions alike. Only for a way whose state does not grow, because all
    positions are in memory together. Raises ValueError for another way and for counts below 1.
    """
    if way.recompute or way.state_bytes(1) != way.state_bytes(2):
        raise ValueError("way: its memory grows with the position")
    calls: dict[str, Callable[[], object]] = {}
    for position in positions:
        ((_, writer),) = _writers("", way.model, position, [batch]).items()
        calls[str(position)] = writer
    seconds = interleaved(calls, rounds=rounds, repeats=repeats, wait=_wait([way]))
    return [{int(position): values[number] for position, values in seconds.items()} for number in range(rounds)]


@dataclass(frozen=True)
class Throughput:
    """Images per second of a way at one length: one value per round, with the batch that gave the most."""

    way: str
    pixels: int
    batch: int
    per_round: tuple[float, ...]


def throughputs(times: Sequence[Timing], pixels: int, batch: int | None = None) -> dict[str, Throughput]:
    """Per way, images per second at ``pixels`` values, in ``batch`` or in the best batch that was timed so far."""
    best: dict[str, Throughput] = {}
    for timing in times:
        rounds = len(next(iter(timing.seconds.values())))
        seconds = [timing.image_seconds(pixels, number) for number in range(rounds)]
        if None in seconds or (batch is not None and timing.batch != batch):
            continue
        made = Throughput(timing.way, pixels, timing.batch, tuple(1.0 / one for one in seconds if one))
        if timing.way not in best or median(made.per_round) > median(best[timing.way].per_round):
            best[timing.way] = made
    return best
