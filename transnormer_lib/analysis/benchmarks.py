"""How fast attention and training are on this machine: medians with their spread, and ratios measured in one run.

Competitors take turns in every round, so a drift of the machine affects all of them. No test asserts the figures,
because they are properties of the machine and not of the code. Shapes: B batch, H heads, N length, D head_dim.
"""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from transnormer_lib import attention as mechanisms
from transnormer_lib.analysis import cpu_costs
from transnormer_lib.analysis.cpu_costs import HEAD_DIM, HEADS, attention_step
from transnormer_lib.analysis.interleaved import interleaved
from transnormer_lib.analysis.tensor_memory import peak_bytes
from transnormer_lib.choices import Rotary
from transnormer_lib.data.batches import IGNORE, WindowBatches
from transnormer_lib.data.corpora import load_text_corpus
from transnormer_lib.data.masking import MaskingConfig
from transnormer_lib.models.architectures import architecture
from transnormer_lib.models.config import Kind
from transnormer_lib.models.flops import PREDICTED_SHARE
from transnormer_lib.models.language_model import build_model
from transnormer_lib.progress import Told, tracked
from transnormer_lib.training.config import OptimizerConfig
from transnormer_lib.training.optimisation import build_optimizer, clip, gradient_norms, gradients_of

ATTENTION_LENGTHS = (512, 1024, 4096, 16384)
MEMORY_LENGTHS = (4096, 16384, 65536)
TRAINING_LENGTHS = (512, 1024, 2048, 4096, 8192)
AIMS = {4096: 4.0, 16384: 15.0}  # by length, the least speed-up of NormAttention over softmax
PEER, PEER_CHUNK = "linear-attention-transf.", 64  # PyPI's linear-attention-transformer: whole chunks only
_TOKENS_PER_STEP = 8192
_PRODUCTS = ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm")


@dataclass(frozen=True)
class Size:
    """A model without its mechanisms, and the batch of a step."""

    kind: Kind
    layers: int
    dim: int
    heads: int
    block_size: int
    batch: int  # sequences
    length: int  # tokens of each
    rotary: Rotary = "none"


# The training steps of the quick preset's notebooks, and the architectures that take them.
QUICK = {
    "8 x 64 tokens, causal": (
        Size("decoder", layers=2, dim=64, heads=4, block_size=16, batch=8, length=64),
        ("vanilla", "linear", "transnormer-t1", "transnormer-t2"),
    ),
    "16 x 32 tokens, masked": (
        Size("encoder", layers=2, dim=64, heads=2, block_size=16, batch=16, length=32, rotary="lrpe"),
        ("vanilla", "linear", "norm-t1", "norm-t2"),
    ),
}


@dataclass(frozen=True)
class Timing:
    """One competitor at one length: the seconds of every round, and its speed-up over the reference."""

    name: str
    length: int
    seconds: tuple[float, ...]
    times_faster: float  # median over the rounds of reference / own

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


@dataclass(frozen=True)
class Benchmark:
    """Timings against a reference, and further measurements as lines of text and as plain values."""

    title: str
    reference: str
    timings: tuple[Timing, ...]
    notes: tuple[str, ...]
    details: dict[str, Any]

    def as_text(self) -> str:
        """A table: median, fastest and slowest round in milliseconds, and the ratio to the reference."""
        lines = [self.title, f"{'length':>7}  {'':24}{'median':>9}{'fastest':>9}{'slowest':>9} ms   x {self.reference}"]
        for t in self.timings:
            figures = "".join(f"{1e3 * s:9.2f}" for s in (t.median, min(t.seconds), max(t.seconds)))
            lines.append(f"{t.length:7,}  {t.name:24}{figures}   {t.times_faster:6.2f}")
        return "\n".join([*lines, *self.notes])

    def as_json(self) -> str:
        values = {"title": self.title, "reference": self.reference, "details": self.details, "notes": self.notes}
        return json.dumps(values | {"timings": [asdict(t) | {"median": t.median} for t in self.timings]}, indent=1)


def _timings(steps: Mapping[str, Callable[[], object]], reference: str, length: int, rounds: int) -> list[Timing]:
    seconds = interleaved(steps, rounds=rounds)
    return [
        Timing(name, length, tuple(own), statistics.median(r / o for r, o in zip(seconds[reference], own, strict=True)))
        for name, own in seconds.items()
    ]


def attention(lengths: Sequence[int] | None = None, rounds: int = 5, *, told: Told | None = None) -> Benchmark:
    """Forward and backward pass of causal attention, 8 heads of 64, float32, one sequence: against PyTorch's fused one.

    The best peer is timed too where it is installed: linear-attention-transformer's causal form, which is approximate,
    since it leaves out the tokens of a query's own chunk.

    Also measures NormAttention's peak memory per token, constant if memory is linear in the length, and the ratios of
    ``cpu_costs``, at 4,096 tokens or the smallest of ``lengths``. ``told`` gets a line of progress for each length.
    """
    steps_at, memory_at = lengths or ATTENTION_LENGTHS, lengths or MEMORY_LENGTHS
    timings: list[Timing] = []
    modules: dict[str, Callable[..., Tensor]] = {
        name: mechanisms.build(name, {"heads": HEADS, "head_dim": HEAD_DIM, "causal": True})
        for name in ("softmax", "norm", "linear", "diag")
    }
    if find_spec("linear_attention_transformer") is not None:
        from linear_attention_transformer.linear_attention_transformer import causal_linear_attn

        modules[PEER] = causal_linear_attn
    for length in tracked(steps_at, "length", steps_at, told):
        able = {name: module for name, module in modules.items() if name != PEER or length % PEER_CHUNK == 0}
        steps = {name: attention_step(module, length) for name, module in able.items()}
        timings += _timings(steps, "softmax", length, rounds)
    memory = {
        n: peak_bytes(attention_step(modules["norm"], n)) / n
        for n in tracked(memory_at, "memory at length", memory_at, told)
    }
    costs = cpu_costs.ratios(min(lengths or (4096,)), rounds, told)
    per_length = ", ".join(f"{per_token / 1024:.1f} KiB a token at {n:,}" for n, per_token in memory.items())
    notes = [
        *(f"aim at {n:,}: norm {AIMS[n]:g} x" for n in AIMS if n in {t.length for t in timings}),
        f"memory of norm, forward and backward: {per_length}",
        *map(str, costs),
    ]
    details = {"bytes_per_token": memory, "ratios": [asdict(ratio) | {"median": ratio.median} for ratio in costs]}
    threads = torch.get_num_threads()
    title = f"attention, causal, {HEADS} heads of {HEAD_DIM}, float32, forward + backward, {threads} thread(s)"
    return Benchmark(title, "softmax", tuple(timings), tuple(notes), details)


def training(
    lengths: Sequence[int] | None = None, rounds: int = 5, tokens: int = _TOKENS_PER_STEP, *, told: Told | None = None
) -> Benchmark:
    """One optimiser step of decoders of equal size (4 layers, width 256), ``tokens`` in it at every length.

    Per length and architecture: tokens per second, a step's peak memory and the input pipeline's share of its time.
    For the quick preset's steps: that share, the share of matrix products in the operators' time, and of the others.
    ``told`` gets a line of progress for each length and step.
    """
    timings: list[Timing] = []
    throughput, quick, notes = [], [], []
    names = ("vanilla", "linear", "transnormer-t1", "transnormer-t2")
    for length in tracked(lengths or TRAINING_LENGTHS, "length", told=told):
        size = Size("decoder", 4, dim=256, heads=4, block_size=64, batch=max(tokens // length, 1), length=length)
        steps = {name: _training_step(name, size) for name in names}
        batch_seconds = _batch_seconds(size, rounds)
        own = _timings(steps, "vanilla", length, rounds)
        timings += own
        for t in own:
            per_second, peak = size.batch * length / t.median, peak_bytes(steps[t.name])
            share = batch_seconds / (batch_seconds + t.median)
            row = {"length": length, "name": t.name, "tokens_per_second": per_second, "peak_bytes": peak}
            throughput.append(row | {"input_share": share})
            notes.append(
                f"{length:,} {t.name}: {per_second:,.0f} tokens/s, {peak / 2**20:,.0f} MiB,"
                f" input pipeline {share:.2%} of a step"
            )
    for title, (size, names) in tracked(QUICK.items(), "step of the quick preset", told=told):
        batch_seconds = _batch_seconds(size, rounds)
        for name in names:
            step = _median_seconds(_training_step(name, size), max(rounds, 3))
            reading = batch_seconds / (batch_seconds + step)
            share, costs = _matrix_share(name, size)
            row = {"step": title, "name": name, "matrix_products": share, "others": costs}
            quick.append(row | {"input_share": reading})
            rest = ", ".join(f"{op.removeprefix('aten::')} {cost:.1%}" for op, cost in costs.items())
            notes.append(
                f"quick step, {title}, {name}: input pipeline {reading:.2%};"
                f" {share:.0%} in matrix products; then {rest}"
            )
    title = f"training step, decoders of width 256, {tokens} tokens a step, {torch.get_num_threads()} threads"
    return Benchmark(title, "vanilla", tuple(timings), tuple(notes), {"throughput": throughput, "quick": quick})


def _batch_seconds(size: Size, rounds: int) -> float:
    """Median seconds in which the trainer's sampler makes one batch of the embedded text."""
    corpus = load_text_corpus("wikipedia", "bytes")
    masked = None if size.kind == "decoder" else (corpus.vocabulary, MaskingConfig())
    sampler, number = WindowBatches(corpus.tokens["train"], size.length, size.batch, seed=0, masked=masked), count()
    return _median_seconds(lambda: sampler.batch(next(number)), max(rounds, 20))


def _median_seconds(step: Callable[[], object], rounds: int) -> float:
    return statistics.median(interleaved({"": step}, rounds=rounds)[""])


def _training_step(name: str, size: Size) -> Callable[[], None]:
    """The trainer's step on random tokens: forward, loss, backward, norms, clipping, AdamW."""
    shape = asdict(size) | {"vocab_size": 258, "max_length": size.length}
    config = architecture(name, **{key: value for key, value in shape.items() if key not in ("batch", "length")})
    model, options = build_model(config, seed=0), OptimizerConfig(clip_norm=1.0)
    optimizer, parameters = build_optimizer(options, model), list(model.parameters())
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(256, (size.batch, size.length + 1), generator=generator)
    inputs, targets = ids[:, :-1], ids[:, 1:]
    if size.kind == "encoder":
        chosen = torch.rand(inputs.shape, generator=generator) < PREDICTED_SHARE
        targets = inputs.masked_fill(~chosen, IGNORE)

    def step() -> None:
        model(inputs, targets_BN=targets).backward()
        clip(parameters, options, torch.linalg.vector_norm(gradient_norms(gradients_of(parameters))))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _matrix_share(name: str, size: Size) -> tuple[float, dict[str, float]]:
    """Shares of the operators' time in a step on one thread: of matrix products, and of the ten costliest others.

    An operator's time is its median over five steps, so one interruption does not count.
    """
    threads, seen = torch.get_num_threads(), []
    torch.set_num_threads(1)
    try:
        step = _training_step(name, size)
        for _ in range(3):
            step()
        for _ in range(5):
            with profile(activities=[ProfilerActivity.CPU]) as profiler:
                step()
            seen.append({event.key: event.self_cpu_time_total for event in profiler.key_averages()})
    finally:
        torch.set_num_threads(threads)
    costs = {op: statistics.median(window.get(op, 0.0) for window in seen) for op in seen[0]}
    total = sum(costs.values())
    products = {op for op in costs if op in _PRODUCTS or "scaled_dot_product" in op}
    others = sorted((op for op in costs if op not in products), key=lambda op: -costs[op])
    return sum(costs[op] for op in products) / total, {op: costs[op] / total for op in others[:10]}
