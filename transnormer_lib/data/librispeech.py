"""Read English for CTC: LibriSpeech's clean 100 hours (Panayotov et al., 2015; CC BY 4.0), in place of WSJ.

Section 4.3 of "Transformers are RNNs" trains on WSJ, which is licensed: 80 hours, 40 mel filterbanks, utterances of 800
frames on average and at most 2,400, and phonemes to write. Here are 100 hours with the same features, of about 1,270
frames on average, and **characters** to write: LibriSpeech's transcripts are words, and turning them into phonemes
would need a lexicon. Training reads ``train.100``; ``validation`` and ``test`` are the corpus' own, whose speakers are
in no other split.

An utterance longer than the task's length is left out, since cutting it would leave its words; ``left_out`` counts
them.
Every energy has mean 0 and variance 1 over the frames of its utterance. Each epoch reads every training utterance once,
in an order of its own.

The features are made once, file by file and on all cores, and kept in the cache as half-precision numbers: 100 hours
are 36 million frames or 2.9 GB. They are read from there by memory map, as far as a batch needs them.

Shapes: U utterances, N frames, F features, S symbols.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transnormer_lib import progress
from transnormer_lib.checks import check_choice, check_count
from transnormer_lib.data import cache, chunks, filterbanks, hub, sources, workers
from transnormer_lib.data.batches import Batch, Sampler, groups
from transnormer_lib.data.classification_batches import EpochBatches
from transnormer_lib.data.faults import DataFault
from transnormer_lib.data.sources import SPLITS
from transnormer_lib.data.speech import PADDED_TO, Example, SpeechTask, collated, normalised

NAME = "librispeech-clean-100"
DATASET = hub.SPEECH[NAME]
SYMBOLS = ("", " ", "'", *"ABCDEFGHIJKLMNOPQRSTUVWXYZ")  # CTC's blank comes first
_SPLITS = {"train": "train.100", "validation": "validation", "test": "test"}  # by the corpus' own names
_NOBODY = -1  # the speaker, where a file does not name them
_VERSION = 1  # of the rules above; another one makes all features and all runs anew


@dataclass(frozen=True)
class Utterances:
    """Those of one split, whatever their length. The features stay in their files."""

    files: tuple[Path, ...]
    file: NDArray[np.int64]  # [U]: in which file each utterance is
    starts: NDArray[np.int64]  # [U]: where its frames begin there
    frames: NDArray[np.int64]  # [U]: how many it has
    speakers: NDArray[np.int64]  # [U]
    symbols: tuple[NDArray[np.int8], ...]  # U times [S]

    def example(self, number: int) -> Example:
        """The features of an utterance, [N, F], and what it says, [S]."""
        start = int(self.starts[number])
        energies = _opened(self.files[self.file[number]]).get_slice("energies")
        kept = energies[start : start + int(self.frames[number])]
        return kept.astype(np.float32), self.symbols[number].astype(np.int64)


@dataclass(frozen=True)
class LibriSpeech(SpeechTask):
    """The task at one greatest length. Raises ValueError for a length below 1."""

    length: int  # the most frames of an utterance
    name: str = NAME

    def __post_init__(self) -> None:
        check_count("length", self.length)

    @property
    def features(self) -> int:
        return filterbanks.FEATURES

    @property
    def symbols(self) -> tuple[str, ...]:
        return SYMBOLS

    @cached_property
    def fingerprint(self) -> str:
        """sha256, hex, over what decides the utterances.

        Raises DataUnavailable if the corpus or a package is missing.
        """
        filterbanks.check_packages()
        digests = [sources.locate(DATASET, split).fingerprint for split in _SPLITS.values()]
        content = f"{self.name} {self.length} {PADDED_TO} {_VERSION} {' '.join(digests)}"
        return hashlib.sha256(content.encode()).hexdigest()

    def pool(self, split: str) -> int:
        """The number of utterances of a split that are not too long."""
        return len(self._chosen(split))

    def left_out(self, split: str) -> int:
        """The number of utterances of a split that are too long."""
        return len(self.utterances(split).frames) - self.pool(split)

    def heard(self, split: str, utterances: int) -> set[int]:
        """All speakers of a split; empty if its files do not name them."""
        return set(self.utterances(split).speakers.tolist()) - {_NOBODY}

    def example(self, split: str, rng: np.random.Generator) -> Example:
        chosen = self._chosen(split)
        return self.utterances(split).example(int(chosen[rng.integers(len(chosen))]))

    def batch(self, split: str, places: NDArray[np.int64]) -> Batch:
        """The utterances at these places [B] among those of a split that are not too long."""
        utterances = self.utterances(split)
        return collated([utterances.example(number) for number in self._chosen(split)[places].tolist()])

    def sampler(self, batch_size: int, seed: int) -> Sampler:
        return EpochBatches(self, batch_size, seed)

    def held_out(self, split: str, utterances: int, batch_size: int) -> Iterator[Batch]:
        """As of every task, but of at most as many as there are; the longest come first, so that little is padded."""
        frames = self.utterances(split).frames[self._chosen(split)]
        drawn = np.random.default_rng(SPLITS.index(split)).permutation(len(frames))[:utterances]
        ordered = drawn[np.argsort(-frames[drawn], kind="stable")]
        return (self.batch(split, places) for places in groups(ordered, batch_size))

    def utterances(self, split: str) -> Utterances:
        """All utterances of a split; the first call may make their features.

        Raises ValueError for an unknown split, DataUnavailable if the corpus or a package is missing, DataFault if a
        file is wrong.
        """
        check_choice("split", split, SPLITS)
        if split not in self._read:
            self._read[split] = _utterances(_SPLITS[split])
        return self._read[split]

    @cached_property
    def _read(self) -> dict[str, Utterances]:
        return {}

    def _chosen(self, split: str) -> NDArray[np.int64]:
        frames = self.utterances(split).frames
        chosen = np.flatnonzero(frames <= self.length)
        if not chosen.size:
            raise ValueError(
                f"length={self.length}: the shortest utterance of split {split!r} has {frames.min()} frames"
            )
        return chosen


def _utterances(table: str) -> Utterances:
    filterbanks.check_packages()
    located = sources.locate(DATASET, table)
    files = _features(located)
    parts = [_index(file) for file in files]
    if not sum(len(part["frames"]) for part in parts):
        raise DataFault(f"{located.files[0]}: has no rows, expected about {hub.DATASETS[DATASET].splits[table].rows}")
    symbols = [np.split(part["symbols"], part["lengths"].cumsum()[:-1]) for part in parts if part["lengths"].size]
    return Utterances(
        files=files,
        file=np.concatenate([np.full(len(part["frames"]), number) for number, part in enumerate(parts)]),
        starts=np.concatenate([part["frames"].cumsum() - part["frames"] for part in parts]),
        frames=np.concatenate([part["frames"] for part in parts]),
        speakers=np.concatenate([part["speakers"] for part in parts]),
        symbols=tuple(one for of_file in symbols for one in of_file),
    )


def _features(located: sources.Located) -> tuple[Path, ...]:
    """A file of features for each file of recordings, made on all cores where it is not in the cache."""
    made = [
        cache.file_of("filterbanks", cache.key(digest, filterbanks.FEATURES, _VERSION)) for digest in located.digests
    ]
    pairs = [pair for pair in zip(located.files, made, strict=True) if not cache.is_whole(pair[1])]
    if pairs:
        done = workers.spread(_make, pairs, min(chunks.cores(), len(pairs)))
        list(progress.bar("filterbanks", iterable=done, total=len(pairs), unit=" files"))
    return tuple(made)


def _make(recordings: Path, path: Path) -> None:
    cache.write_once(path, partial(_write, recordings))


def _write(recordings: Path, path: Path) -> None:
    """The features of a file of recordings, with the index of its utterances."""
    from safetensors.numpy import save_file

    from transnormer_lib.data import tables

    energies: list[NDArray[np.float16]] = []
    symbols: list[NDArray[np.int8]] = []
    speakers: list[int] = []
    row = 0
    columns = sources.described(DATASET).columns
    for batch in tables.read_batches(recordings, columns, rows=sources.ROWS_OF_AUDIO):
        named = "speaker_id" in batch.schema.names
        speakers += batch.column("speaker_id").to_pylist() if named else [_NOBODY] * batch.num_rows
        for audio, text in zip(batch.column("audio").to_pylist(), batch.column("text").to_pylist(), strict=True):
            try:
                made, said = filterbanks.filterbanks(filterbanks.decoded(audio["bytes"])), spelled(text)
                _check_room(len(made), said)
            except ValueError as problem:
                raise DataFault(f"{recordings}, row {row}: {problem}") from None
            energies.append(normalised(made).astype(np.float16))
            symbols.append(said)
            row += 1
    arrays = {
        "energies": np.concatenate([np.zeros((0, filterbanks.FEATURES), np.float16), *energies]),
        "frames": np.array([len(one) for one in energies], np.int64),
        "symbols": np.concatenate([np.zeros(0, np.int8), *symbols]),
        "lengths": np.array([len(one) for one in symbols], np.int64),
        "speakers": np.array(speakers, np.int64),
    }
    save_file(arrays, path)


def spelled(text: str) -> NDArray[np.int8]:
    """The symbols [S] of a transcript. Raises ValueError if it has another character than letters and apostrophes."""
    words = " ".join(text.upper().split())
    if unknown := sorted(set(words) - set(SYMBOLS)):
        raise ValueError(f"{unknown[0]!r} in the text, expected the letters A to Z, spaces and apostrophes")
    return np.array([SYMBOLS.index(character) for character in words], np.int8)


def _check_room(frames: int, symbols: NDArray[np.int8]) -> None:
    """CTC needs a frame for every symbol, and one for the blank between two equal ones."""
    needed = symbols.size + int((symbols[1:] == symbols[:-1]).sum())
    if frames < needed:
        raise ValueError(f"{frames} frames for a text that CTC needs {needed} for")


def _index(file: Path) -> dict[str, Any]:
    opened = _opened(file)
    return {name: opened.get_tensor(name) for name in ("frames", "symbols", "lengths", "speakers")}


@lru_cache(maxsize=64)
def _opened(file: Path) -> Any:
    """The file as a memory map."""
    from safetensors import safe_open

    return safe_open(file, framework="numpy")
