"""LibriSpeech's layout with recordings of noise; writing it needs the extra ``librispeech``."""

import importlib.util
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

DATASET = "openslr/librispeech_asr/clean"
needs_packages = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("kaldi_native_fbank", "soundfile")),
    reason="the extra librispeech is missing",
)


def noise(samples: int, seed: int = 0) -> NDArray[np.int16]:
    """[samples]"""
    return (np.random.default_rng(seed).standard_normal(samples) * 1000).astype(np.int16)


def encoded(samples: NDArray[np.int16], rate: int = 16_000, format: str = "FLAC") -> bytes:
    """A file that holds the samples."""
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=format)
    return file.getvalue()


def row(number: int, text: str = "OH", samples: int = 0, speaker: int = 1) -> dict[str, Any]:
    """A row of noise, by default of 48 + 5 · ``number`` frames."""
    sound = encoded(noise(samples or 8000 + 800 * number, number))
    return {"audio": {"bytes": sound, "path": f"{number}.flac"}, "text": text, "speaker_id": speaker}


def put(root: Path, split: str, rows: list[dict[str, Any]], shard: int = 0, of: int = 1) -> Path:
    """Write rows as one file of a split below the data root ``root``."""
    path = root / DATASET / f"{split}-{shard:05}-of-{of:05}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path
