"""Do unbounded gradients make training unstable? Mechanisms on a ladder of learning rates, their denominator changed.

Every row is one mechanism in all layers of TransNormer's backbone, as a decoder, trained without clipping at every rate
of the ladder. What is judged is its *sensitivity to the learning rate* (Wortsman et al., 2023, arXiv:2309.14322,
Section 2): the mean of the final loss over the ladder, cut at that of a uniform guess, minus the best loss on the
ladder. A row that breaks at a rate at which another still trains has a higher sensitivity.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

from transnormer_lib.analysis.seeds import mean
from transnormer_lib.choices import Rotary
from transnormer_lib.ledger.values import shown
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.progress import tracked
from transnormer_lib.studies.common import language_models, rates
from transnormer_lib.studies.common.language_models import final_bits
from transnormer_lib.studies.gradient_stability import measures
from transnormer_lib.training.config import Precision, RunConfig
from transnormer_lib.training.store import RunStore
from transnormer_lib.training.stored_run import Run

# By claim, the two mechanisms, the one that should bear more first. A claim's name ends with "-lrpe", "-bf16", ...
CLAIMS: Mapping[str, tuple[str, str]] = {
    "softmax-bears-more-than-linear": ("softmax", "linear"),
    "norm-bears-more-than-linear": ("norm", "linear"),
    "detached-bears-more-than-linear": ("linear-detached", "linear"),
    "clamped-bears-more-than-linear": ("linear-clamped", "linear"),
}
# Rotation of queries and keys, and precision of the matrix products, with which every claim is judged.
SETTINGS: tuple[tuple[Rotary, Precision], ...] = (("none", "fp32"), ("lrpe", "fp32"), ("none", "bf16"))
_SPIKE = 0.5  # nats by which a step's training loss exceeds the mean of the _BEFORE steps before it
_BEFORE = 20


class Rung(NamedTuple):
    """One run's place."""

    mechanism: str
    rotary: Rotary
    precision: Precision
    seed: int
    rate: float


@dataclass(frozen=True)
class LadderParameters(rates.RateSearch):
    """The parameters of these runs; seeds and the rest of the models are the notebook's."""

    seeds: tuple[int, ...]  # one run per rung and seed; orderings are judged over them
    ladder_mechanisms: tuple[str, ...]  # each in all layers of TransNormer's backbone; none: nothing is trained
    ladder_settings: tuple[tuple[Rotary, Precision], ...]  # of queries and keys, and of the matrix products
    ladder_rates: tuple[float, ...]  # the rungs, rising
    ladder_length: int  # tokens of a sequence
    ladder_batch_size: int  # sequences per step
    ladder_steps: int  # optimiser steps; a tenth of them is warm-up


def rungs(parameters: LadderParameters) -> list[Rung]:
    """The places of all runs, mechanisms first, rates last."""
    return [
        Rung(mechanism, *setting, seed, rate)
        for mechanism, setting, seed, rate in product(
            parameters.ladder_mechanisms, parameters.ladder_settings, parameters.seeds, parameters.ladder_rates
        )
    ]


def model(rung: Rung, parameters: LadderParameters) -> ModelConfig:
    """The decoder of a rung."""
    size = replace(parameters, task="causal", length=parameters.ladder_length)
    return language_models.model(f"{rung.mechanism}/{rung.mechanism}", size, rotary=rung.rotary)


def run(rung: Rung, parameters: LadderParameters) -> RunConfig:
    """One training, with the norms of its gradients, none of which is clipped."""
    steps = parameters.ladder_steps
    own = replace(
        parameters, task="causal", length=parameters.ladder_length, batch_size=parameters.ladder_batch_size,
        steps=steps, warmup=steps // 10, learning_rate=rung.rate, precision=rung.precision, clip_norm=0.0, bands=(),
    )  # fmt: skip
    label = f"ladder-{rung.mechanism}-{rung.rotary}-{rung.precision}-lr{rung.rate:g}"
    return language_models.run(label, model(rung, parameters), rung.seed, own, gradients="norms")


def runs(parameters: LadderParameters) -> list[RunConfig]:
    """One run per rung."""
    return [run(rung, parameters) for rung in rungs(parameters)]


@dataclass(frozen=True)
class Climb:
    """One rung with what came of it."""

    rung: Rung
    bits: float  # of the last validation; infinite where the run diverged
    spikes: int  # steps after the warm-up whose training loss stands out
    largest: float  # the largest norm of the queries' and keys' gradient after the warm-up, over the median


def measure(parameters: LadderParameters, store: RunStore) -> list[Climb]:
    """Train or load every run."""
    found = []
    for rung in tracked(rungs(parameters), "run"):
        stored = store.get(run(rung, parameters))
        warmup = parameters.ladder_steps // 10
        found.append(
            Climb(rung, final_bits(stored), spikes(stored.record["train_loss"], warmup), _largest(stored, warmup))
        )
    return found


def spikes(losses: Sequence[float], warmup: int) -> int:
    """How many steps after the warm-up have a loss of half a nat above the mean of the twenty steps before, or none."""
    count = 0
    for step in range(max(warmup, 1), len(losses)):
        before = losses[max(step - _BEFORE, 0) : step]
        count += not losses[step] <= math.fsum(before) / len(before) + _SPIKE  # NaN counts
    return count


def _largest(stored: Run, warmup: int) -> float:
    norms_T = measures.query_key_norm(stored.gradients())[warmup:]
    norms_T = norms_T[norms_T.isfinite()]
    return (norms_T.max() / norms_T.median()).item() if len(norms_T) else math.inf


def sensitivities(
    climbs: Sequence[Climb], uniform: float, rotary: Rotary, precision: Precision
) -> dict[str, list[float]]:
    """By mechanism, one value per seed in the order of the seeds: mean loss over the ladder minus the best, in bits.

    A loss counts as ``uniform``, the bits of a uniform guess, where it is above or the run diverged.
    """
    losses: dict[str, dict[int, list[float]]] = {}
    for climb in climbs:
        if (climb.rung.rotary, climb.rung.precision) == (rotary, precision):
            by_seed = losses.setdefault(climb.rung.mechanism, {})
            by_seed.setdefault(climb.rung.seed, []).append(min(climb.bits, uniform))
    return {
        mechanism: [mean(by_seed[seed]) - min(by_seed[seed]) for seed in sorted(by_seed)]
        for mechanism, by_seed in losses.items()
    }


def table(climbs: Sequence[Climb], floor: float, rotary: Rotary, precision: Precision) -> list[dict[str, Any]]:
    """One line per mechanism: at each rate how many runs beat ``floor``, then spikes and the largest gradient.

    ``floor`` is a loss in bits, for example the unigram's: a run above it has learned nothing from the context.
    """
    mine = [climb for climb in climbs if (climb.rung.rotary, climb.rung.precision) == (rotary, precision)]
    lines = []
    for mechanism in dict.fromkeys(climb.rung.mechanism for climb in mine):
        own = [climb for climb in mine if climb.rung.mechanism == mechanism]
        held: dict[str, Any] = {}
        for rate in sorted({climb.rung.rate for climb in own}):
            there = [climb.bits < floor for climb in own if climb.rung.rate == rate]
            held[shown(rate)] = f"{sum(there)} of {len(there)}"
        spiked = sum(climb.spikes for climb in own)
        lines.append(
            {"attention": mechanism, **held, "spikes": spiked, "largest gradient": max(c.largest for c in own)}
        )
    return lines


def held(climbs: Sequence[Climb], floor: float, rotary: Rotary, precision: Precision) -> dict[str, float]:
    """By mechanism, the share of its runs at all rates that beat ``floor``, in percent."""
    beats: dict[str, list[bool]] = {}
    for climb in climbs:
        if (climb.rung.rotary, climb.rung.precision) == (rotary, precision):
            beats.setdefault(climb.rung.mechanism, []).append(climb.bits < floor)
    return {mechanism: 100 * mean(of) for mechanism, of in beats.items()}


def lowest_losses(climbs: Sequence[Climb], rotary: Rotary, precision: Precision) -> dict[str, list[float]]:
    """Each mechanism's lowest loss over the rates, in bits: one value per seed, in the seeds' order."""
    best: dict[tuple[str, int], float] = {}
    for climb in climbs:
        if (climb.rung.rotary, climb.rung.precision) == (rotary, precision):
            place = climb.rung.mechanism, climb.rung.seed
            best[place] = min(climb.bits, best.get(place, math.inf))
    mechanisms = dict.fromkeys(mechanism for mechanism, _ in best)
    return {name: [best[place] for place in sorted(best) if place[0] == name] for name in mechanisms}


def claim(name: str, rotary: Rotary, precision: Precision) -> str:
    """A claim of :data:`CLAIMS` under a setting."""
    return "-".join([name, *(part for part, plain in ((rotary, "none"), (precision, "fp32")) if part != plain)])


def comparisons(
    sensitive: Mapping[str, Sequence[float]], rotary: Rotary, precision: Precision
) -> dict[str, tuple[Sequence[float], Sequence[float]]]:
    """The sensitivities of both sides, the favoured one first, by claim; only those of which both were trained."""
    return {
        claim(name, rotary, precision): (sensitive[a], sensitive[b])
        for name, (a, b) in CLAIMS.items()
        if a in sensitive and b in sensitive
    }
