"""What a sweep would train, and about how long that takes: ``transnormer sweep --dry-run``. Reads no data.

The time of a run rests on the stored runs of these notebooks, in this order:

- ``recipe``: the seconds per step of runs with the same model, data and batch, which differ in seed or rate alone;
- ``notebook``: the seconds per FLOP of the notebook's runs;
- ``rate``: FLOPs over the device's rate, as in ``report.plan``, times what other stored runs took over that.

Of several measurements the median counts: a run that was paused has the pause in its seconds.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatch
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from transnormer_lib.project import Project, UserMistake
from transnormer_lib.report.plan import UTILISATION, Device, StoredRuns, hours, identity, with_starts
from transnormer_lib.report.train import runs_of

if TYPE_CHECKING:
    from transnormer_lib.training.config import RunConfig

Basis = Literal["recipe", "notebook", "rate"]


@dataclass(frozen=True)
class NotebookForecast:
    """The runs of one notebook, with those that they start from, and the time of those that a sweep would train."""

    notebook: str
    runs: int
    shared: int  # of these, counted with an earlier notebook and not again
    stored: int
    left: int
    hours: float  # of one core, for all runs left; of one device on a GPU
    rests_on: dict[Basis, int]  # how many of the runs left


@dataclass(frozen=True)
class Forecast:
    """What a sweep of a preset would train, notebook by notebook, and what the hours rest on."""

    notebooks: list[NotebookForecast]
    gpu: bool
    device: Device  # of the rate
    measured: int  # stored runs whose time is known
    measured_on: list[str]
    over_rate: float | None  # how many times as long they took as the rate gives, the median; None without such runs


def forecast(project: Project, preset: str, notebooks: Sequence[str], pattern: str | None, device: Device) -> Forecast:
    """What a sweep of these notebooks would train, of the runs whose names match ``pattern``.

    Data are taken to be here. Raises :class:`UserMistake` for wrong parameters, a model that has no room
    in this machine's memory, and a ``pattern`` that matches no run.
    """
    chosen, stored = project.preset(preset), StoredRuns()
    measured = _Measured(chosen.device == "gpu", device)
    asked: dict[str, list[RunConfig]] = {}
    here: set[str] = set()
    for notebook in notebooks:
        asked[notebook] = runs_of(project, preset, notebook)
        for what, config in with_starts(asked[notebook]).items():
            if run := stored.find(config):
                measured.add(notebook, config, run.record, again=what in here)
                here.add(what)
    if pattern is not None:
        asked = {name: [run for run in configs if fnmatch(run.name, pattern)] for name, configs in asked.items()}
        if not any(asked.values()):
            raise UserMistake(f"run={pattern!r}: no run of preset {preset!r} has such a name")
    counted: set[str] = set()
    to_train: set[str] = set()
    lines = []
    for notebook, configs in asked.items():
        needed, lacking = with_starts(configs).keys(), _lacking(configs, here)
        times = [measured.estimate(notebook, run) for what, run in lacking.items() if what not in to_train]
        seconds = sum(time for _, time in times) * (1 if measured.gpu else chosen.threads)
        lines.append(
            NotebookForecast(
                notebook=notebook,
                runs=len(needed),
                shared=len(needed & counted),
                stored=len(needed & here - counted),
                left=len(times),
                hours=seconds / 3600,
                rests_on=dict(Counter(basis for basis, _ in times)),
            )
        )
        counted |= needed
        to_train |= lacking.keys()
    over_rate = median(measured.over_rate) if measured.over_rate else None
    return Forecast(lines, measured.gpu, device, len(measured.over_rate), sorted(measured.devices), over_rate)


def _lacking(configs: "Sequence[RunConfig]", here: set[str]) -> "dict[str, RunConfig]":
    """The runs that a sweep would train; a stored run needs no run to start from."""
    found = {}
    for config in configs:
        chain = config.chain()
        for end in range(len(chain), 0, -1):
            if (what := identity(chain[:end])) in here:
                break
            found[what] = chain[end - 1]
    return found


@dataclass
class _Measured:
    """The times of stored runs on a device of the preset's kind."""

    gpu: bool
    device: Device
    devices: set[str] = field(default_factory=set)  # that trained them
    over_rate: list[float] = field(default_factory=list)  # per run, its time over that by the rate
    _per_step: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # seconds, by recipe
    _per_flop: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # seconds, by notebook
    _flops: dict[str, int] = field(default_factory=dict)  # of training on one sequence, by model and length

    def add(self, notebook: str, config: "RunConfig", record: dict[str, Any], again: bool) -> None:
        """Count a stored run; ``again`` if another notebook has asked for it."""
        if record["steps"] == 0 or (record["device"] != "cpu") != self.gpu:
            return
        per_step = record["seconds"] * record["processes"] / record["steps"]
        per_flop = per_step * config.steps / record["flops"]
        self._per_flop[notebook].append(per_flop)
        if not again:
            self._per_step[_recipe(config)].append(per_step)
            self.over_rate.append(per_flop / (hours(1.0, self.device) * 3600))
            self.devices.add(record["provenance"]["device"])

    def estimate(self, notebook: str, config: "RunConfig") -> tuple[Basis, float]:
        """What the estimate rests on, and the seconds."""
        if found := self._per_step.get(_recipe(config)):
            return "recipe", median(found) * config.steps
        flops = self._flops_of(config)
        if found := self._per_flop.get(notebook):
            return "notebook", median(found) * flops
        return "rate", hours(flops, self.device) * 3600 * (median(self.over_rate) if self.over_rate else 1.0)

    def _flops_of(self, config: "RunConfig") -> float:
        from transnormer_lib.models.flops import training_flops
        from transnormer_lib.training.setup import parameters_of

        model = repr((config.model, config.head, config.data.length))
        if model not in self._flops:
            parameters_of(config)  # refuses a model that has no room in this machine's memory
            self._flops[model] = training_flops(config.model, config.data.length, 1, config.head)
        return float(self._flops[model]) * config.steps * config.data.batch_size


def _recipe(config: "RunConfig") -> str:
    """What decides the time of a step."""
    return repr((config.model, config.head, config.data, config.accumulate, config.precision, config.gradients))


def as_json(found: Forecast) -> dict[str, Any]:
    """The forecast as plain values."""
    return asdict(found)


def as_text(found: Forecast, preset: str, cores: int) -> str:
    """A line per notebook, the total for ``cores`` at work, and what the hours rest on."""
    width = max([len(one.notebook) for one in found.notebooks], default=8)
    unit = "GPU-hours" if found.gpu else "core-hours"
    lines = [f"{'notebook':{width}}  {'runs':>5}  {'shared':>6}  {'stored':>6}  {'left':>5}  {unit:>10}  estimated by"]
    rests_on: Counter[Basis] = Counter()
    for one in found.notebooks:
        bases = ", ".join(f"{basis} ({number})" for basis, number in one.rests_on.items())
        counts = f"{one.runs:5}  {one.shared:6}  {one.stored:6}  {one.left:5}"
        lines.append(f"{one.notebook:{width}}  {counts}  {one.hours:10.3g}  {bases}".rstrip())
        rests_on.update(one.rests_on)
    total = sum(one.hours for one in found.notebooks)
    together = "" if found.gpu else f", on {cores} at a time {total / cores:.3g} hours"
    lines.append(
        f"{preset}: {sum(one.runs - one.shared for one in found.notebooks)} runs, "
        f"{sum(one.stored for one in found.notebooks)} stored, {sum(one.left for one in found.notebooks)} left, "
        f"{total:.3g} {unit}{together}"
    )
    if any(one.shared for one in found.notebooks):
        lines.append("shared: an earlier notebook needs the run too; counted there")
    lines += [line for basis, line in _explained(found).items() if rests_on[basis]]
    return "\n".join(lines)


def _explained(found: Forecast) -> dict[Basis, str]:
    """What each basis means, in one line."""
    where = "; ".join(found.measured_on)
    rate = f"rate: FLOPs over {UTILISATION:.0%} of {found.device.rate / 1e9:,.0f} GFLOP/s on {found.device.name}"
    if found.over_rate is not None:
        rate += f", times the {found.over_rate:.2g} by which stored runs took longer (median of {found.measured})"
    return {
        "recipe": f"recipe: median seconds per step of stored runs with the same model, data and batch, on {where}",
        "notebook": f"notebook: median seconds per FLOP of the notebook's stored runs, on {where}",
        "rate": rate,
    }
