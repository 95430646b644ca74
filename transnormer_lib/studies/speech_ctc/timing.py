"""Time per epoch (Table 3): one training step of every row, on the same strings, the rows taking turns.

An epoch reads each training recording once on average. All rows take the same number of steps for it, so the ratio of
two epochs is that of two steps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import torch

from transnormer_lib.analysis.interleaved import interleaved
from transnormer_lib.data.batches import Batch
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.models.transcriber import build_transcriber
from transnormer_lib.progress import tracked
from transnormer_lib.studies.speech_ctc.runs import Parameters, model
from transnormer_lib.training.setup import loss_on

_FRAMES_PER_SYMBOL = 20  # about that of the spoken digits with their pauses


@dataclass(frozen=True)
class StepTimes:
    """Seconds of a row, one value per round."""

    row: str
    length: int  # frames
    training: list[float]  # forward and backward
    reading: list[float]  # forward alone, without gradients

    def ratio(self, other: "StepTimes") -> list[float]:
        """This row's training time over another's, round by round."""
        return [mine / theirs for mine, theirs in zip(self.training, other.training, strict=True)]


def step_times(
    rows: Sequence[str],
    parameters: Parameters,
    lengths: Sequence[int],
    batch_size: int,
    rounds: int,
    on: str = "cpu",
) -> dict[int, dict[str, StepTimes]]:
    """By length and row, the time of a step of so many strings of that length, all full, on the device ``on``.

    Raises ValueError if a number is below 1, and for the device cuda where there is none.
    """
    if on == "cuda" and not torch.cuda.is_available():
        raise ValueError("timed_device='cuda': there is no GPU; use 'cpu'")
    device = torch.device(on)
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    found: dict[int, dict[str, StepTimes]] = {}
    for length in tracked(lengths, "length", lengths):
        batch = _noise(model(rows[0], parameters, length), batch_size)
        models = {row: build_transcriber(model(row, parameters, length), 0).to(device) for row in rows}

        def train(row: str, batch: Batch = batch, models: dict = models) -> None:
            models[row].zero_grad(set_to_none=True)
            loss_on(models[row], batch, device).backward()

        @torch.no_grad()
        def read(row: str, batch: Batch = batch, models: dict = models) -> None:
            loss_on(models[row], batch, device)

        calls = {f"{name} {row}": _call(kind, row) for row in rows for name, kind in (("t", train), ("r", read))}
        seconds = interleaved(calls, rounds=rounds, wait=wait)
        found[length] = {row: StepTimes(row, length, seconds[f"t {row}"], seconds[f"r {row}"]) for row in rows}
    return found


def table(times: dict[int, dict[str, StepTimes]], base: str = "linear") -> list[dict[str, object]]:
    """One line per row: the median time of a step over that of ``base``, with the range over the rounds, per length."""
    rows = list(next(iter(times.values())))
    lines = []
    for row in rows:
        line: dict[str, object] = {"row": row}
        for length, by_row in times.items():
            ratios = by_row[row].ratio(by_row[base])
            line[f"{length} frames"] = f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        lines.append(line)
    return lines


def over_base(ratios: Mapping[str, Sequence[float]], printed: Mapping[str, float], base: str = "linear") -> str:
    """Every other row's median time over that of ``base``, and the printed ratio, in words."""
    said = [f"{row} {median(of):.2f} (in print {printed[row]:.2f})" for row, of in ratios.items() if row != base]
    return ", ".join(said)


def _call(kind, row):  # type: ignore[no-untyped-def]
    return lambda: kind(row)


def _noise(read: ModelConfig, batch_size: int) -> Batch:
    length, symbols = read.max_length, max(read.max_length // _FRAMES_PER_SYMBOL, 1)
    generator = torch.Generator().manual_seed(0)
    return {
        "frames": torch.randn(batch_size, length, read.features, generator=generator),
        "key_padding_mask": torch.zeros(batch_size, length, dtype=torch.bool),
        "targets": torch.randint(1, read.vocab_size, (batch_size, symbols), generator=generator),
    }
