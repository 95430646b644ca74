"""Time and memory of a training step of masked language models, by sequence length.

Models take turns on the clock; memory is what torch's tensors take at most during the step, by torch's own count.
"""

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from transnormer_lib.analysis.interleaved import interleaved
from transnormer_lib.analysis.tensor_memory import peak_bytes
from transnormer_lib.data.batches import IGNORE
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.models.language_model import LanguageModel, build_model
from transnormer_lib.progress import tracked


@dataclass(frozen=True)
class TrainingCost:
    """A forward and backward pass of one model on one batch."""

    model: str
    length: int
    seconds: tuple[float, ...]  # one value per round
    peak_bytes: int  # allocated by the pass, the gradients included; neither the weights nor an optimiser's state


def _step(model: LanguageModel, batch: int, length: int, device: str) -> Callable[[], object]:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(model.config.vocab_size, (batch, length), generator=generator)
    targets = ids.where(torch.rand(batch, length, generator=generator) < 0.15, IGNORE)
    ids, targets = ids.to(device), targets.to(device)

    def step() -> None:
        model.zero_grad(set_to_none=True)  # so that all that the step keeps is allocated in it
        model(ids, targets_BN=targets).backward()

    return step


def measure(
    configs: Mapping[str, ModelConfig], lengths: Sequence[int], *, batch: int, rounds: int, device: str = "cpu"
) -> tuple[TrainingCost, ...]:
    """Every model at every length, lengths first, on ``device`` "cpu" or "cuda". Without rounds nothing is timed.

    A model that runs out of the GPU's memory at a length is left out there.
    """
    models = {name: build_model(config, seed=0).train().to(device) for name, config in configs.items()}
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    found = []
    for length in tracked(lengths, "length", lengths):
        steps = {name: _step(model, batch, length, device) for name, model in models.items()}
        peaks: dict[str, int] = {}
        for name, step in steps.items():
            try:
                models[name].zero_grad(set_to_none=True)
                peaks[name] = peak_bytes(step, device)
            except torch.OutOfMemoryError:
                gc.collect()
            models[name].zero_grad(set_to_none=True)
        fitting = {name: steps[name] for name in peaks}
        seconds = interleaved(fitting, rounds=rounds, wait=wait) if rounds and fitting else {name: [] for name in peaks}
        found += [TrainingCost(name, length, tuple(seconds[name]), peak) for name, peak in peaks.items()]
        for model in models.values():
            model.zero_grad(set_to_none=True)
    return tuple(found)
