"""Images as sequences of values: splits, batches, and simple models of them."""

import numpy as np
import pytest

from transnormer_lib.data.classification_batches import EpochBatches
from transnormer_lib.data.images import load_mnist
from transnormer_lib.data.pixel_baselines import LEFT, LEFT_UP, POSITIONS, baselines, strongest
from transnormer_lib.data.pixels import SHAPES, PixelSet, length_of, load_pixels
from transnormer_lib.training.config import DataConfig


def made(images: np.ndarray, name: str = "mnist-5k-14") -> PixelSet:
    halves = {"train": images[::2], "validation": images[1::2], "test": images[1::2]}
    return PixelSet(name, halves, {split: np.zeros(len(x), np.int64) for split, x in halves.items()}, "embedded", "x")


@pytest.mark.parametrize("name", ["mnist-5k", "mnist-5k-14"])
def test_the_splits_are_those_of_the_images(name: str) -> None:
    pixels, digits = load_pixels(name), load_mnist()
    height, width, _ = SHAPES[name]
    assert {split: len(rows) for split, rows in pixels.images.items()} == {
        "train": 4000,
        "validation": 500,
        "test": 500,
    }
    assert all(rows.shape[1] == height * width == length_of(name) + 1 for rows in pixels.images.values())
    assert all(np.array_equal(pixels.labels[split], digits.labels[digits.splits[split]]) for split in pixels.splits)


def test_a_small_pixel_is_the_rounded_mean_of_four() -> None:
    large, small = (load_pixels(name).images["test"][7].astype(float) for name in ("mnist-5k", "mnist-5k-14"))
    large, small = large.reshape(28, 28), small.reshape(14, 14)
    means = (large[::2, ::2] + large[1::2, ::2] + large[::2, 1::2] + large[1::2, 1::2]) / 4
    assert np.abs(means - small).max() <= 0.5


def test_two_sizes_of_the_same_digits_are_different_data() -> None:
    assert load_pixels("mnist-5k").fingerprint != load_pixels("mnist-5k-14").fingerprint


def test_a_target_is_the_next_value_of_its_image() -> None:
    batch = next(load_pixels("mnist-5k-14").held_out("test", 5, 8))
    assert batch["input_ids"].shape == (5, 195)
    assert (batch["input_ids"][:, 1:] == batch["targets"][:, :-1]).all()


def test_an_epoch_reads_every_training_image_once() -> None:
    images = np.arange(2 * 20).reshape(40, 1).repeat(196, 1).astype(np.uint8)
    sampler = EpochBatches(made(images), batch_size=5, seed=3)
    epochs = [
        [row for step in range(e * 4, e * 4 + 4) for row in sampler.batch(step)["input_ids"][:, 0].tolist()]
        for e in (0, 1)
    ]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(0, 40, 2))
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize(("name", "length", "wrong"), [("mnist-5k", 784, "783 values"), ("mnistt", 783, "mnistt")])
def test_a_config_names_known_images_and_their_length(name: str, length: int, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        DataConfig(task="pixels", task_name=name, length=length)


def test_noise_costs_eight_bits_and_stripes_cost_nothing_to_those_who_see_them() -> None:
    rng = np.random.default_rng(0)
    noise = baselines(made(rng.integers(256, size=(4000, 196)).astype(np.uint8)))
    assert all(7.9 < bits < 8.3 for bits in noise.values())
    stripes = (240 * (rng.random((400, 14, 1)) < 0.5) * np.ones((1, 1, 14))).astype(np.uint8).reshape(400, 196)
    found = baselines(made(stripes))
    assert found[LEFT] < 0.15 < 0.9 < found[POSITIONS]  # a new line is a new coin
    columns = stripes.reshape(400, 14, 14).transpose(0, 2, 1).reshape(400, 196)
    found = baselines(made(np.ascontiguousarray(columns)))
    assert found[LEFT_UP] < 0.15 < 0.9 < found[LEFT]
    assert strongest(found)[0] == LEFT_UP


def test_a_count_takes_images_from_the_whole_split() -> None:
    pixels = load_pixels("mnist-5k-14")
    assert pixels.spread("test", 5).tolist() == [0, 100, 200, 300, 400]
    with pytest.raises(ValueError, match="split='dev'"):
        pixels.spread("dev", 5)
