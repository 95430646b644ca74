"""What the runs of notebook 02 say: losses, the deviations of their gradients, and the sentences that end it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import pandas as pd
from torch import Tensor

from transnormer_lib import attention
from transnormer_lib.analysis import seeds
from transnormer_lib.models.language_model import count_parameters
from transnormer_lib.studies.common import findings, row_losses
from transnormer_lib.studies.common.language_models import Floor, final_bits
from transnormer_lib.studies.common.measured import Measured, by_row
from transnormer_lib.studies.gradient_stability import measures, published
from transnormer_lib.studies.gradient_stability.runs import Parameters, label, models, parts, search
from transnormer_lib.training.records import explain_divergence
from transnormer_lib.training.store import RunStore

NORMS = {
    "rms": "RMSNorm",
    "layer": "LayerNorm",
    "layer-written": "LayerNorm, written out as RMSNorm is",
    "scale": "ScaleNorm",
}
# The comparisons of Table 1: the row that it favours, and the other.
PAIRS = (("linear", "linear-unscaled"), ("norm-t2", "linear-unscaled"), ("norm-t2", "linear"), ("norm-t1", "linear"))
# Those of Table 2: the row with the steadier gradients, and the other.
_STEADIER = [(norm, other) for norm in ("norm-t1", "norm-t2") for other in ("linear", "vanilla")]
_STEADIER.append(("vanilla", "linear"))
_TOLD = 3  # pairs of which a caption says each


def measure(parameters: Parameters, store: RunStore) -> list[Measured]:
    """Train or load every run."""
    return [Measured(row, seed, final_bits(run), run) for row, seed, run in search(parameters).trained(store)]


def model_table(parameters: Parameters) -> list[dict[str, Any]]:
    """The rows before training: mechanism, φ, what bounds the output, rotation and trainable parameters."""
    lines = []
    for row, config in models(parameters).items():
        mechanism = config.attention[0]
        options = dict(config.attention_options.get(mechanism, {}))
        built = attention.build_attention(mechanism, {"heads": config.heads, "head_dim": config.head_dim, **options})
        bounded = dict.fromkeys(("softmax", "linear", "performer"), "denominator")
        bounded["norm"] = f"{NORMS[parts(row).norm]} of the output"
        lines.append(
            {
                "row": row,
                "attention": mechanism,
                "feature map $\\phi$": "random features"
                if mechanism == "performer"
                else getattr(built.config, "phi", "none"),
                "bounded by": bounded.get(mechanism, "nothing"),
                "rotation": parts(row).rotary,
                "parameters": count_parameters(config),
            }
        )
    return lines


def diverged(measured: Sequence[Measured]) -> list[str]:
    """The runs whose loss or gradient became infinite or NaN: row, seed, and what broke first, when and where."""
    return [
        f"{m.row}, seed {m.seed} ({explain_divergence(m.run.record['divergence'])})"
        for m in measured
        if m.run.record["status"] == "diverged"
    ]


def perplexity(bits: float) -> float:
    """2 to the bits per token; infinite where that is too large for a float."""
    return 2.0**bits if bits < 1000 else math.inf


def quality(bits: Mapping[str, Sequence[float]], ngrams: Mapping[str, float], floor: Floor) -> list[dict[str, Any]]:
    """One line per row: mean and range in bits per masked token, perplexity, seeds below the floor; then n-grams."""
    lines = []
    for row, values in {**bits, **{name: [value] for name, value in ngrams.items()}}.items():
        line = {"row": row, "bits": seeds.mean(values), "perplexity": perplexity(seeds.mean(values))}
        below = f"{sum(value < floor.bits for value in values)} of {len(values)}"
        seen = {"range": seeds.spread(values, 3), "below the floor": below}
        lines.append(line | (seen if row in bits else dict.fromkeys(seen)))
    return lines


def beside_table_1(bits: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    """One line per row that Table 1 has: perplexity over the seeds, and the published ones."""
    lines = []
    for row, values in bits.items():
        if printed := published.perplexities(row):
            ours = [perplexity(value) for value in values]
            line = {"row": row, "bits": seeds.mean(values), "perplexity": seeds.mean(ours)}
            lines.append(line | {"range": seeds.spread(ours, 2)} | printed)
    return lines


def deviations(measured: Sequence[Measured], warmup: int) -> pd.DataFrame:
    """Every reading of the relative standard deviation as a tidy frame: row, seed, definition, deviation.

    A run that diverged has an infinite deviation.
    """
    return pd.DataFrame(
        [
            {"row": m.row, "seed": m.seed, "definition": name}
            | {"deviation": value if m.run.record["status"] == "finished" else math.inf}
            for m in measured
            for name, value in measures.stability(m.run.gradients(), warmup).items()
        ]
    )


def deviations_by_row(deviations: pd.DataFrame, definition: str) -> dict[str, list[float]]:
    """The deviations of every row under one definition, in the order of the seeds."""
    chosen = deviations[deviations.definition == definition].sort_values("seed")
    return {row: list(chosen[chosen.row == row].deviation) for row in deviations.row.unique()}


def mean_deviations(deviations: pd.DataFrame) -> pd.DataFrame:
    """Means over the seeds: one line per definition, one column per row, both in their order."""
    means = deviations.groupby(["definition", "row"], sort=False).deviation.mean().unstack()
    return means.loc[list(deviations.definition.unique()), list(deviations.row.unique())]


def rankings(means: pd.DataFrame) -> dict[str, str]:
    """For each definition the rows from the steadiest to the least steady."""
    return {str(name): " < ".join(values.sort_values(kind="stable").index) for name, values in means.iterrows()}


def deviation_table(means: pd.DataFrame, main: str) -> list[dict[str, Any]]:
    """One line per row: the deviation by the main definition, Table 2's, then those by every other definition."""
    printed = published.deviations(list(means.columns))
    return [
        {"row": row, main: values[main], "Table 2": printed.get(str(row))} | values.drop(main).to_dict()
        for row, values in means.items()
    ]


def layer_deviations(measured: Sequence[Measured], warmup: int) -> pd.DataFrame:
    """The main reading for each block's own gradient, finished runs only: row, seed, layer (from 1), deviation."""
    return pd.DataFrame(
        [
            {"row": m.row, "seed": m.seed, "layer": layer, "deviation": measures.relative_deviation(norms_T)}
            for m in measured
            if m.run.record["status"] == "finished"
            for layer, norms_T in enumerate(measures.layer_norms(m.run.gradients())[warmup:].T, start=1)
        ],
        columns=["row", "seed", "layer", "deviation"],
    )


def pairs(rows: Sequence[str], compared: Sequence[tuple[str, str]] = PAIRS) -> list[tuple[str, str]]:
    """The comparisons under every rotation whose two rows were trained."""
    rotations = dict.fromkeys(parts(row).rotary for row in rows)
    candidates = [(label(better, rotary), label(worse, rotary)) for rotary in rotations for better, worse in compared]
    return [pair for pair in candidates if set(pair) <= set(rows)]


def differences_by_step(curves: pd.DataFrame, better: str, worse: str) -> pd.DataFrame:
    """At each waypoint: how far ``better`` is ahead in bits (mean over paired seeds), and the 95% interval.

    The interval is NaN with fewer than two seeds; where a run diverged, so is the difference.
    """
    wide = curves.pivot(index=["step", "seed"], columns="row", values="bits")
    lines = []
    for step, values in wide.groupby(level="step"):
        ours, theirs = list(values[better]), list(values[worse])
        ahead = low = high = math.nan
        if all(map(math.isfinite, (*ours, *theirs))):
            ahead = sum(w - b for b, w in zip(ours, theirs, strict=True)) / len(ours)
            if len(ours) > 1:
                interval = seeds.paired_difference(ours, theirs, higher_is_better=False)
                low, high = interval.low, interval.high
        lines.append({"step": step, "ahead by": ahead, "low": low, "high": high})
    return pd.DataFrame(lines)


def appeared(differences: pd.DataFrame) -> dict[str, Any]:
    """Which model is ahead at the end, and since which waypoint; ``differences`` by :func:`differences_by_step`.

    ``sign`` is 1 if the last interval is above zero, -1 if below, 0 if it includes zero or does not exist. ``since`` is
    the first waypoint from which every interval has that sign, None for sign 0.
    """
    signs = [int(low > 0) - int(high < 0) for low, high in zip(differences.low, differences.high, strict=True)]
    unbroken = sum(1 for _ in takewhile(lambda sign: sign == signs[-1], reversed(signs)))
    return {"sign": signs[-1], "since": int(differences.step.iloc[-unbroken]) if signs[-1] else None}


def orders_in_words(differences: Mapping[tuple[str, str], pd.DataFrame]) -> str:
    """Which models are ahead at the end, by how much and since which waypoint; more than three pairs are counted."""
    if all(frame.low.isna().all() for frame in differences.values()):
        return "No interval exists, which takes two seeds and finished runs."
    found = {pair: appeared(frame) for pair, frame in differences.items()}
    if len(found) > _TOLD:
        signs = [one["sign"] for one in found.values()]
        return (
            f"At the end, of {len(found)} pairs, the model named first is ahead in {signs.count(1)} and behind in "
            f"{signs.count(-1)}; in {signs.count(0)} the interval includes zero."
        )
    lines = []
    for (one, other), order in found.items():
        bits = differences[one, other]["ahead by"].iloc[-1]
        side = "ahead of" if order["sign"] > 0 else "behind"
        by = f"{one} is {abs(bits):.3f} bits {side} {other} at the end, from step {order['since']} on"
        lines.append(by if order["sign"] else f"{one} and {other} are not distinguishable at the end")
    return f"{'; '.join(lines)}."


def trace_in_words(norms: Mapping[str, Tensor], warmup: int, clip_norm: float) -> str:
    """In which row the gradient's norm [T] varies least and most after the warm-up, and how often it is clipped."""
    after = {row: norms_T[warmup:] for row, norms_T in norms.items() if bool(norms_T.isfinite().all())}
    spread = {row: measures.relative_deviation(norms_T) for row, norms_T in after.items()}
    if not spread:
        return "Every run diverged."
    least, most = (end(spread, key=spread.__getitem__) for end in (min, max))
    told = f"After the warm-up the norm of {least} varies by {100 * spread[least]:.0f}% of its mean"
    told += f", the least, that of {most} by {100 * spread[most]:.0f}%, the most" if most != least else ""
    shares = [100 * float((norms_T > clip_norm).double().mean()) for norms_T in after.values()]
    clipped = f"{min(shares):.0f}% to {max(shares):.0f}%" if len(shares) > 1 else f"{shares[0]:.0f}%"
    return f"{told}." if not clip_norm else f"{told}; {clipped} of these steps are clipped."


def steadiest(means: pd.DataFrame) -> str:
    """Which rows are the steadiest, by how many definitions, and in Table 2; ``means`` as :func:`mean_deviations`."""
    printed = published.deviations(list(means.columns))
    wins = _wins(means)
    if wins.empty:
        return "Every row has a run that diverged, so none is the steadiest."
    text = f"Steadiest, of {len(means)} definitions: {', '.join(f'{row} by {n}' for row, n in wins.items())}"
    if printed:
        text += f"; in Table 2 {findings.joined([row for row in printed if printed[row] == min(printed.values())])}"
    return f"{text}."


def _wins(means: pd.DataFrame) -> pd.Series:
    """By how many definitions each row is the steadiest, most first; rows with a run that diverged are none."""
    finite = means.loc[:, means.map(math.isfinite).all()]
    return finite.idxmin(axis=1).value_counts() if finite.shape[1] else pd.Series(dtype=int)


def layers_in_words(by_layer: pd.DataFrame) -> str:
    """Which layers of which rows have the steadiest and the least steady gradient; ``by_layer``: layer_deviations."""
    means = by_layer.groupby(["row", "layer"], sort=False).deviation.mean()
    (steady, first), (unsteady, last) = means.idxmin(), means.idxmax()
    return (
        f"Steadiest: layer {first} of {steady}, {means.min():.2f}; least steady: layer {last} of {unsteady}, "
        f"{means.max():.2f}."
    )


def conclusions(measured: Sequence[Measured], floor: Floor, means: pd.DataFrame, main: str) -> list[str]:
    """What the runs say about the loss and the gradients, in sentences.

    ``means`` as :func:`mean_deviations` makes it, ``main`` the definition that the claims are judged by.
    """
    bits = by_row(measured)
    behind = [row for row, values in bits.items() if not max(values) < floor.bits]
    lines = [
        f"Loss: every run of {', '.join(row for row in bits if row not in behind) or 'no row'} is below the "
        f"{floor.name} ({floor.bits:.3f} bits); not so: {', '.join(behind) or 'none'}."
    ]
    lines += [row_losses.compared(better, worse, bits) for better, worse in pairs(list(bits))]
    for better, worse in pairs(list(bits), _STEADIER):
        steadier = int((means[better] < means[worse]).sum())
        lines.append(
            f"Gradients of {better} vary less than those of {worse} in {steadier} of {len(means)} readings (mean over "
            f"the seeds); by '{main}': {means.loc[main, better]:.3f} and {means.loc[main, worse]:.3f}."
        )
    finished = {row: seeds.mean(values) for row, values in bits.items() if math.isfinite(max(values))}
    if not finished:
        return [*lines, "Every row has a run that diverged, so none is the best or the steadiest."]
    wins = _wins(means)
    lines.append(
        f"The row of the lowest loss is {min(finished, key=lambda row: finished[row])}, the steadiest by '{main}' is "
        f"{means.loc[main].idxmin()}. Steadiest by how many of the {len(means)} readings: "
        f"{', '.join(f'{row} {wins[row]}' for row in bits if row in wins)}."
    )
    return lines


@dataclass(frozen=True)
class Slower:
    """How much more time a norm takes than RMSNorm, in percent of it, and the 95% interval, NaN from one round."""

    percent: float
    low: float = math.nan
    high: float = math.nan

    @property
    def shown(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        return f"{abs(self.percent):.1f}% {'more' if self.percent > 0 else 'less'} time"


def slower_than_rms(seconds: Mapping[str, Sequence[float]]) -> dict[str, Slower]:
    """Each other norm's time against RMSNorm's; ``seconds`` per round, as ``analysis.norm_speed`` returns them."""
    found, rms = {}, seconds["rms"]
    base = sum(rms) / len(rms)
    for norm, times in seconds.items():
        if norm == "rms":
            continue
        percent = 100 * (sum(times) / len(times) / base - 1)
        if len(rms) > 1:
            paired = seeds.paired_difference(times, rms, higher_is_better=True)
            found[norm] = Slower(percent, 100 * paired.low / base, 100 * paired.high / base)
        else:
            found[norm] = Slower(percent)
    return found


def speed_in_words(seconds: Mapping[str, Sequence[float]], alone: Mapping[str, Sequence[float]]) -> str:
    """How NormAttention's time differs from that with RMSNorm, where a difference is shown, and RMSNorm's share."""
    found = slower_than_rms(seconds)
    told = [f"{findings.signed(one.percent, 1)}% with {NORMS[norm]}" for norm, one in found.items() if one.shown]
    if others := [NORMS[norm] for norm, one in found.items() if not one.shown]:
        told.append(f"no difference is shown with {' or with '.join(others)}")
    share = f"RMSNorm alone takes {_share(seconds, alone):.1f}% of it"
    return f"NormAttention's time against that with RMSNorm: {'; '.join(told)}. {share}."


def _share(seconds: Mapping[str, Sequence[float]], alone: Mapping[str, Sequence[float]]) -> float:
    return 100 * sum(alone["rms"]) / sum(seconds["rms"])


def speed_conclusions(seconds: Mapping[str, Sequence[float]], alone: Mapping[str, Sequence[float]]) -> list[str]:
    """Each norm's time against RMSNorm's, in sentences; the arguments as ``analysis.norm_speed`` returns them."""
    lines = []
    for what, times in (("NormAttention", seconds), ("the norm alone", alone)):
        for norm, one in slower_than_rms(times).items():
            text = f"{what}, {NORMS[norm]}: {one} than {'with ' if what == 'NormAttention' else ''}RMSNorm"
            if math.isfinite(one.low):
                low, high = sorted(math.copysign(1, one.percent) * end for end in (one.low, one.high))
                text += f" (95% interval {low:.1f}% to {high:.1f}%)".replace("-", "−")
                text += "" if one.shown else ": no difference is shown"
            lines.append(f"{text}.")
    return [*lines, f"RMSNorm alone takes {_share(seconds, alone):.1f}% of NormAttention's time."]
