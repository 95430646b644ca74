"""What the runs of notebook 02 say: losses, the deviations of their gradients, and the sentences that end it."""

import math
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

import pandas as pd

from transnormer_lib import attention
from transnormer_lib.analysis import seeds
from transnormer_lib.models.language_model import count_parameters
from transnormer_lib.studies.common import row_losses
from transnormer_lib.studies.common.language_models import Floor, final_bits
from transnormer_lib.studies.common.measured import Measured, by_row
from transnormer_lib.studies.gradient_stability import measures, published
from transnormer_lib.studies.gradient_stability.runs import Parameters, label, models, parts, search
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


def measure(parameters: Parameters, store: RunStore) -> list[Measured]:
    """Train or load every run."""
    trained = [(row, seed, store.get(config)) for row, seed, config in search(parameters).judged()]
    return [Measured(row, seed, final_bits(run), run) for row, seed, run in trained]


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
    """The runs whose loss or gradient became infinite or NaN, as ``row, seed S (step T)``."""
    return [
        f"{m.row}, seed {m.seed} (step {m.run.record['steps']})"
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
    wins = means.idxmin(axis=1).value_counts()
    lines.append(
        f"The row of the lowest loss is {min(finished, key=lambda row: finished[row])}, the steadiest by '{main}' is "
        f"{means.loc[main].idxmin()}. Steadiest by how many of the {len(means)} readings: "
        f"{', '.join(f'{row} {wins[row]}' for row in bits if row in wins)}."
    )
    return lines


def speed_conclusions(seconds: Mapping[str, Sequence[float]], alone: Mapping[str, Sequence[float]]) -> list[str]:
    """Each norm's time against RMSNorm's, in sentences; the arguments as ``analysis.norm_speed`` returns them."""
    lines = []
    for what, times in (("NormAttention", seconds), ("the norm alone", alone)):
        base = sum(times["rms"]) / len(times["rms"])
        for norm in [name for name in times if name != "rms"]:
            longer = 100 * (sum(times[norm]) / len(times[norm]) / base - 1)
            text = f"{what}, {NORMS[norm]}: {abs(longer):.1f}% {'more' if longer > 0 else 'less'} time than "
            text += "with RMSNorm" if what == "NormAttention" else "RMSNorm"
            if len(times["rms"]) > 1:
                slower = seeds.paired_difference(times["rms"], times[norm], higher_is_better=False)
                low, high = sorted(math.copysign(100 / base, longer) * end for end in (slower.low, slower.high))
                text += f" (95% interval {low:.1f}% to {high:.1f}%)".replace("-", "−")
                text += "" if low > 0 else ": no difference is shown"
            lines.append(f"{text}.")
    share = 100 * sum(alone["rms"]) / sum(seconds["rms"])
    return [*lines, f"RMSNorm alone takes {share:.1f}% of NormAttention's time."]
