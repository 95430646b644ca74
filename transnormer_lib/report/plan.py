"""What a preset would train, and how long that would take here: computed, not tried. Reads no data, trains nothing."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from transnormer_lib.report.project import Project, UserMistake

# The share of a device's matrix-product rate that training reaches, elementwise work, data and evaluation counted in.
# Measured on one core at width 64 (TransNormer T2, 4 layers, 512 tokens a step): 0.36; at width 256: 0.55. Wider models
# come closer to the device's rate.
UTILISATION = 0.4


@dataclass(frozen=True)
class PlannedRun:
    """One run of a plan. Sizes and operations follow from the config; ``hours`` is an estimate for this machine."""

    notebook: str
    run: str
    kind: str  # decoder or encoder
    layers: int
    dim: int
    heads: int
    attention: tuple[str, ...]  # per layer
    parameters: int
    tokens: int  # that training reads
    flops: float  # of training; matrix products, a multiply-add counting two
    hours: float  # on this device, one run after the other
    shared_with: str | None  # the notebook listed earlier that asks for the same run: it is trained once


@dataclass(frozen=True)
class Device:
    """What the hours are for: the device and its measured rate of matrix products, operations per second."""

    name: str
    rate: float


def measure_device(gpu: bool) -> Device:
    """Time products of 1024 x 1024 float32 matrices for a quarter of a second; float16 on a GPU, if asked for one."""
    import platform

    import torch

    cuda = gpu and torch.cuda.is_available()
    device, dtype = (torch.device("cuda"), torch.float16) if cuda else (torch.device("cpu"), torch.float32)
    size = 8192 if cuda else 1024
    a = torch.randn(size, size, device=device, dtype=dtype)
    for _ in range(3):
        a @ a
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < 0.25:
        a @ a
        if cuda:
            torch.cuda.synchronize()
        count += 1
    rate = 2.0 * size**3 * count / (time.perf_counter() - started)
    if cuda:
        return Device(torch.cuda.get_device_name(), rate)
    return Device(f"{platform.machine()} CPU, {torch.get_num_threads()} thread(s)", rate)


def plan(project: Project, preset: str, notebooks: Sequence[str], device: Device) -> list[PlannedRun]:
    """Every run of these notebooks' studies, in their order.

    Raises :class:`UserMistake` for parameters that a notebook does not take or a study cannot use.
    """
    from transnormer_lib import studies
    from transnormer_lib.models.flops import training_flops
    from transnormer_lib.models.language_model import count_parameters
    from transnormer_lib.report.parameters import resolve

    @cache
    def sizes(key: str) -> tuple[int, int]:
        config = models[key]
        return count_parameters(config.model), training_flops(config.model, config.data.length, 1)

    models: dict[str, Any] = {}
    first: dict[str, str] = {}  # run, by all of its fields → the notebook that is listed first
    planned = []
    for notebook in notebooks:
        try:
            configs = studies.runs(notebook, resolve(project, preset, notebook))
        except UserMistake:
            raise
        except ValueError as mistake:
            raise UserMistake(f"{notebook}: {mistake}") from None
        for config in configs:
            key = repr((config.model, config.data.length))
            models.setdefault(key, config)
            parameters, flops_per_sequence = sizes(key)
            sequences = config.steps * config.data.batch_size
            flops = float(flops_per_sequence) * sequences
            earlier = first.setdefault(repr(config), notebook)
            planned.append(
                PlannedRun(
                    notebook=notebook,
                    run=config.name,
                    kind=config.model.kind,
                    layers=config.model.layers,
                    dim=config.model.dim,
                    heads=config.model.heads,
                    attention=config.model.attention,
                    parameters=parameters,
                    tokens=sequences * config.data.length,
                    flops=flops,
                    hours=flops / (device.rate * UTILISATION) / 3600,
                    shared_with=None if earlier == notebook else earlier,
                )
            )
    return planned


def as_json(runs: Sequence[PlannedRun]) -> list[dict[str, Any]]:
    """The plan as plain values, one object per run."""
    return [asdict(run) for run in runs]


def as_text(runs: Sequence[PlannedRun], device: Device, preset: str) -> str:
    """A table: one line per run, totals per notebook and in all; runs that are trained elsewhere count once."""
    width = max([len(run.run) for run in runs], default=3)
    lines = [f"{'run':{width}}  {'parameters':>12}  {'tokens':>9}  {'FLOPs':>9}  {'hours':>9}"]
    for notebook in dict.fromkeys(run.notebook for run in runs):
        lines.append(notebook)
        mine = [run for run in runs if run.notebook == notebook]
        for run in mine:
            shared = f"  with {run.shared_with}" if run.shared_with else ""
            sizes = f"{run.parameters:12,}  {run.tokens:9.2e}  {run.flops:9.2e}  {run.hours:9.3g}"
            lines.append(f"{run.run:{width}}  {sizes}{shared}")
        own = [run for run in mine if run.shared_with is None]
        lines.append(f"{'':{width}}  {len(own)} runs of its own, {sum(run.hours for run in own):.3g} hours")
    own = [run for run in runs if run.shared_with is None]
    lines.append(
        f"{preset}: {len(own)} runs, {sum(r.flops for r in own):.3g} FLOPs, {sum(r.hours for r in own):.3g} hours"
    )
    lines.append(
        f"hours: FLOPs over {UTILISATION:.0%} of {device.rate / 1e9:,.0f} GFLOP/s, measured on {device.name}; "
        "one run after the other"
    )
    return "\n".join(lines)
