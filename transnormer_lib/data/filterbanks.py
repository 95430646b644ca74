"""Mel filterbanks: 40 log energies of every 10 ms of a recording, with Kaldi's definition of them.

Section 4.3 of "Transformers are RNNs" says "40-dimensional mel-scale filterbanks without temporal differences" and no
more. The rest are Kaldi's defaults, usual for WSJ: windows of 25 ms (Povey's) every 10 ms, pre-emphasis 0.97, triangles
on the mel scale from 20 Hz to half the rate, no dither. The packages of the extra ``librispeech`` do the work:
kaldi-native-fbank the energies, soundfile the decoding.

Shapes: T samples, N frames, F features.
"""

import importlib.util
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transnormer_lib.data.faults import DataUnavailable

FEATURES = 40
RATE = 16_000  # samples per second
WINDOW, STEP = 400, 160  # samples
_PACKAGES = {"kaldi_native_fbank": "kaldi-native-fbank", "soundfile": "soundfile"}  # for import, and for pip


def check_packages() -> None:
    """Raises DataUnavailable, in one line, if a package is missing."""
    for name, package in _PACKAGES.items():
        if importlib.util.find_spec(name) is None:
            needed = " ".join(_PACKAGES.values())
            raise DataUnavailable(f"filterbanks: package {package!r} is not installed; to get it: pip install {needed}")


def decoded(content: bytes) -> NDArray[np.int16]:
    """The samples [T] of a FLAC or WAV file.

    Raises DataUnavailable if a package is missing, ValueError if the file cannot be decoded or is not one channel of
    16,000 samples per second.
    """
    check_packages()
    import soundfile

    try:
        samples, rate = soundfile.read(io.BytesIO(content), dtype="int16")
    except (soundfile.LibsndfileError, TypeError) as problem:
        raise ValueError(f"{len(content)} bytes that cannot be decoded ({' '.join(str(problem).split())})") from None
    if samples.ndim != 1 or rate != RATE:
        channels = 1 if samples.ndim == 1 else samples.shape[1]
        raise ValueError(f"{channels} channels of {rate:,} samples per second, expected 1 of {RATE:,}")
    return samples


def filterbanks(samples_T: NDArray[np.int16]) -> NDArray[np.float32]:
    """The log energies [N, F], with N = 1 + (T − 400) // 160: only whole windows count.

    The samples are used as they are, up to 32,767, so that Kaldi's smallest energy, 1.2e-7, plays no part in speech.
    Raises DataUnavailable if a package is missing, ValueError if there are fewer than 400 samples.
    """
    check_packages()
    import kaldi_native_fbank as kaldi

    if len(samples_T) < WINDOW:
        raise ValueError(f"{len(samples_T)} samples, expected at least {WINDOW}, those of a window")
    options: Any = kaldi.FbankOptions()
    options.frame_opts.samp_freq, options.frame_opts.dither = RATE, 0.0
    options.mel_opts.num_bins = FEATURES
    bank: Any = kaldi.OnlineFbank(options)
    bank.accept_waveform(RATE, samples_T.astype(float).tolist())
    bank.input_finished()
    return np.stack([bank.get_frame(frame) for frame in range(bank.num_frames_ready)])
