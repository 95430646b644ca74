"""Pathfinder: every label is what one finds by following the snake, and the image shows what the geometry says."""

from functools import lru_cache
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt

from transnormer_lib.data import pathfinder
from transnormer_lib.data.pathfinder import SceneConfig, Scenes

PUBLISHED = SceneConfig()


@pytest.fixture(scope="module")
def published() -> Scenes:
    return pathfinder.scenes(1024, 1)


def dashes(scenes: Scenes, index: int) -> NDArray[np.float32]:
    """[d, 2, 2]: all dashes of one image, whatever their snake."""
    every = [scenes.snakes[index].reshape(-1, 2, 2), scenes.distractors[index].reshape(-1, 2, 2)]
    together = np.concatenate(every)
    return together[~np.isnan(together).any(axis=(1, 2))]


Point = tuple[int, int]


def joints(dash: NDArray[np.float32], config: SceneConfig) -> tuple[Point, Point]:
    """The joint before a dash and the one behind it, worked out from where it lies."""
    (start, end), radius = dash, config.paddle_length + config.paddle_margin
    unit = (end - start) / np.linalg.norm(end - start)
    offset = whole_pixels(round(float(unit[0]), 3), round(float(unit[1]), 3), radius)
    step = (radius + config.paddle_margin) * np.array(offset) / np.hypot(*offset)
    before = end.round().astype(int) - offset
    behind = before + np.rint(step).astype(int)
    return (int(before[0]), int(before[1])), (int(behind[0]), int(behind[1]))


@lru_cache
def whole_pixels(down: float, right: float, radius: int) -> Point:
    """What lies in this direction a whole number of pixels away, as nearly ``radius`` as possible."""
    side = range(-radius, radius + 1)
    along = [
        (y, x)
        for y in side
        for x in side
        if (y or x) and np.hypot(y / np.hypot(y, x) - down, x / np.hypot(y, x) - right) < 2e-3
    ]
    return min(along, key=lambda point: abs(np.hypot(*point) - radius))


def traced(scenes: Scenes, index: int, config: SceneConfig) -> int | None:
    """The label found by walking from the first disc along the joints, over dashes in any order; None where two snakes
    share a joint, so that a joint does not say which way to go."""
    loose = np.random.default_rng(index).permutation(dashes(scenes, index))
    following: dict[tuple[int, int], NDArray[np.float32]] = {}
    behind = []
    for dash in loose:
        before, after = joints(dash, config)
        if before in following:
            return None
        following[before] = dash
        behind.append(after)
    if len(set(behind)) < len(behind):
        return None
    first, last = scenes.markers[index]
    at = [dash for dash in following.values() if np.array_equal(dash[0].round(), first)]
    heads = {joints(dash, config)[0] for dash in at} - set(behind)  # the first dash of a snake follows none
    if len(heads) != 1:
        return None
    here, steps = heads.pop(), 0
    while here in following and steps <= len(loose):
        dash, steps = following[here], steps + 1
        here = joints(dash, config)[1]
    return int(np.array_equal(dash[1], last))


def test_the_label_is_what_one_finds_by_tracing_the_snake_from_its_disc(published: Scenes) -> None:
    found = [(traced(published, index, PUBLISHED), int(published.labels[index])) for index in range(400)]
    assert all(label == seen for seen, label in found if seen is not None)
    assert sum(seen is not None for seen, _ in found) > 200


def test_the_discs_stand_on_one_start_and_on_one_end(published: Scenes) -> None:
    rows = np.arange(1024)
    starts, ends = published.snakes[:, :, 0, 0].round(), published.snakes[:, :, -1, 1]
    of_start = (starts == published.markers[:, None, 0]).all(axis=2)
    of_end = (ends == published.markers[:, None, 1]).all(axis=2)
    assert (of_start.sum(axis=1) == 1).all()
    assert (of_end.sum(axis=1) == 1).all()
    same = of_end[rows, of_start.argmax(axis=1)]
    assert np.array_equal(same.astype(np.int64), published.labels)


def distance(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """Between two dashes, over points a tenth of their length apart."""
    share = np.linspace(0, 1, 11)[:, None]
    points = [dash[0] + share * (dash[1] - dash[0]) for dash in (one, other)]
    return float(np.linalg.norm(points[0][:, None] - points[1], axis=-1).min())


def check_geometry(scenes: Scenes, index: int, config: SceneConfig) -> None:
    chains = [chain for chain in (*scenes.snakes[index], *scenes.distractors[index]) if not np.isnan(chain).any()]
    for chain in chains:
        for dash in chain:
            assert np.linalg.norm(dash[1] - dash[0]) == pytest.approx(config.paddle_length, abs=1e-4)
        for one, other in pairwise(chain):
            # Both margins and two roundings lie between them, and a snake never turns back.
            assert np.linalg.norm(other[0] - one[1]) < 2 * config.paddle_margin + 1.5
            assert ((one[1] - one[0]) * (other[1] - other[0])).sum() > 0
    numbered = [(snake, place, dash) for snake, chain in enumerate(chains) for place, dash in enumerate(chain)]
    for (a, i, one), (b, j, other) in combinations(numbered, 2):
        if a != b or abs(i - j) > 1:
            assert distance(one, other) > config.paddle_thickness  # as drawn, they do not touch
    points = dashes(scenes, index)
    assert points.min() >= config.padding + config.paddle_margin - 1
    assert points.max() <= config.size - config.padding - config.paddle_margin


def check_image(scenes: Scenes, index: int, config: SceneConfig) -> None:
    """Light along every dash and on the discs, and nowhere else."""
    image, shown = scenes.images[index], np.zeros((config.size * 8, config.size * 8), bool)
    for dash in dashes(scenes, index):
        for share in np.linspace(0, 1, 8 * config.paddle_length):
            row, column = dash[0] + share * (dash[1] - dash[0])
            shown[int((row + 0.5) * 8), int((column + 0.5) * 8)] = True
            # A point between two pixels lights the one, the other, or both.
            near = image[int(row) : int(row) + 2, int(column) : int(column) + 2]
            assert near.max() > 40
    reach = config.paddle_thickness / 2 + np.sqrt(0.5) + 0.25
    dark = distance_transform_edt(~shown)[4::8, 4::8] / 8 > reach
    rows, columns = np.mgrid[: config.size, : config.size]
    for row, column in scenes.markers[index]:
        from_disc = np.hypot(rows - row, columns - column)
        dark &= from_disc > config.marker_radius + np.sqrt(0.5)
        on_disc = from_disc <= config.marker_radius - np.sqrt(0.5)
        assert on_disc.any()
        assert (image[on_disc] > 120).all()
    assert not image[dark].any()
    assert image.max() == 255


@pytest.mark.slow
def test_snakes_keep_their_distance_and_the_image_shows_them_and_nothing_else(published: Scenes) -> None:
    for index in range(60):
        check_geometry(published, index, PUBLISHED)
        check_image(published, index, PUBLISHED)


@settings(max_examples=10, deadline=None)
@given(
    size=st.integers(40, 56),
    length=st.integers(2, 9),
    distractors=st.integers(0, 3),
    margin=st.integers(1, 2),
    paddle=st.integers(2, 4),
    thickness=st.sampled_from([0.5, 0.75]),
    seed=st.integers(0, 1000),
)
def test_other_settings_keep_the_same_properties(
    size: int, length: int, distractors: int, margin: int, paddle: int, thickness: float, seed: int
) -> None:
    config = SceneConfig(
        size,
        contour_length=length,
        distractor_length=2,
        distractors=distractors,
        paddle_length=paddle,
        paddle_thickness=thickness,
        paddle_margin=margin,
        seed_distance=9,
    )
    assume(length * (paddle + 2 * margin) <= size)
    assume(thickness == 0.5 or margin > 1)  # the rounding to pixels can take a margin of 1 from thicker dashes
    made = pathfinder.scenes(3, seed, config)
    for index in range(3):
        check_geometry(made, index, config)
        check_image(made, index, config)
        assert traced(made, index, config) in (None, made.labels[index])


def test_half_the_labels_are_ones_and_neither_brightness_nor_distance_tells_them(published: Scenes) -> None:
    assert published.labels.mean() == pytest.approx(0.5, abs=0.06)
    brightness = published.images.mean(axis=(1, 2))
    apart = np.linalg.norm(published.markers[:, 0] - published.markers[:, 1], axis=-1)
    for feature in (brightness, apart):
        means = [feature[published.labels == label].mean() for label in range(2)]
        assert abs(means[1] - means[0]) < 0.3 * feature.std()


def test_every_image_holds_about_as_much_light_as_the_next(published: Scenes) -> None:
    lit = (published.images > 0).mean(axis=(1, 2))
    assert lit.min() > 0.12
    assert lit.max() < 0.35
    fitted = (~np.isnan(published.distractors[..., 0, 0, 0])).sum(axis=1)
    assert fitted.mean() > 4
    assert fitted.max() == PUBLISHED.distractors == 5


def test_long_snakes_start_near_the_centre_and_the_seed_distance_apart(published: Scenes) -> None:
    starts = published.snakes[:, :, 0, 0]
    assert np.abs(starts[:, 0] - 15.5).max() < 3.5
    apart = np.linalg.norm(starts[:, 1] - starts[:, 0], axis=-1)
    assert apart.mean() == pytest.approx(PUBLISHED.seed_distance, abs=0.2)
    assert np.abs(apart - PUBLISHED.seed_distance).max() < 2.5


def test_directions_and_places_favour_no_side(published: Scenes) -> None:
    flat = published.images.mean(axis=0)
    for turned in (flat[::-1], flat[:, ::-1], flat.T):
        assert np.corrcoef(flat.ravel(), turned.ravel())[0, 1] > 0.8


def test_a_higher_continuity_gives_straighter_snakes() -> None:
    turns = []
    for continuity in (0.8, 1.8):
        made = pathfinder.scenes(100, 1, SceneConfig(contour_length=6, continuity=continuity))
        along = np.diff(made.snakes, axis=3)[:, :, :, 0]
        turns.append((along[:, :, 1:] * along[:, :, :-1]).sum(axis=-1).mean())
    assert turns[1] > turns[0]


def generate(count: int, seed: int, workers: int = 1, **settings: Any) -> tuple[np.ndarray, np.ndarray]:
    images, labels = zip(*pathfinder.parts(count, seed, SceneConfig(**settings), workers=workers), strict=True)
    return np.concatenate(images), np.concatenate(labels)


def test_the_number_of_processes_changes_nothing() -> None:
    one, two = (generate(300, 4, workers=workers) for workers in (1, 2))
    assert np.array_equal(one[0], two[0])
    assert np.array_equal(one[1], two[1])


@pytest.mark.parametrize("count", [1, 256, 257])
def test_fewer_images_of_a_seed_are_the_first_of_more_with_and_without_geometry(published: Scenes, count: int) -> None:
    images, labels = generate(count, 1)
    assert images.shape == (count, 32, 32)
    assert images.dtype == np.uint8
    assert labels.dtype == np.int64
    assert np.array_equal(images, published.images[:count])
    assert np.array_equal(labels, published.labels[:count])


def test_no_image_of_a_seed_occurs_twice_or_under_another_seed(published: Scenes) -> None:
    other, _ = generate(300, 2)
    assert len({image.tobytes() for image in (*published.images, *other)}) == 1324


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"count": 0}, "count=0: must be a whole number of at least 1"),
        ({"contour_length": 1}, "contour_length=1: must be a whole number of at least 2"),
        ({"paddle_margin": 0}, "paddle_margin=0: must be a whole number of at least 1"),
        ({"distractors": -1}, "distractors=-1: must be a whole number of at least 0"),
        ({"marker_radius": 0.0}, "marker_radius=0.0: must be a positive finite number"),
        ({"continuity": float("nan")}, "continuity=nan: must be a positive finite number"),
        ({"size": 28}, "size=28: must exceed four times seed_distance=7"),
        ({"contour_length": 60}, "contour_length=60: two such snakes fitted into only .* images of size=32"),
    ],
)
def test_what_cannot_be_made_is_refused_in_one_line(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        generate(**({"count": 1, "seed": 0} | changed))
    assert "\n" not in str(refused.value)
