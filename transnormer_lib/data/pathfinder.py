"""Pathfinder of the Long Range Arena (Tay et al. 2021), generated: are two marked ends connected?

An image shows two long snakes of dashes, some short distractors, and two discs: one on the start of a snake, one on the
end of the same snake (label 1) or of the other (label 0). The parameters are those of google-research/long-range-arena
for Pathfinder32, "hard" (lra_benchmarks/data/pathfinder.py at cd31e5c), with the meaning they have in
drewlinsley/pathfinder (snakes2.py):

- A snake is a chain of joints. The next dash begins ``paddle_margin`` after a joint, in a direction rotated by δ with
  probability proportional to cos² min(``continuity`` · δ, π/2), and is ``paddle_length`` long; the next joint is
  ``paddle_margin`` after its end. Joints and ends of dashes are rounded to pixels.
- A dash covers no pixel within ``paddle_margin`` of the border or of another dash, except its neighbours on the snake.
  A long snake that cannot continue is given up together with its partner; a short one is tried five times.
- The long snakes begin near the centre, ``seed_distance`` apart.
- Contrasts are the original's: short snakes are brighter than long ones (2 against 2 · 0.75; a dash is half a pixel
  wide), and each image is scaled by its brightest pixel.

Differences from the original: coordinates are rounded to the nearest pixel (there heads down and joints up); a pixel is
free or not (there it can be partly free, because masks are smoothed), so dashes of two snakes never touch (thicker
ones need a margin above 1); a snake is given up if no direction is free (there after three draws); dashes are drawn by
the area they cover (there by Lanczos resampling, which leaves faint rings).
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transnormer_lib.checks import check_count, check_positive
from transnormer_lib.data.chunks import in_chunks

_CHUNK = 256  # images per chunk, all of which grow at once
_TRIALS = 5  # per distractor
_PATIENCE, _RAREST = 1 << 13, 1e-3  # after this many pairs of snakes, refuse settings that fit a smaller share of them
_FINE = 16  # points per pixel, along each axis, at which coverage is measured
_CONTRAST = 2.0  # of a distractor; that of a disc is 1


@dataclass(frozen=True)
class SceneConfig:
    """The content of an image; lengths in pixels. The defaults are Pathfinder32, contour length 14."""

    size: int = 32
    contour_length: int = 14  # dashes of a long snake
    distractor_length: int = 14 // 3  # dashes of a short one
    distractors: int = 20 // (14 // 3)
    paddle_length: int = 2
    paddle_thickness: float = 0.5
    paddle_margin: int = 1
    padding: int = 1  # width of the image's empty border
    marker_radius: float = 1.5
    seed_distance: int = 7
    continuity: float = 1.0  # larger values make straighter snakes
    paddle_contrast: float = 0.75  # of a long snake, relative to a short one

    def __post_init__(self) -> None:
        for name in ("distractor_length", "paddle_length", "paddle_margin", "padding", "seed_distance"):
            check_count(name, getattr(self, name))
        check_count("contour_length", self.contour_length, 2)
        check_count("distractors", self.distractors, 0)
        for name in ("paddle_thickness", "marker_radius", "continuity", "paddle_contrast"):
            check_positive(name, getattr(self, name))
        if self.size < 4 * self.seed_distance + 1:
            raise ValueError(f"size={self.size!r}: must exceed four times seed_distance={self.seed_distance}")


@dataclass(frozen=True)
class Scenes:
    """n images and their content. Points are (row, column) in pixels; pixel centres are whole numbers."""

    images: NDArray[np.uint8]  # [n, size, size], 0 black
    labels: NDArray[np.int64]  # [n], 1: the discs are on one snake
    snakes: NDArray[np.float32]  # [n, 2, contour_length, 2, 2]: start and end of the dashes of the long snakes
    distractors: NDArray[np.float32]  # [n, distractors, distractor_length, 2, 2], NaN if none fitted
    markers: NDArray[np.float32]  # [n, 2, 2]: the disc at a start, the disc at an end


def parts(
    count: int, seed: int, config: SceneConfig | None = None, *, workers: int | None = None
) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    """``count`` images [n, size, size] with their labels [n], in parts of n to save memory.

    The result depends only on ``seed`` and ``config``, not on ``workers`` (processes; default: one per core); fewer
    images of a seed are the first of more. Use a different seed for every split. Raises ValueError if a number is out
    of range, or two such snakes almost never fit into the image.
    """
    return in_chunks(partial(_labelled, config or SceneConfig()), count, _CHUNK, seed, workers)


def scenes(count: int, seed: int, config: SceneConfig | None = None) -> Scenes:
    """The images of :func:`parts` with the positions of their content, made in this process."""
    made = list(in_chunks(partial(_scenes, config or SceneConfig()), count, _CHUNK, seed, workers=1))
    arrays: list[Any] = [np.concatenate([getattr(part, field.name) for part in made]) for field in fields(Scenes)]
    return Scenes(*arrays)


def _labelled(config: SceneConfig, rng: np.random.Generator, needed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    made = _scenes(config, rng, needed)
    return made.images, made.labels


def _scenes(config: SceneConfig, rng: np.random.Generator, needed: int) -> Scenes:
    stencils = _stencils(config)
    boards, pairs = _two_snakes(stencils, rng)
    short = [_distractor(stencils, boards, rng) for _ in range(config.distractors)]
    labels = rng.integers(0, 2, _CHUNK)
    first = rng.integers(0, 2, _CHUNK)  # the snake whose start is marked
    rows = np.arange(_CHUNK)
    snakes = np.stack([stencils.dashes(snake) for snake in pairs], axis=1)
    starts, ends = snakes[rows, first, 0, 0], snakes[rows, np.where(labels == 1, first, 1 - first), -1, 1]
    markers = np.stack([starts.round(), ends], axis=1)

    inked = np.zeros((_CHUNK, stencils.width**2), np.float32)
    for snake in pairs:
        stencils.draw(inked, snake, _CONTRAST * config.paddle_contrast)
    for snake in short:
        stencils.draw(inked, snake, _CONTRAST)
    image = inked.reshape(_CHUNK, stencils.width, stencils.width)[:, stencils.inside, stencils.inside]
    image = np.maximum(image, _discs(markers, config))
    image *= 255 / image.max(axis=(1, 2), keepdims=True)
    distractors = np.empty((_CHUNK, config.distractors, config.distractor_length, 2, 2), np.float32)
    for i, snake in enumerate(short):
        distractors[:, i] = stencils.dashes(snake)
    everything: list[Any] = [np.rint(image).astype(np.uint8), labels, snakes, distractors, markers]
    return Scenes(*(values[:needed] for values in everything))


@dataclass(frozen=True)
class Snakes:
    """One snake on each of m boards."""

    joints: NDArray[np.int64]  # [m, dashes]: the joint before each dash, as an index into the board; -1: no snake
    directions: NDArray[np.int64]  # [m, dashes]

    def of(self, chosen: NDArray[Any]) -> "Snakes":
        return Snakes(self.joints[chosen], self.directions[chosen])


class Stencils:
    """The pixels that a dash in each of the C possible directions covers and blocks, around the joint before it.

    A board is a flat image with a frame that counts, for every pixel, the dashes too close to it; the windows around a
    joint are lists of offsets into the board. So snakes grow on many boards at once with gathers and a matrix product.
    """

    def __init__(self, config: SceneConfig) -> None:
        self.config = config
        length, margin = config.paddle_length, config.paddle_margin
        self.reach = int(np.ceil(length + 2 * margin + config.paddle_thickness / 2))
        self.width = config.size + 2 * self.reach
        self.inside = slice(self.reach, self.reach + config.size)

        circle = np.linspace(0, 2 * np.pi, 3600, endpoint=False)
        ends = np.rint((length + margin) * np.stack([np.sin(circle), np.cos(circle)], axis=1))
        self.ends = np.unique(ends, axis=0)  # [C, 2] relative to the joint; the pixels of a circle
        self.units = self.ends / np.hypot(*self.ends.T)[:, None]
        steps = np.rint((length + 2 * margin) * self.units).astype(np.int64)
        self.steps: NDArray[np.int64] = steps @ np.array([self.width, 1])  # [C] from one joint to the next

        side = np.arange(-self.reach, self.reach + 1)
        pixels = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1).reshape(-1, 2)  # [W, 2]
        window: NDArray[np.int64] = pixels @ np.array([self.width, 1])
        distance = self._distance(pixels)  # [C, W]
        clearance = margin + config.paddle_thickness / 2
        blocked = distance <= clearance
        # The offsets of each direction, repeated to the length of the longest list.
        longest = blocked.sum(axis=1).max()
        self.blocked = np.stack([np.resize(window[row], longest) for row in blocked])
        core = distance <= 0.5  # the pixels that count as covered by a dash
        self.cores = [pixels[row] + self.reach for row in core]
        covered = core.any(axis=0)
        self.covered, self.core = window[covered], core[:, covered].astype(np.float32)
        # How many pixels of a core in direction j the previous dash, in direction i, blocks; these do not count.
        self.own = np.stack(
            [self.core @ (self._distance(pixels[covered] + step)[i] <= clearance) for i, step in enumerate(steps)]
        )
        turn = np.arccos(np.clip(self.units @ self.units.T, -1, 1))
        self.turns = np.cos(np.minimum(config.continuity * turn, np.pi / 2)) ** 2
        self.turns[self.turns < 1e-12] = 0
        fine = (np.arange(_FINE) + 0.5) / _FINE - 0.5
        ink = np.mean(
            [self._distance(pixels + np.array([y, x])) <= config.paddle_thickness / 2 for y in fine for x in fine],
            axis=0,
        )
        inked = ink.any(axis=0)
        self.inked, self.ink = window[inked], ink[:, inked].astype(np.float32)

    def _distance(self, points: NDArray[Any]) -> NDArray[np.float64]:
        """[C, W]: the distance from each dash to ``points`` [W, 2]."""
        starts = self.ends - self.config.paddle_length * self.units
        relative = points - starts[:, None]
        along = np.clip((relative * self.units[:, None]).sum(axis=-1), 0, self.config.paddle_length)
        return np.linalg.norm(relative - along[..., None] * self.units[:, None], axis=-1)

    def boards(self, count: int) -> NDArray[np.uint8]:
        """Empty boards [count, width²], with a blocked frame that keeps dashes off the border."""
        board = np.ones((count, self.width, self.width), np.uint8)
        frame = self.reach + self.config.padding + self.config.paddle_margin
        board[:, frame:-frame, frame:-frame] = 0
        return board.reshape(count, -1)

    def occupied(self, boards: NDArray[np.uint8], joints: NDArray[np.int64]) -> NDArray[np.float32]:
        """[m, C]: the number of blocked pixels, with multiplicity, that a dash from the joint would cover."""
        around = np.take_along_axis(boards, joints[:, None] + self.covered, axis=1)
        return around.astype(np.float32) @ self.core.T

    def place(self, boards: NDArray[np.uint8], joints: NDArray[np.int64], directions: NDArray[np.int64]) -> None:
        """Put one dash on each board."""
        # A pixel repeated in a list counts once, because numpy reads all pixels before it writes.
        boards[np.arange(len(boards))[:, None], joints[:, None] + self.blocked[directions]] += 1

    def dashes(self, snakes: Snakes) -> NDArray[np.float32]:
        """[m, dashes, 2, 2]: start and end of each dash, in pixels of the image; NaN if there is no snake."""
        joints = np.stack(np.divmod(snakes.joints, self.width), axis=-1) - self.reach
        ends = joints + self.ends[snakes.directions]
        points = np.stack([ends - self.config.paddle_length * self.units[snakes.directions], ends], axis=-2)
        points[snakes.joints < 0] = np.nan
        return points.astype(np.float32)

    def draw(self, inked: NDArray[np.float32], snakes: Snakes, contrast: float) -> None:
        """Draw the snakes on framed images [m, width²]."""
        there = np.flatnonzero(snakes.joints[:, 0] >= 0)
        for joints, directions in zip(snakes.joints[there].T, snakes.directions[there].T, strict=True):
            at = (there[:, None], joints[:, None] + self.inked)
            inked[at] = np.maximum(inked[at], contrast * self.ink[directions])


_stencils = lru_cache(maxsize=4)(Stencils)


def _two_snakes(stencils: Stencils, rng: np.random.Generator) -> tuple[NDArray[np.uint8], list[Snakes]]:
    """Boards with two long snakes each, and the snakes."""
    made: list[tuple[NDArray[np.uint8], list[Snakes]]] = []
    found = tried = 0
    while found < _CHUNK:
        # Enough at the rate seen so far, plus a tenth, but no more than a CPU cache holds.
        attempts = int(min(max(1.1 * (_CHUNK - found) * tried / max(found, 1), 256), 4096)) if tried else 1024
        made.append(_attempts(stencils, rng, attempts))
        tried, found = tried + attempts, found + len(made[-1][0])
        if tried >= _PATIENCE and found < _RAREST * tried:
            config = stencils.config
            raise ValueError(
                f"contour_length={config.contour_length!r}: two such snakes fitted into only {found} of {tried} images "
                f"of size={config.size}"
            )
    boards, first, second = zip(*((boards, *pair) for boards, pair in made), strict=True)
    pairs = [
        Snakes(np.concatenate([of.joints for of in each]), np.concatenate([of.directions for of in each]))
        for each in (first, second)
    ]
    kept = np.arange(_CHUNK)
    return np.concatenate(boards)[kept], [pair.of(kept) for pair in pairs]


def _attempts(stencils: Stencils, rng: np.random.Generator, count: int) -> tuple[NDArray[np.uint8], list[Snakes]]:
    """The successful ones of ``count`` attempts to grow two snakes."""
    config = stencils.config
    centre = 2 * config.seed_distance
    first = rng.integers(centre, config.size - centre, (count, 2))
    angle = rng.uniform(0, 2 * np.pi, count)
    second = first + np.rint(config.seed_distance * np.stack([np.sin(angle), np.cos(angle)], axis=1)).astype(np.int64)
    boards, pair = stencils.boards(count), []
    alive = np.ones(count, bool)
    for start in (first, second):
        direction = rng.integers(0, len(stencils.ends), count)
        joint = start - np.rint(config.paddle_margin * stencils.units[direction]).astype(np.int64)
        flat = (joint + stencils.reach) @ np.array([stencils.width, 1])
        alive &= stencils.occupied(boards, flat)[np.arange(count), direction] == 0
        stencils.place(boards, flat, direction)
        pair.append(Snakes(flat[:, None], direction[:, None]))
    boards, pair = boards[alive], [snake.of(alive) for snake in pair]
    for _ in range(config.contour_length - 1):
        for i in range(2):
            pair[i], alive = _longer(stencils, boards, pair[i], rng)
            boards, pair = boards[alive], [snake.of(alive) for snake in pair]
    return boards, pair


def _longer(
    stencils: Stencils, boards: NDArray[np.uint8], snakes: Snakes, rng: np.random.Generator
) -> tuple[Snakes, NDArray[np.bool_]]:
    """Every snake with one more dash, placed on its board, and [m] whether there was room."""
    last = snakes.directions[:, -1]
    joints = snakes.joints[:, -1] + stencils.steps[last]
    free = stencils.occupied(boards, joints) == stencils.own[last]
    chances = (stencils.turns[last] * free).cumsum(axis=1)
    direction = (chances > rng.random(len(boards))[:, None] * chances[:, -1:]).argmax(axis=1)
    stencils.place(boards, joints, direction)
    longer = Snakes(np.column_stack([snakes.joints, joints]), np.column_stack([snakes.directions, direction]))
    return longer, chances[:, -1] > 0


def _distractor(stencils: Stencils, boards: NDArray[np.uint8], rng: np.random.Generator) -> Snakes:
    """One more short snake on every board that has room for it."""
    length = stencils.config.distractor_length
    made = Snakes(np.full((len(boards), length), -1), np.zeros((len(boards), length), np.int64))
    left = np.arange(len(boards))
    for _ in range(_TRIALS):
        trial = boards[left]
        direction = rng.integers(0, len(stencils.ends), left.size)
        joint, alive = _free_joint(stencils, trial, direction, rng)
        stencils.place(trial, joint, direction)
        snakes = Snakes(joint[:, None], direction[:, None])
        for _ in range(length - 1):
            snakes, room = _longer(stencils, trial, snakes, rng)
            alive &= room
        done = left[alive]
        boards[done] = trial[alive]
        made.joints[done], made.directions[done] = snakes.joints[alive], snakes.directions[alive]
        left = left[~alive]
    return made


def _free_joint(
    stencils: Stencils, boards: NDArray[np.uint8], directions: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """[m] a random joint with room for a dash in the given direction, and [m] whether there is one."""
    size, reach, width = stencils.config.size, stencils.reach, stencils.width
    free = np.empty((len(boards), size, size), bool)
    for direction in np.unique(directions):
        chosen = np.flatnonzero(directions == direction)
        framed = boards[chosen].reshape(-1, width, width)
        met = np.zeros((chosen.size, size, size), np.uint8)
        for y, x in stencils.cores[direction]:
            met |= framed[:, y : y + size, x : x + size]
        free[chosen] = met == 0
    counts = free.reshape(len(boards), size * size).cumsum(axis=1, dtype=np.int32)
    place = (counts > (rng.random(len(boards)) * counts[:, -1]).astype(np.int32)[:, None]).argmax(axis=1)
    row, column = np.divmod(place, size)
    return (row + reach) * width + column + reach, counts[:, -1] > 0


def _discs(markers: NDArray[np.float32], config: SceneConfig) -> NDArray[np.float32]:
    """[n, size, size]: the covered area of each pixel; the discs are at ``markers`` [n, 2, 2], whole pixels."""
    half = int(np.ceil(config.marker_radius + 0.5))
    fine = (np.arange((2 * half + 1) * _FINE) + 0.5) / _FINE - half - 0.5
    within = fine[:, None] ** 2 + fine**2 <= config.marker_radius**2
    disc = within.reshape(2 * half + 1, _FINE, 2 * half + 1, _FINE).mean(axis=(1, 3), dtype=np.float32)
    framed = np.zeros((len(markers), config.size + 2 * half, config.size + 2 * half), np.float32)
    side, every = np.arange(2 * half + 1), np.arange(len(markers))[:, None, None]
    for row, column in markers.transpose(1, 2, 0).astype(np.int64):
        at = (every, row[:, None, None] + side[:, None], column[:, None, None] + side)
        framed[at] = np.maximum(framed[at], disc)
    return framed[:, half:-half, half:-half]
