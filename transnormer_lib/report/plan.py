"""What a preset would train, and an estimate of the time here. Reads no data, trains nothing."""

import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transnormer_lib.project import Project
from transnormer_lib.report.train import runs_of

if TYPE_CHECKING:
    from transnormer_lib.training.config import RunConfig
    from transnormer_lib.training.stored_run import Run

# The fraction of a device's matrix-product rate that a training step reaches. Measured on one core of an AMD EPYC: CPU
# time of the trainer's steps, decoders of 4 layers, against 1024 x 1024 products:
#     width 64, 8 x 64 tokens a step     softmax 0.47, TransNormer T2 0.35
#     width 128, 16 x 128 tokens         softmax 0.70, TransNormer T2 0.56
#     width 256, 16 x 256 tokens         softmax 0.85, TransNormer T2 0.69
# So one number for all is wrong by up to a factor of two, and by more where runs share a processor: the kept night took
# five times this estimate. Not measured on a GPU.
UTILISATION = 0.5


@dataclass(frozen=True)
class PlannedRun:
    """One run of a plan. Sizes and FLOPs follow from the config; ``hours`` is an estimate for this machine."""

    notebook: str
    run: str
    kind: str  # decoder or encoder
    layers: int
    dim: int
    heads: int
    attention: tuple[str, ...]  # per layer
    parameters: int
    tokens: int  # upper limit: every sequence at full length, both of a pair, all candidates; of a passage one window
    flops: float  # of training on these tokens; matrix products, a multiply-add counts two
    hours: float  # on this device
    stored: bool  # the store has it from the present code; its data are assumed unchanged
    shared_with: str | None  # an earlier notebook that needs the same run, which is trained once


@dataclass(frozen=True)
class Device:
    """A device and its measured rate of matrix products, in operations per second."""

    name: str
    rate: float


def measure_device(gpu: bool) -> Device:
    """The rate of float32 products of 1024 x 1024 matrices; with ``gpu`` and a GPU, of float16 ones of 8192 x 8192.

    The fastest product within a quarter of a second counts, because other work on the machine slows some of them.
    """
    import platform

    import torch

    cuda = gpu and torch.cuda.is_available()
    device, dtype = (torch.device("cuda"), torch.float16) if cuda else (torch.device("cpu"), torch.float32)
    size = 8192 if cuda else 1024
    a = torch.randn(size, size, device=device, dtype=dtype)
    fastest, started, now = float("inf"), time.perf_counter(), 0.0
    while now < started + 0.25:
        before = time.perf_counter()
        a @ a
        if cuda:
            torch.cuda.synchronize()
        now = time.perf_counter()
        fastest = min(fastest, now - before)
    rate = 2.0 * size**3 / fastest
    if cuda:
        return Device(torch.cuda.get_device_name(), rate)
    threads = torch.get_num_threads()
    return Device(f"{platform.machine()} CPU, {threads} thread{'' if threads == 1 else 's'}", rate)


def plan(project: Project, preset: str, notebooks: Sequence[str], device: Device) -> list[PlannedRun]:
    """Every run of these notebooks' studies, in order, once per notebook and after the run that it starts from.

    Raises :class:`UserMistake` for parameters that a notebook does not have or a study cannot use.
    """
    from transnormer_lib.models.flops import sequences_of, training_flops
    from transnormer_lib.training.setup import parameters_of

    stored = StoredRuns()

    @cache
    def sizes(key: str) -> tuple[int, int]:
        config = models[key]
        return parameters_of(config), training_flops(config.model, config.data.length, 1, config.head)

    models: dict[str, Any] = {}
    first: dict[str, str] = {}  # identity of a run → the first notebook that needs it
    planned = []
    for notebook in notebooks:
        for what, config in with_starts(runs_of(project, preset, notebook)).items():
            key = repr((config.model, config.head, config.data.length))
            models.setdefault(key, config)
            parameters, flops_per_sequence = sizes(key)
            sequences = config.steps * config.data.batch_size
            flops = float(flops_per_sequence) * sequences
            earlier = first.setdefault(what, notebook)
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
                    tokens=sequences * config.data.length * (sequences_of(config.head) if config.head else 1),
                    flops=flops,
                    hours=hours(flops, device),
                    stored=stored.find(config) is not None,
                    shared_with=None if earlier == notebook else earlier,
                )
            )
    return planned


def hours(flops: float, device: Device) -> float:
    """An estimate of the time that these operations of training take on the device."""
    return flops / (device.rate * UTILISATION) / 3600


def with_starts(configs: "Sequence[RunConfig]") -> "dict[str, RunConfig]":
    """The runs by identity, each after the run that it starts from."""
    found: dict[str, RunConfig] = {}
    for config in configs:
        chain = config.chain()
        for number, run in enumerate(chain):
            found.setdefault(identity(chain[: number + 1]), run)
    return found


def identity(chain: "Sequence[RunConfig]") -> str:
    """What distinguishes a run, the last of its chain, from others, apart from the content of its data."""
    # Bands are not part of the identity: notebooks may expect different losses of one run.
    return repr([run.identity() for run in chain])


class StoredRuns:
    """The complete runs of the store. They are found by the data that their records name; no data are read."""

    def __init__(self, root: Path | None = None) -> None:
        from transnormer_lib.training.store import default_root

        self._folders: dict[str, list[Path]] = defaultdict(list)  # by the name in the config
        self._damages: set[str] = set()  # those that were told
        for path in (root or default_root()).glob("[!.]*-*/"):
            self._folders[path.name.rpartition("-")[0]].append(path)

    def find(self, config: "RunConfig") -> "Run | None":
        """This run from the present code; None if there is none. A damaged run counts as missing, and is named once.

        Its weights are not read, so damage within them is left to those who use them.
        """
        from transnormer_lib.training.identity import run_id
        from transnormer_lib.training.stored_run import RunDamaged, read_run, recorded_data

        sources = {run.data.source for run in config.chain()}
        for folder in self._folders.get(config.name, ()):
            try:
                data = recorded_data(folder)
                if sources <= data.keys() and folder.name == run_id(config, data):
                    return read_run(folder, skim=True)
            except RunDamaged as damage:
                if str(damage) not in self._damages:
                    print(f"{damage}; it counts as missing", file=sys.stderr)
                self._damages.add(str(damage))
        return None


def as_json(runs: Sequence[PlannedRun]) -> list[dict[str, Any]]:
    """The plan as plain values, one object per run."""
    return [asdict(run) for run in runs]


def as_text(runs: Sequence[PlannedRun], device: Device, preset: str) -> str:
    """A table: one line per run, totals per notebook and of all; a run that several notebooks need counts once."""
    width = max([len(run.run) for run in runs], default=3)
    models = {run: f"{run.kind} {run.layers} x {run.dim}, {run.heads} heads: {_stack(run.attention)}" for run in runs}
    model_width = max(map(len, models.values()), default=5)
    sizes = f"{'parameters':>12}  {'tokens':>9}  {'FLOPs':>9}  {'hours':>9}"
    lines = [f"{'run':{width}}  {'model':{model_width}}  {sizes}"]
    for notebook in dict.fromkeys(run.notebook for run in runs):
        lines.append(notebook)
        mine = [run for run in runs if run.notebook == notebook]
        for run in mine:
            note = f"  with {run.shared_with}" if run.shared_with else "  stored" if run.stored else ""
            sizes = f"{run.parameters:12,}  {run.tokens:9.2e}  {run.flops:9.2e}  {run.hours:9.3g}"
            lines.append(f"{run.run:{width}}  {models[run]:{model_width}}  {sizes}{note}")
        own = [run for run in mine if run.shared_with is None]
        lines.append(f"{'':{width}}  {len(own)} runs not counted before, {sum(run.hours for run in own):.3g} hours")
    own = [run for run in runs if run.shared_with is None]
    lacking = [run for run in own if not run.stored]
    lines.append(
        f"{preset}: {len(own)} runs, {sum(r.flops for r in own):.3g} FLOPs, {sum(r.hours for r in own):.3g} hours; "
        f"the store lacks {len(lacking)}, {sum(r.hours for r in lacking):.3g} hours"
    )
    lines.append(
        "tokens, FLOPs: upper limits, with every sequence at full length; of a passage in windows, one of them"
    )
    lines.append(
        f"hours: FLOPs over {UTILISATION:.0%} of {device.rate / 1e9:,.0f} GFLOP/s, measured on {device.name}; "
        "one run after the other; small models, and several runs at once, take several times as long"
    )
    return "\n".join(lines)


def _stack(attention: Sequence[str]) -> str:
    """The mechanisms, first layer first: ``2 diag, 2 norm``."""
    return ", ".join(f"{len(list(layers))} {name}" for name, layers in groupby(attention))
