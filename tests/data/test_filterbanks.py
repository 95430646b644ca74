"""Mel filterbanks: what Kaldi defines, against a second computation in NumPy; recordings that are refused."""

import importlib.util
import sys

import numpy as np
import pytest
from librispeech_sample import encoded, needs_packages, noise
from numpy.typing import NDArray

from transnormer_lib.data import filterbanks as banks
from transnormer_lib.data.faults import DataUnavailable


def by_hand(samples_T: NDArray[np.int16]) -> NDArray[np.float64]:
    """[N, 40]: windows, their mean taken off, pre-emphasis, Povey's window, power spectrum, triangles in mel, log."""
    frames = np.lib.stride_tricks.sliding_window_view(samples_T.astype(np.float64), 400)[::160]
    frames = frames - frames.mean(axis=1, keepdims=True)
    before = np.concatenate([frames[:, :1], frames[:, :-1]], axis=1)
    frames = (frames - 0.97 * before) * (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 399)) ** 0.85
    power = np.abs(np.fft.rfft(frames, 512)) ** 2
    mel = 1127.0 * np.log1p(np.arange(257) * (16_000 / 512) / 700.0)
    low, high = (1127.0 * np.log1p(hertz / 700.0) for hertz in (20.0, 8000.0))
    edges = np.linspace(low, high, 42)
    rising = (mel - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - mel) / (edges[2:] - edges[1:-1])[:, None]
    triangles = np.clip(np.minimum(rising, falling), 0.0, None)  # [40, 257]
    return np.log(np.maximum(power @ triangles.T, np.finfo(np.float32).eps))


@needs_packages
@pytest.mark.parametrize("samples", [400, 559, 560, 16_000])
def test_energies_are_those_computed_by_hand(samples: int) -> None:
    found, expected = banks.filterbanks(noise(samples)), by_hand(noise(samples))
    assert found.shape == (1 + (samples - 400) // 160, 40)
    np.testing.assert_allclose(found, expected, atol=2e-3)


@needs_packages
def test_a_tone_is_loudest_in_the_triangle_around_its_frequency() -> None:
    tone = (8000 * np.sin(2 * np.pi * 1000.0 * np.arange(8000) / 16_000)).astype(np.int16)
    low, high, at = (1127.0 * np.log1p(hertz / 700.0) for hertz in (20.0, 8000.0, 1000.0))
    nearest = round((at - low) / (high - low) * 41) - 1
    assert (banks.filterbanks(tone).argmax(axis=1) == nearest).all()


@needs_packages
@pytest.mark.parametrize("format", ["FLAC", "WAV"])
def test_samples_come_back_as_they_were_encoded(format: str) -> None:
    assert np.array_equal(banks.decoded(encoded(noise(1000), format=format)), noise(1000))


@needs_packages
@pytest.mark.parametrize(
    ("content", "found"),
    [
        (lambda: encoded(noise(1000))[:30], "cannot be decoded"),
        (lambda: b"no recording", "12 bytes that cannot be decoded"),
        (lambda: encoded(noise(1000), rate=8000), "1 channels of 8,000 samples per second, expected 1 of 16,000"),
        (lambda: encoded(noise(1000).reshape(500, 2)), "2 channels of 16,000"),
    ],
    ids=["truncated", "text", "rate", "stereo"],
)
def test_a_file_of_another_kind_is_refused(content: object, found: str) -> None:
    with pytest.raises(ValueError, match=found):
        banks.decoded(content())  # type: ignore[operator]


@needs_packages
def test_a_recording_shorter_than_a_window_is_refused() -> None:
    with pytest.raises(ValueError, match="399 samples, expected at least 400"):
        banks.filterbanks(noise(399))


@pytest.mark.parametrize("package", ["kaldi_native_fbank", "soundfile"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    known = {"kaldi_native_fbank", "soundfile"} - {package}
    spec = sys.__spec__ or object()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec if name in known else found("no_such_package"))
    with pytest.raises(DataUnavailable, match=r"is not installed; to get it: pip install kaldi-native-fbank soundfile"):
        banks.filterbanks(noise(400))
