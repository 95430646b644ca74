"""What was measured for notebook 14: losses at several lengths, ranks and entropies of matrices, costs of a step."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from transnormer_lib import attention
from transnormer_lib.analysis import attention_entropy, attention_rank, seeds
from transnormer_lib.analysis.step_costs import TrainingCost, measure
from transnormer_lib.data.batches import evaluation_windows
from transnormer_lib.data.masking import MaskingConfig
from transnormer_lib.ledger.values import shown
from transnormer_lib.models.architectures import architecture
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.models.language_model import LanguageModel, build_model
from transnormer_lib.show.claims import Claims
from transnormer_lib.studies.common import findings, language_models, row_losses
from transnormer_lib.studies.common.language_models import Floor, final_bits
from transnormer_lib.studies.common.measured import Measured, by_row
from transnormer_lib.studies.gau_details import sizes
from transnormer_lib.studies.gau_details.published import LENGTHS, MODELS
from transnormer_lib.studies.gau_details.runs import VARIED, Parameters, search
from transnormer_lib.studies.gau_details.sizes import ARCHITECTURES
from transnormer_lib.training.store import RunStore
from transnormer_lib.training.stored_run import Run

SPARSE = 0.01  # an entry counts as zero up to this share of its row's mean size; fixed before any matrix was measured
TABLE_4_BATCH = 8
PREFIX = (
    "a causal model reads a shorter text as the beginning of a longer one, number for number, so its loss there says "
    "nothing about other lengths; encoders, which the gpu preset trains, can decide it"
)


@dataclass(frozen=True)
class MeasuredRow(Measured):
    """One run, with its loss in bits by sequence length, the training length among them."""

    lengths: Mapping[int, float]


def measure_all(parameters: Parameters, store: RunStore) -> list[MeasuredRow]:
    """Train or load the judged runs, and measure each at every length."""
    found = []
    for row, seed, run in search(parameters).trained(store):
        bits = final_bits(run)
        found.append(MeasuredRow(row, seed, bits, run, {parameters.length: bits, **at_lengths(run, parameters)}))
    return found


@torch.no_grad()
def at_lengths(run: Run, parameters: Parameters) -> dict[int, float]:
    """Bits per selected token on held-out sequences of the lengths that figures and claims need, by length.

    Those of ``other_lengths``, twice the training length, and for encoders a quarter of it. Infinite for a run that
    diverged.
    """
    of_claims = (
        {2 * parameters.length} if parameters.task == "causal" else {parameters.length // 4, 2 * parameters.length}
    )
    lengths = sorted(of_claims | set(parameters.other_lengths))
    if run.record["status"] != "finished":
        return dict.fromkeys(lengths, math.inf)
    model, found = run.model(), {}
    for length in lengths:
        total = count = 0.0
        for batch in held_out(parameters, length, parameters.validation_windows * parameters.length // length):
            counted = int((batch["targets"] >= 0).sum())
            total += float(model(batch["input_ids"], targets_BN=batch["targets"])) * counted
            count += counted
        found[length] = total / count / math.log(2)
    return found


def held_out(parameters: Parameters, length: int, windows: int) -> Any:
    """Held-out batches of this length, the same for every model."""
    text = language_models.corpus(parameters)
    masked = (text.vocabulary, MaskingConfig()) if parameters.task == "masked" else None
    return evaluation_windows(
        text.tokens["validation"], length=length, batch_size=64, limit=max(windows, 1), masked=masked
    )


def changes(
    claims: Claims, claim: str, better: str, worse: str, measured: Sequence[MeasuredRow], parameters: Parameters,
    length: int, floor: Floor,
) -> None:  # fmt: skip
    """Record whether the loss of ``better`` rises less than that of ``worse`` from training's length to ``length``."""
    if parameters.task == "causal" and length < parameters.length:
        claims.not_run(claim, PREFIX)
    else:
        sides = {"better": change(measured, better, length), "worse": change(measured, worse, length)}
        of_learned(claims, claim, (better, worse), sides, measured, parameters, floor)


def of_learned(
    claims: Claims, claim: str, rows: Sequence[str], sides: Mapping[str, Any], measured: Sequence[MeasuredRow],
    parameters: Parameters, floor: Floor,
) -> None:  # fmt: skip
    """Record an ordering of what was measured on ``rows``, whose losses must beat the floor, or that they are not
    trained."""
    bits = by_row(measured)
    if missing := [row for row in rows if row not in bits]:
        claims.not_run(claim, row_losses.untrained(missing, claims.scale))
        return
    claims.ordering(
        claim,
        **sides,
        seeds=sorted(parameters.seeds),
        floor=floor.bits,
        floor_name=f"the {floor.name}",
        learned={row: bits[row] for row in rows},
    )


def change(measured: Sequence[MeasuredRow], row: str, length: int) -> list[float]:
    """By seed, how much higher the loss is at ``length`` than at the training length; infinite for a diverged run."""
    return [
        m.lengths[length] - m.validation if math.isfinite(m.validation) else math.inf for m in of_row(measured, row)
    ]


def of_row(measured: Sequence[MeasuredRow], row: str) -> list[MeasuredRow]:
    """The runs of a row, by seed."""
    return sorted((m for m in measured if m.row == row), key=lambda m: m.seed)


def length_frame(measured: Sequence[MeasuredRow]) -> pd.DataFrame:
    """Row, seed, length, bits: one line each."""
    return pd.DataFrame(
        {"row": m.row, "seed": m.seed, "length": n, "bits": bits} for m in measured for n, bits in m.lengths.items()
    )


def rises(measured: Sequence[MeasuredRow]) -> str:
    """In which rows the mean loss rises least and most from the length of training to the longest, in a sentence."""
    longest = max(n for m in measured for n in m.lengths)
    risen = {row: seeds.mean(change(measured, row, longest)) for row in by_row(measured)}
    known = {row: value for row, value in risen.items() if math.isfinite(value)}
    if not known:
        return "Every run diverged."
    least, most = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
    told = f"{least} changes by {findings.signed(known[least], 3)} bits"
    told += f", the least, {most} by {findings.signed(known[most], 3)}, the most" if most != least else ""
    return f"From there to {longest:,} tokens {told}."


def table(bits: Mapping[str, Sequence[float]], floor: Floor) -> list[dict[str, Any]]:
    """One line per mechanism: mean and range of the loss at fixed and at varied length."""
    lines: list[dict[str, Any]] = []
    for row in dict.fromkeys(name.removesuffix(VARIED) for name in bits):
        line: dict[str, Any] = {"row": row}
        for heading, name in (("fixed", row), ("varied", row + VARIED)):
            values = bits.get(name)
            line[heading] = None if values is None else f"{seeds.mean(values):.3f} ({seeds.spread(values, 3)})"
            line[f"{heading}: learned"] = (
                None if values is None else f"{sum(v < floor.bits for v in values)} of {len(values)}"
            )
        lines.append(line)
    return lines


def order(
    claims: Claims, claim: str, better: str, worse: str, bits: Mapping[str, Sequence[float]], floor: Floor,
    at: Sequence[int], controls: Sequence[str] = (),
) -> None:  # fmt: skip
    """Record an ordering of two rows, or that they are not trained."""
    if missing := [row for row in (better, worse) if row not in bits]:
        claims.not_run(claim, row_losses.untrained(missing, claims.scale))
        return
    claims.ordering(
        claim,
        better=bits[better],
        worse=bits[worse],
        seeds=at,
        floor=floor.bits,
        floor_name=f"the {floor.name}",
        controls={name: bits[name] for name in controls if name in bits} or None,
    )


# --- matrices --------------------------------------------------------------------------------------------------------


@torch.no_grad()
def unit_scores(model: LanguageModel, ids_BN: Tensor) -> Tensor:
    """The scores q·k / √s of every unit, [U · B, N, N] in float64: before any factor, normaliser or causal mask."""
    x, found = model.double().embed(ids_BN), []
    for block in model.stack():
        unit = block.attention
        assert isinstance(unit, attention.GAU)
        _, _, (q, k) = unit.project(x, None)
        found.append(q @ k.mT / math.sqrt(unit.config.s))
        x = block(x)
    return torch.cat(found)


def probed(m: MeasuredRow, parameters: Parameters, length: int, trained: bool = True) -> Tensor | None:
    """The scores of a run's model, trained or not, on held-out sequences; None if the run diverged."""
    if not math.isfinite(m.validation):
        return None
    model = m.run.model() if trained else build_model(m.run.config.model, m.seed).eval()
    return unit_scores(model, next(iter(held_out(parameters, length, 8)))["input_ids"])


def probe(measured: Sequence[MeasuredRow], parameters: Parameters, length: int) -> dict[str, dict[str, Tensor]]:
    """By row of ``probe_rows``, untrained and trained, the scores of the first seed's model."""
    found = {}
    for row in parameters.probe_rows:
        for m in of_row(measured, row)[:1]:
            of = {when: probed(m, parameters, length, when == "trained") for when in ("untrained", "trained")}
            found[row] = {when: scores for when, scores in of.items() if scores is not None}
    return found


def factor(row: str, n: int) -> float:
    """What a row multiplies its scores by in front of the softmax."""
    return attention_entropy.factor(n) if row.removesuffix(VARIED) == "softmax_plus" else 1.0


def matrices(row: str, scores: Tensor) -> dict[str, Tensor]:
    """Table 3's three functions of the scores, and their squares: with the row's factor, without a causal mask."""
    return {name: make(factor(row, scores.shape[-1]) * scores) for name, make in attention_rank.ACTIVATIONS.items()}


def rank_table(scores: Mapping[str, Mapping[str, Tensor]], tolerances: Sequence[float]) -> list[dict[str, Any]]:
    """One line per row, training and matrix: mean rank over N at every tolerance, mean sparsity at 0 and `SPARSE`."""
    lines = []
    for row, when, of in ((row, when, of) for row, by_time in scores.items() for when, of in by_time.items()):
        for name, matrix in matrices(row, of).items():
            found = attention_rank.ranks(matrix, tolerances).double().flatten(1).mean(1) / matrix.shape[-1]
            line: dict[str, Any] = {"row": row, "weights": when, "matrix": name}
            line |= {f"rank / N at {shown(t, 1)}": round(float(r), 4) for t, r in zip(tolerances, found, strict=True)}
            sparse = {t: 100 * float(attention_rank.sparsity(matrix, t).mean()) for t in (0.0, SPARSE)}
            lines.append(line | {f"sparsity at {t:g} (%)": round(share, 2) for t, share in sparse.items()})
    return lines


def ranks_in_words(lines: Sequence[Mapping[str, Any]]) -> str:
    """The trained matrices with the lowest and the highest rank at the first tolerance of :func:`rank_table`."""
    first = next(heading for heading in lines[0] if heading.startswith("rank"))
    trained = {f"{line['matrix']} of {line['row']}": line[first] for line in lines if line["weights"] == "trained"}
    return findings.ends(trained, what=f"Trained, {first}")


def table_3(measured: Sequence[MeasuredRow], parameters: Parameters) -> dict[str, dict[str, list[float]]]:
    """Table 3 for the first of ``probe_rows`` at the training length: by column and matrix, one value per seed.

    Rank over N at the tolerance of float32; sparsity in percent at the threshold :data:`SPARSE`. Infinite for a run
    that diverged.
    """
    n, row = parameters.length, parameters.probe_rows[0]
    probes = [probed(m, parameters, n) for m in of_row(measured, row)]
    by_seed = [None if scores is None else matrices(row, scores) for scores in probes]

    def rank(of: Tensor) -> float:
        return float(attention_rank.ranks(of, [attention_rank.single(n)])[0].double().mean()) / n

    def zeros(of: Tensor) -> float:
        return 100 * float(attention_rank.sparsity(of, SPARSE).mean())

    columns = {"rank": (rank, ("scores", "softmax", "ReLU²")), "sparsity": (zeros, ("softmax", "ReLU²"))}
    return {
        column: {name: [math.inf if made is None else of(made[name]) for made in by_seed] for name in names}
        for column, (of, names) in columns.items()
    }


def mean_entropy(row: str, scores: Tensor, task: str, times: float | None = None) -> float:
    """The mean entropy of the rows that have all N keys: of an encoder all, of a decoder the last one.

    ``times`` multiplies the scores; None: the row's own factor.
    """
    rows = scores[:, -1:] if task == "causal" else scores
    times = factor(row, scores.shape[-1]) if times is None else times
    return float(attention_entropy.row_entropy(rows, times).mean())


def entropy_growth(measured: Sequence[MeasuredRow], parameters: Parameters, row: str) -> list[float]:
    """By seed, how much higher a trained row's entropy is at twice the training length than at it."""
    lengths, grown = (parameters.length, 2 * parameters.length), []
    for m in of_row(measured, row):
        found = [probed(m, parameters, n) for n in lengths]
        at = [math.inf if of is None else mean_entropy(row, of, parameters.task) for of in found]
        grown.append(at[1] - at[0] if math.isfinite(at[0]) else math.inf)
    return grown


def entropies(
    measured: Sequence[MeasuredRow], parameters: Parameters, lengths: Sequence[int]
) -> dict[str, dict[str, dict[int, float]]]:
    """By row of ``probe_rows`` that has a softmax: by training and factor, the mean entropy by number of keys."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for n in lengths:
        for row, by_time in probe(measured, parameters, n).items():
            for when, scores in by_time.items() if row.startswith("softmax") else ():
                for name, times in {"softmax": 1.0, "softmax_plus": attention_entropy.factor(n)}.items():
                    curve = found.setdefault(row, {}).setdefault(f"{when}, as {name}", {})
                    curve[n] = mean_entropy(row, scores, parameters.task, times)
    return found


def growth_of_entropy(curves: Mapping[str, Mapping[int, float]]) -> str:
    """How much the mean entropy of each kind of scores grows from the fewest to the most keys, without the factor and
    with it; ``curves`` by "KIND, softmax" and "KIND, softmax_plus"."""
    kinds = dict.fromkeys(name.rpartition(", ")[0] for name in curves)
    fewest, most = (end(n for of in curves.values() for n in of) for end in (min, max))

    def grown(name: str) -> str:
        return findings.signed(curves[name][most] - curves[name][fewest], 2)

    said = [f"{kind} {grown(f'{kind}, softmax')} and {grown(f'{kind}, softmax_plus')}" for kind in kinds]
    return f"Growth from {fewest:,} to {most:,} keys in nats, without and with the factor: {'; '.join(said)}."


def highest_ranks(frame: pd.DataFrame, tolerance: float) -> str:
    """Rank over N of softmax and of the squared ReLU at a tolerance, by size of the scores, in a sentence.

    ``frame`` has the columns size, kind, tolerance and rank.
    """
    at = frame[frame["tolerance"] == tolerance].set_index(["size", "kind"])["rank"]
    sizes = list(dict.fromkeys(frame["size"]))
    said = [f"{at[size, 'softmax']:.2f} and {at[size, 'ReLU²']:.2f} at size {size:g}" for size in sizes]
    return f"At the tolerance {shown(tolerance)} softmax and the squared ReLU have {', '.join(said)}."


# --- costs -----------------------------------------------------------------------------------------------------------


def small_models(width: int, vocabulary: int, longest: int) -> dict[str, ModelConfig]:
    """Table 4's models with one layer, or two units, of this width; the vocabularies are in the paper's ratio.

    Attention keeps its matrices, as PyTorch code of 2022 does. s is a sixth of the width, as in the paper.
    """
    found = {}
    for model in MODELS:
        gau = model == "GAU"
        entries = vocabulary * 50 // 12 if model == "RoFormerV1" else vocabulary
        size = {"vocab_size": entries, "max_length": longest, "dim": width, "heads": 12, "layers": 2 if gau else 1}
        config = architecture(ARCHITECTURES[model], kind="encoder", recipe="released", **size)  # type: ignore[arg-type]
        options = _stored(config)
        if gau:
            options["gau"]["s"] = width // 6
        found[model] = replace(config, attention_options=options)
    return found


def cost_table(cells: Sequence[TrainingCost]) -> list[dict[str, Any]]:
    """One line per model and length: memory over GAU's, and where it was timed the median time and that over GAU's."""
    of = {(c.model, c.length): c for c in cells}
    lines = []
    for c in cells:
        line: dict[str, Any] = {"model": c.model, "length": c.length, "memory (MB)": round(c.peak_bytes / 1e6, 1)}
        line["over GAU"] = round(c.peak_bytes / of["GAU", c.length].peak_bytes, 3)
        if c.seconds:
            line["seconds"] = round(statistics.median(c.seconds), 4)
            ratios = [a / b for a, b in zip(c.seconds, of["GAU", c.length].seconds, strict=True)]
            line["time over GAU"] = round(statistics.median(ratios), 2)
        lines.append(line)
    return lines


def memory_over_gau(cells: Sequence[TrainingCost], model: str) -> dict[int, float]:
    """By length, the memory of a step over that of GAU."""
    of = {(c.model, c.length): c.peak_bytes for c in cells}
    return {n: of[model, n] / of["GAU", n] for (name, n) in of if name == model}


def memory_in_words(here: Mapping[str, Mapping[int, float]], printed: Mapping[str, Mapping[int, float]]) -> str:
    """From the shortest to the longest length, each model's memory over GAU's, here and in print, in a sentence."""
    said = []
    for where, of in (("here", here), ("in print", printed)):
        for model, ratios in of.items():
            first, last = min(ratios), max(ratios)
            said.append(f"{model} {where} {ratios[first]:.2f} at {first:,} to {ratios[last]:.2f} at {last:,}")
    return f"{'; '.join(said)}."


def table_4(rounds: int) -> dict[str, dict[str, float]]:
    """Table 4's percentages of memory and its times over GAU, of its own models at its batch on one GPU, by cell.

    Memory holds the weights, the gradients, AdamW's two moments and what the pass allocates. A model that runs out of
    memory has no cell.
    """
    dropout = {"dropout": 0.1, "attention_dropout": 0.1}  # Table 7
    configs = {
        model: sizes.config(model, max_length=max(LENGTHS), attention_options=_stored(sizes.config(model)), **dropout)
        for model in MODELS
    }
    cells = measure(configs, LENGTHS, batch=TABLE_4_BATCH, rounds=rounds, device="cuda")
    held = {model: 3 * 4 * sizes.trained(model) for model in MODELS}  # weights and moments in float32
    of = {(c.model, c.length): c for c in cells}
    found: dict[str, dict[str, float]] = {"memory": {}, "time": {}}
    for (model, n), cell in of.items():
        if model != "GAU" and ("GAU", n) in of:
            gau, name = of["GAU", n], f"{model.removeprefix('RoFormer')} {n}"
            found["memory"][name] = 100 * (cell.peak_bytes + held[model]) / (gau.peak_bytes + held["GAU"])
            found["time"][name] = statistics.median(a / b for a, b in zip(cell.seconds, gau.seconds, strict=True))
    return found


def _stored(config: ModelConfig) -> dict[str, Any]:
    """The options of a model's mechanism with attention that keeps its matrix, as PyTorch code of 2022 does."""
    (name,) = set(config.attention)
    return {name: {**config.attention_options[name], "impl": "reference"}}


def times_over_softmax(measured: Sequence[MeasuredRow], cells: Mapping[str, str]) -> dict[str, float] | None:
    """By cell of Table 2, the training time of a row over that of softmax, the median over seeds; None without them."""
    took = {row: [m.run.record["seconds"] for m in of_row(measured, row)] for row in (*cells.values(), "softmax")}
    if not all(took.values()):
        return None
    return {
        cell: statistics.median(a / b for a, b in zip(took[row], took["softmax"], strict=True))
        for cell, row in cells.items()
    }
