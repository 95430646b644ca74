"""What the runs say: losses beside their floor, equal time against equal steps, samples and completions."""

import base64
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from transnormer_lib.analysis.seeds import mean, spread
from transnormer_lib.data.pixels import PixelSet
from transnormer_lib.ledger.kept import Kept
from transnormer_lib.models.language_model import LanguageModel
from transnormer_lib.models.pixel_generation import completed
from transnormer_lib.studies.common import findings
from transnormer_lib.studies.common.language_models import final_bits
from transnormer_lib.studies.common.measured import Measured, by_row
from transnormer_lib.studies.image_generation.judge import Judge, upper_half
from transnormer_lib.studies.image_generation.published import value
from transnormer_lib.studies.image_generation.runs import MECHANISMS, Parameters, search
from transnormer_lib.training.store import RunStore
from transnormer_lib.training.stored_run import Run

_PRINTED = {"softmax": "Softmax", "linear": "Linear", "lsh-1": "LSH-1", "lsh-4": "LSH-4"}
Pixels = NDArray[np.uint8]


def measure(parameters: Parameters, store: RunStore) -> list[Measured]:
    """Train or load every judged run."""
    return [Measured(row, seed, final_bits(run), run) for row, seed, run in search(parameters).trained(store)]


def table(measured: Sequence[Measured], floors: Mapping[str, float], printed: str = "table_1") -> list[dict[str, Any]]:
    """One line per row with its bits per dimension over the seeds and in print, then the simple models."""
    lines: list[dict[str, Any]] = []
    for row, bits in by_row(measured).items():
        runs = [m.run for m in measured if m.row == row]
        lines.append(
            {
                "model": row,
                "bits per dimension": mean(bits),
                "range": spread(bits, 3),
                "training, s": mean([run.record["seconds"] - _validating(run) for run in runs]),
                "published": value(printed, "bits_per_dim", method=_PRINTED[row]),
            }
        )
    nothing = {"range": "", "training, s": None, "published": None}
    lines += [{"model": name, "bits per dimension": bits} | nothing for name, bits in floors.items()]
    return lines


def _validating(run: Run) -> float:
    """Seconds of a run that were not training."""
    record = run.record
    trained = record["tokens"] / record["tokens_per_second"] if record["tokens_per_second"] else 0.0
    return float(record["seconds"] - trained)


@dataclass(frozen=True)
class Curve:
    """Bits per dimension of one run on validation, by step and by seconds of training."""

    row: str
    seed: int
    steps: tuple[int, ...]
    seconds: tuple[float, ...]  # steps times the run's mean seconds per step
    bits: tuple[float, ...]

    def at_seconds(self, seconds: float) -> float:
        """The loss after ``seconds`` of training, interpolated between two measurements in the logarithm of time.

        Infinite before the first and after the last.
        """
        if not self.seconds[0] <= seconds <= self.seconds[-1] * (1 + 1e-9):
            return math.inf
        return float(np.interp(math.log(seconds), np.log(self.seconds), self.bits))


def curves(measured: Sequence[Measured]) -> list[Curve]:
    """The curve of every finished run."""
    found = []
    for m in measured:
        record = m.run.record
        if record["status"] != "finished" or not record["steps"]:
            continue
        points = [point for point in record["validation"] if point["step"]]
        each = (record["seconds"] - _validating(m.run)) / record["steps"]
        steps = tuple(point["step"] for point in points)
        bits = tuple(point["bits_per_token"] for point in points)
        found.append(Curve(m.row, m.seed, steps, tuple(step * each for step in steps), bits))
    return found


def at_equal_time(of: Sequence[Curve], row: str, other: str) -> tuple[list[int], list[float], list[float]]:
    """(seeds, losses of ``row``, losses of ``other``) after the seconds that the faster of the two trained in all."""
    mine, theirs = ({c.seed: c for c in of if c.row == name} for name in (row, other))
    seeds = sorted(mine.keys() & theirs.keys())
    until = {seed: min(mine[seed].seconds[-1], theirs[seed].seconds[-1]) for seed in seeds}
    return (
        seeds,
        [mine[seed].at_seconds(until[seed]) for seed in seeds],
        [theirs[seed].at_seconds(until[seed]) for seed in seeds],
    )


def write(row: str, model: LanguageModel, given: Pixels, pixels: int, seed: int, device: str = "cpu") -> Pixels:
    """Images [n, pixels] that continue ``given`` [n, M]; LSH attention reads the prefix anew for every pixel."""
    generator = torch.Generator(device).manual_seed(seed)
    ids = torch.from_numpy(given.astype(np.int64)).to(device)
    made = completed(model.to(device), ids, pixels, generator, recompute=MECHANISMS[row] == "reformer")
    return made.cpu().numpy().astype(np.uint8)


def first_values(pixels: PixelSet, count: int, seed: int) -> Pixels:
    """The first value [count, 1] of images drawn from the training set, since no model predicts it."""
    chosen = np.random.default_rng(seed).integers(len(pixels.images["train"]), size=count)
    return pixels.images["train"][chosen, :1]


@dataclass(frozen=True)
class Sheet:
    """What Figures 3 and 4 of the paper show: samples by row, and completions by row beside the images themselves."""

    shape: tuple[int, int, int]
    samples: Mapping[str, Pixels]
    completions: Mapping[str, Pixels]
    originals: Pixels

    def packed(self) -> dict[str, Any]:
        """As JSON, compressed, to be kept."""
        return {
            "shape": list(self.shape),
            "samples": {row: _packed(images) for row, images in self.samples.items()},
            "completions": {row: _packed(images) for row, images in self.completions.items()},
            "originals": _packed(self.originals),
        }

    @classmethod
    def unpacked(cls, kept: Mapping[str, Any]) -> "Sheet":
        """From :meth:`packed`."""
        height, width, channels = kept["shape"]
        values = height * width * channels
        rows = {
            name: {row: _unpacked(text, values) for row, text in kept[name].items()}
            for name in ("samples", "completions")
        }
        return cls((height, width, channels), **rows, originals=_unpacked(kept["originals"], values))


def _packed(images: Pixels) -> str:
    return base64.b64encode(zlib.compress(np.ascontiguousarray(images).tobytes(), 9)).decode("ascii")


def _unpacked(text: str, values: int) -> Pixels:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8).reshape(-1, values)


@dataclass(frozen=True)
class Completed:
    """Completions of one run, and the share in which the judge sees the true digit."""

    row: str
    seed: int
    images: Pixels
    agreement: float


def complete(
    measured: Sequence[Measured],
    rows: Sequence[str],
    pixels: PixelSet,
    judge: Judge,
    count: int,
    seed: int,
    device: str = "cpu",
) -> list[Completed]:
    """The lower halves of ``count`` test images, spread evenly, by every finished run of ``rows``."""
    chosen = pixels.spread("test", count)
    images, labels = pixels.images["test"][chosen], pixels.labels["test"][chosen]
    found = []
    for m in measured:
        if math.isinf(m.validation) or m.row not in rows:
            continue
        made = write(m.row, m.run.model(), images[:, : judge.given], images.shape[1], seed, device)
        found.append(Completed(m.row, m.seed, made, judge.agreement(made, labels)))
    return found


def agreements(found: Sequence[Completed]) -> dict[str, list[float]]:
    """The agreement of every row, one per seed in their order."""
    rows: dict[str, list[float]] = {one.row: [] for one in found}
    for one in sorted(found, key=lambda one: one.seed):
        rows[one.row].append(one.agreement)
    return rows


def sheet(
    measured: Sequence[Measured],
    found: Sequence[Completed],
    pixels: PixelSet,
    count: int,
    shown: int,
    seed: int,
    device: str = "cpu",
) -> Sheet:
    """``shown`` samples and completions of the first seed of every row that finished.

    Its completions are among the ``count`` of ``found``; a row that is not there draws those that are shown.
    """
    places = np.arange(count)[:: max(count // shown, 1)][:shown]
    originals = pixels.images["test"][pixels.spread("test", count)[places]]
    given = originals[:, : upper_half(pixels)]
    made = {(c.row, c.seed): c.images[places] for c in found}
    completions = {}
    for row, m in _first_finished(measured).items():
        known = made.get((row, m.seed))
        completions[row] = (
            write(row, m.run.model(), given, originals.shape[1], seed, device) if known is None else known
        )
    return Sheet(pixels.shape, sampled(measured, pixels, shown, seed, device), completions, originals)


def _first_finished(measured: Sequence[Measured]) -> dict[str, Measured]:
    """The first seed of every row that finished."""
    return {m.row: m for m in sorted(measured, key=lambda m: -m.seed) if math.isfinite(m.validation)}


def sampled(
    measured: Sequence[Measured], pixels: PixelSet, shown: int, seed: int, device: str = "cpu"
) -> dict[str, Pixels]:
    """Unconditional samples [shown, values] of the first seed of every row that finished."""
    size = pixels.images["test"].shape[1]
    return {
        row: write(row, m.run.model(), first_values(pixels, shown, seed), size, seed, device)
        for row, m in _first_finished(measured).items()
    }


def losses_in_words(bits: Mapping[str, Sequence[float]], floor: tuple[str, float]) -> str:
    """Which row has the lowest loss, and the runs that do not beat the strongest simple model, in sentences."""
    lead = findings.lead(bits, what="loss", unit=" bits", digits=3)
    return f"{lead} {findings.behind(bits, f'the {floor[0]}', floor[1], digits=3)}"


def bits_in_words(bits: Mapping[str, Sequence[float]], floor: tuple[str, float]) -> str:
    """The mean loss of every row beside the strongest simple model's, without an order."""
    means = ", ".join(f"{row} {findings.number(mean(of), 3)}" for row, of in bits.items())
    return f"Mean bits per dimension: {means}; the {floor[0]} {floor[1]:.3f}."


def recognised(agreed: Mapping[str, Sequence[float]], references: Mapping[str, float], seeds: int) -> str:
    """In which share of completions a judge sees the true digit, beside the share for other lower halves.

    Shares are means over ``seeds`` runs of a row.
    """
    ours = findings.joined([f"{100 * mean(shares):.0f}% of {row}'s" for row, shares in agreed.items()])
    others = ", ".join(f"{name} {100 * share:.0f}%" for name, share in references.items())
    of = "one seed" if seeds == 1 else f"{seeds} seeds"
    return f"A judge of real digits sees the true one in {ours or 'none'} ({of}); with the lower half {others}."


# The kept claims that hold the shares: by claim, and side, what it is the share of.
_COMPLETED = {
    ("images-completions-keep-the-digit", "better"): "linear",
    ("images-completions-linear-as-good-as-softmax", "worse"): "softmax",
    ("images-completions-lsh-4-as-good-as-softmax", "better"): "lsh-4",
}
_REFERENCES = {
    ("images-completions-keep-the-digit", "worse"): "black",
    ("images-completions-add-nothing-false", "worse"): "none (a judge of upper halves)",
}


def kept_completions(found: Kept) -> str:
    """:func:`recognised` from the kept claims; that nothing was judged where they hold no shares."""
    sides = _measured(found)
    agreed = {row: sides[side] for side, row in _COMPLETED.items() if side in sides}
    references = {name: mean(sides[side]) for side, name in _REFERENCES.items() if side in sides}
    if not agreed:
        return "No judge has read them."
    return recognised(agreed, references, len(next(iter(agreed.values()))))


def kept_losses(found: Kept) -> str:
    """:func:`bits_in_words` of linear and softmax attention from the kept claims."""
    claim = next((c for c in found.claims if c["id"] == "images-linear-as-good-as-softmax"), None)
    measured = claim["measured"] if claim else None
    if not isinstance(measured, Mapping) or "floor" not in measured:
        return "Their losses were not compared."
    bits = {"linear": measured["better"], **measured.get("controls", {})}
    return bits_in_words(bits, (str(measured["floor"]["name"]).removeprefix("the "), measured["floor"]["value"]))


def _measured(found: Kept) -> dict[tuple[str, str], list[float]]:
    """What kept claims measured on either side, one value per seed, by claim and side."""
    return {
        (claim["id"], side): claim["measured"][side]
        for claim in found.claims
        if isinstance(claim["measured"], Mapping)
        for side in ("better", "worse")
        if isinstance(claim["measured"].get(side), list)
    }
