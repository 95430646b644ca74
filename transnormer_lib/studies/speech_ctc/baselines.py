"""What a digit error rate must be compared with: a constant answer, and a rule that knows the boundaries."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from transnormer_lib.data.speech import SpeechTask, normalised
from transnormer_lib.data.spoken_digits import SpokenDigits
from transnormer_lib.training.metrics import error_rate

_POINTS = 6  # along a recording
_STRINGS = 200  # on which a baseline is fitted and measured


def strings(task: SpeechTask, split: str, count: int = _STRINGS) -> list[list[int]]:
    """The symbols of some strings of a split, always the same ones."""
    rng = np.random.default_rng([2, task.splits.index(split)])
    return [task.example(split, rng)[1].tolist() for _ in range(count)]


def best_constant(wanted: Sequence[Sequence[int]], symbols: Sequence[int]) -> list[int]:
    """A string with a low error rate on ``wanted``: what a model can say that does not listen.

    Grown from nothing by the insertion that helps most, until none does.
    """
    from rapidfuzz.distance import Levenshtein
    from rapidfuzz.process import cdist

    said = ["".join(map(chr, one)) for one in wanted]
    best, fewest = "", sum(map(len, said))
    while True:
        tried = [best[:place] + chr(one) + best[place:] for place in range(len(best) + 1) for one in symbols]
        edits = cdist(tried, said, scorer=Levenshtein.distance, dtype=np.int64, workers=-1).sum(axis=1)
        if edits.min() >= fewest:
            return list(map(ord, best))
        fewest, best = int(edits.min()), tried[int(edits.argmin())]


def floor(task: SpeechTask) -> float:
    """The error rate on the test of the constant string that is best on the training strings."""
    wanted = strings(task, "test")
    constant = best_constant(strings(task, "train"), range(1, len(task.symbols)))
    return error_rate([constant] * len(wanted), wanted)


def known_boundaries(task: SpokenDigits) -> float:
    """The share of wrong digits on the test of a rule that is told where each recording of a string begins and ends.

    Linear discriminants (Gaussians with one covariance) of six points along the recording. It makes no insertions and
    no deletions, which a model does, so it is for orientation.
    """
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    train, test = (_recordings(task, split) for split in ("train", "test"))
    rule = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(*train)
    return 1.0 - float(rule.score(*test))


def _recordings(task: SpokenDigits, split: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    rng = np.random.default_rng([3, task.splits.index(split)])
    described, digits = [], []
    for _ in range(_STRINGS):
        parts = task.string(split, rng)
        lengths = [(len(pause), len(task.recordings.recording(number))) for number, pause in parts]
        pieces = [piece for number, pause in parts for piece in (pause, task.recordings.recording(number))]
        frames, start = normalised(np.concatenate(pieces)), 0
        for (number, _), (pause, own) in zip(parts, lengths, strict=True):
            recording = frames[start + pause : start + pause + own]
            start += pause + own
            places = np.linspace(0, own - 1, _POINTS)
            described.append(np.concatenate([np.interp(places, np.arange(own), one) for one in recording.T]))
            digits.append(task.recordings.digits[number])
    return np.array(described), np.array(digits)
