"""What notebook 02 tells in words and numbers: its tables of models and losses, and the sentences that end it.

All of it is computed from what ``studies.gradient_stability`` measured.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from transnormer_lib.analysis.seeds import paired_difference
from transnormer_lib.papers import tables
from transnormer_lib.studies.common import row_losses
from transnormer_lib.studies.gradient_stability.runs import (
    Measured,
    Parameters,
    bits_per_seed,
    label,
    learned,
    mean_deviations,
    models,
    pairs,
    parts,
    perplexity,
    rows_of,
    step_of_appearance,
)

if TYPE_CHECKING:
    import pandas as pd

# The architectures as the paper's tables call them, where they do.
TABLE_1 = {"linear": "1+elu", "linear-unscaled": "1+elu without scaling"}
TABLE_1 |= {"norm-t1": "NormAttention", "norm-t2": "NormAttention"}
TABLE_2 = {"norm-t1": "NormAttention", "norm-t2": "NormAttention", "vanilla": "Vanilla", "linear": "1+elu"}
TABLE_2 |= {"performer": "Performer"}

_NORMS = {"rms": "RMSNorm", "layer": "LayerNorm", "scale": "ScaleNorm"}


def model_table(parameters: Parameters) -> "pd.DataFrame":
    """The rows before they are trained: mechanism, norm, rotation and the number of trainable parameters."""
    import pandas as pd

    from transnormer_lib import attention
    from transnormer_lib.models.language_model import count_parameters

    lines = []
    for row, config in models(parameters).items():
        _, norm, rotary = parts(row)
        mechanism = config.attention[0]
        options = dict(config.attention_options.get(mechanism, {}))
        built = attention.build_attention(mechanism, {"heads": config.heads, "head_dim": config.head_dim, **options})
        bounded = dict.fromkeys(("softmax", "linear", "performer"), "denominator")
        bounded["norm"] = f"{_NORMS[norm]} of the output"
        lines.append(
            {
                "row": row,
                "attention": mechanism,
                "$\\phi$": "random features" if mechanism == "performer" else getattr(built.config, "phi", "none"),
                "bounded by": bounded.get(mechanism, "nothing"),
                "rotation": rotary,
                "parameters": count_parameters(config),
            }
        )
    return pd.DataFrame(lines)


def quality(measured: Sequence[Measured], ngrams: Mapping[str, float]) -> "pd.DataFrame":
    """Bits per masked token of each row over its seeds, perplexity, and n-gram models; ``ngrams`` as ``ngram_bits``.

    ``below the bigram`` counts the seeds whose loss is lower than the bigram's.
    """
    import pandas as pd

    lines: list[dict[str, Any]] = []
    for row in rows_of(measured):
        bits = bits_per_seed(measured, row)
        below = sum(b < ngrams["2-gram"] for b in bits)
        lines.append(_quality(row, bits) | {"below the bigram": f"{below} of {len(bits)}"})
    none = {"smallest": None, "largest": None, "below the bigram": None}
    lines += [_quality(name, [bits]) | none for name, bits in ngrams.items()]
    return pd.DataFrame(lines)


def _quality(name: str, bits: Sequence[float]) -> dict[str, Any]:
    mean = sum(bits) / len(bits)
    return {"row": name, "bits": mean, "smallest": min(bits), "largest": max(bits), "perplexity": perplexity(mean)}


def beside_table_1(measured: Sequence[Measured]) -> "pd.DataFrame":
    """The rows that Table 1 has: perplexity over the seeds, the published one, and Table 8's for the same model.

    Table 8 has models of NormAttention alone too (its row 0/12), from other runs than Table 1's.
    """
    import pandas as pd

    ones, eights = tables.load("transnormer", "table_1"), tables.load("transnormer", "table_8")
    eight = {f"norm-{kind}": eights.value(kind, diag_layers=0) for kind in ("t1", "t2")}
    lines = []
    for row in rows_of(measured):
        architecture, norm, _ = parts(row)
        if architecture in TABLE_1 and norm == "rms":
            values = [perplexity(bits) for bits in bits_per_seed(measured, row)]
            lines.append(
                {"row": row, "bits": sum(bits_per_seed(measured, row)) / len(values)}
                | {"perplexity": sum(values) / len(values), "smallest": min(values), "largest": max(values)}
                | {"Table 1": ones.value("ppl_val", method=TABLE_1[architecture]), "Table 8": eight.get(architecture)}
            )
    return pd.DataFrame(lines)


def published_deviations(rows: Sequence[str]) -> dict[str, float]:
    """Table 2's number for each of the rows that it has; NormAttention's stands for both φ."""
    found = {row: parts(row) for row in rows}
    theirs = {row: TABLE_2.get(p.architecture) for row, p in found.items() if p.norm == "rms"}
    values = {
        row: tables.load("transnormer", "table_2").value("rsd", method=method)
        for row, method in theirs.items()
        if method
    }
    return {row: value for row, value in values.items() if isinstance(value, float)}


def deviation_table(means: "pd.DataFrame", main: str) -> "pd.DataFrame":
    """The deviations with a line per row: by the main definition, Table 2's, then by every other definition."""
    import pandas as pd

    published = published_deviations(list(means.columns))
    lines = [
        {"row": row, main: values[main], "Table 2": published.get(row)} | values.drop(main).to_dict()
        for row, values in means.items()
    ]
    return pd.DataFrame(lines)


def conclusions(measured: Sequence[Measured], bigram: float, stability: "pd.DataFrame", main: str) -> list[str]:
    """What the runs say about the loss and the gradients, in sentences with their figures.

    ``stability`` as :func:`stability` makes it, ``main`` the reading by which the claims are judged.
    """
    found = rows_of(measured)
    behind = [row for row in found if not learned(measured, row, bigram)]
    lines = [
        f"Loss: every run of {', '.join(row for row in found if row not in behind) or 'no row'} is below the bigram "
        f"({bigram:.3f} bits); not so: {', '.join(behind) or 'none'}."
    ]
    frame = row_losses.curves(measured)
    for better, worse in pairs(measured):
        lines.append(f"{better} against {worse}: {_difference(step_of_appearance(frame, better, worse).iloc[-1])}.")
    means = mean_deviations(stability)
    for better, worse in [pair for pair in _stability_pairs(found) if set(pair) <= set(found)]:
        steadier = int((means[better] < means[worse]).sum())
        lines.append(
            f"Gradients of {better} vary less than those of {worse} in {steadier} of {len(means)} readings (mean over "
            f"the seeds); by '{main}': {means.loc[main, better]:.3f} and {means.loc[main, worse]:.3f}."
        )
    losses = {row: sum(bits := bits_per_seed(measured, row)) / len(bits) for row in found}
    if not any(map(math.isfinite, losses.values())):
        return [*lines, "No row has a finite loss, so none is the best or the steadiest."]
    wins = means.idxmin(axis=1).value_counts()
    lines.append(
        f"The row of the lowest loss is {min(losses, key=lambda row: losses[row])}, the steadiest by '{main}' is "
        f"{means.loc[main].idxmin()}. Steadiest by how many of the {len(means)} readings: "
        f"{', '.join(f'{row} {wins[row]}' for row in found if row in wins)}."
    )
    return lines


def _stability_pairs(found: Sequence[str]) -> list[tuple[str, str]]:
    rotations = dict.fromkeys(parts(row).rotary for row in found)
    compared = [(better, worse) for better in ("norm-t1", "norm-t2") for worse in ("linear", "vanilla")]
    compared.append(("vanilla", "linear"))
    return [(label(better, rotary), label(worse, rotary)) for rotary in rotations for better, worse in compared]


def _difference(last: "pd.Series[float]") -> str:
    """The last line of :func:`step_of_appearance` in words."""
    if math.isnan(last["ahead by"]):
        return "a run diverged, so there is no difference to state"
    lower = last["ahead by"] > 0
    ends = sorted((last["low"], last["high"]) if lower else (-last["low"], -last["high"]))
    size = f"{abs(last['ahead by']):.3f} bits {'lower' if lower else 'higher'} in the mean"
    if math.isnan(last["low"]):
        return f"{size}, of one seed, which shows nothing"
    interval = f"95% interval {_signed(ends[0], 3)} to {_signed(ends[1], 3)}"
    return f"{size} ({interval}{'' if ends[0] > 0 else ', which includes zero: no difference is shown'})"


def _signed(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".replace("-", "−")


def speed_conclusions(seconds: Mapping[str, Sequence[float]], alone: Mapping[str, Sequence[float]]) -> list[str]:
    """Each norm's time against RMSNorm's, in sentences; the arguments as ``analysis.norm_speed`` returns them."""
    lines = []
    for what, times in (("NormAttention", seconds), ("the norm alone", alone)):
        base = sum(times["rms"]) / len(times["rms"])
        for norm in [name for name in times if name != "rms"]:
            longer = 100 * (sum(times[norm]) / len(times[norm]) / base - 1)
            text = f"{what}, {_NORMS[norm]}: {_signed(abs(longer), 1)}% {'more' if longer > 0 else 'less'} time than "
            text += "with RMSNorm" if what == "NormAttention" else "RMSNorm"
            if len(times["rms"]) > 1:
                slower = paired_difference(times["rms"], times[norm], higher_is_better=False)
                low, high = sorted(math.copysign(100 / base, longer) * end for end in (slower.low, slower.high))
                text += f" (95% interval {_signed(low, 1)}% to {_signed(high, 1)}%)"
                text += "" if low > 0 else ": no difference is shown"
            lines.append(f"{text}.")
    share = 100 * sum(alone["rms"]) / sum(seconds["rms"])
    lines.append(f"RMSNorm alone takes {share:.1f}% of NormAttention's time.")
    return lines
