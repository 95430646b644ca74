"""Speech for CTC: utterances as frames of features, and the symbols that they say.

A batch is ``{"frames": [B, N, F] float32, "key_padding_mask": [B, N] bool, "targets": [B, S] int64}``: the mask is
True on padding, whose frames are 0, and ``targets`` are symbols, filled up with ``IGNORE``. Symbol 0 is CTC's blank,
which no target holds. ``data.speech_tasks`` finds a task by its name.

Shapes: B utterances, N frames, F features, S symbols.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from transnormer_lib.checks import check_choice
from transnormer_lib.data.batches import IGNORE, Batch, DrawnBatches, Sampler
from transnormer_lib.data.sources import SPLITS

BLANK = 0  # the symbol of CTC that stands for nothing
PADDED_TO = 16  # frames: batches are padded to a multiple of it

Example = tuple[NDArray[np.float32], NDArray[np.int64]]  # frames [N, F], symbols [S]


class SpeechTask(ABC):
    """Utterances with what they say, in three splits without a common speaker."""

    name: str
    length: int  # the most frames of an utterance

    @property
    @abstractmethod
    def features(self) -> int:
        """F."""

    @property
    @abstractmethod
    def symbols(self) -> tuple[str, ...]:
        """What each symbol is written as; the blank, which comes first, as nothing."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """sha256, hex, over what decides the utterances."""

    @abstractmethod
    def pool(self, split: str) -> int:
        """The number of recordings of a split. Raises ValueError for an unknown one."""

    @abstractmethod
    def example(self, split: str, rng: np.random.Generator) -> Example:
        """One utterance of a split, drawn with ``rng``."""

    @abstractmethod
    def heard(self, split: str, utterances: int) -> set[int]:
        """The speakers of at least so many utterances of a split; empty if the data do not name them."""

    @property
    def splits(self) -> tuple[str, ...]:
        return SPLITS

    @property
    def absent(self) -> Mapping[str, str]:
        return {}

    def draw(self, utterances: int, rng: np.random.Generator) -> Batch:
        """A batch of new training utterances."""
        return collated([self.example("train", rng) for _ in range(utterances)])

    def sampler(self, batch_size: int, seed: int) -> Sampler:
        """The training batches, by step."""
        return DrawnBatches(self, batch_size, seed)

    def held_out(self, split: str, utterances: int, batch_size: int) -> Iterator[Batch]:
        """Batches of so many utterances, the same ones each time. Raises ValueError for an unknown split."""
        check_choice("split", split, SPLITS)
        rng = np.random.default_rng([0, 0, SPLITS.index(split)])  # training draws from two numbers, this from three
        whole = [self.example(split, rng) for _ in range(utterances)]
        return (collated(whole[first : first + batch_size]) for first in range(0, utterances, batch_size))


def normalised(frames_NF: NDArray[np.float32]) -> NDArray[np.float32]:
    """Every feature with mean 0 and variance 1 over the frames; one that is constant becomes 0."""
    centred = frames_NF - frames_NF.mean(axis=0)
    varies = frames_NF.max(axis=0) > frames_NF.min(axis=0)  # rounding gives a constant a deviation
    return np.divide(centred, frames_NF.std(axis=0), out=np.zeros_like(centred), where=varies)


def collated(examples: Sequence[Example]) -> Batch:
    """One batch of utterances of different lengths, padded to a multiple of 16 frames."""
    longest, most = (max(len(example[part]) for example in examples) for part in (0, 1))
    padded = -(-longest // PADDED_TO) * PADDED_TO
    frames_BNF = np.zeros((len(examples), padded, examples[0][0].shape[1]), np.float32)
    targets_BS = np.full((len(examples), most), IGNORE, np.int64)
    padding_BN = np.ones((len(examples), padded), bool)
    for row, (frames, symbols) in enumerate(examples):
        frames_BNF[row, : len(frames)], targets_BS[row, : len(symbols)] = frames, symbols
        padding_BN[row, : len(frames)] = False
    return {
        "frames": torch.from_numpy(frames_BNF),
        "key_padding_mask": torch.from_numpy(padding_BN),
        "targets": torch.from_numpy(targets_BS),
    }


def symbols_of(targets_BS: torch.Tensor) -> list[list[int]]:
    """The targets of each utterance of a batch, without what fills them up."""
    return [row[row != IGNORE].tolist() for row in targets_BS]
