"""The runs behind Table 4: the published rows, the matched controls, and both with the release's rotation."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transnormer_lib.analysis.paired import paired_difference
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.paper import tables
from transnormer_lib.studies import language_models
from transnormer_lib.studies.language_models import final_bits, grid
from transnormer_lib.training.config import RunConfig

if TYPE_CHECKING:
    from torch import Tensor

    from transnormer_lib.data.text import TextCorpus
    from transnormer_lib.models.generation import Sampling
    from transnormer_lib.models.language_model import LanguageModel
    from transnormer_lib.training.store import Run, RunStore

# The notebook's own parameters, beside those of every language-model study.
PARAMETERS = ("architectures", "controls", "released", "seeds", "test_windows")

# Rows of Table 4 by our names.
PUBLISHED = {
    "vanilla": "Vanilla",
    "linear": "1+elu",
    "performer": "Performer",
    "transformer-ls": "LS",
    "flash-quad": "FLASH-quad",
    "flash": "FLASH",
    "transnormer-t1": "TransNormer T1",
    "transnormer-t2": "TransNormer T2",
}

# The splits of Table 4, and the columns of its perplexities.
PERPLEXITY = {"validation": "ppl_val", "test": "ppl_test"}

# The vocabulary of Table 13: perplexity per token of it is what Table 4 prints.
WORDS = "wikitext-103-words"


def table_4(method: str, split: str) -> float:
    """The perplexity that Table 4 prints for a method, by its own name for it, on ``validation`` or ``test``."""
    value = tables.load("table_4").value(PERPLEXITY[split], method=method)
    assert isinstance(value, float)
    return value


def released(name: str) -> str:
    """The row of an architecture in the ``released`` recipe, by name."""
    return f"{name}+released"


def models(parameters: Mapping[str, Any]) -> dict[str, ModelConfig]:
    """The rows: published architectures and matched controls in the ``paper`` recipe, then those as released."""
    rows = {
        name: language_models.model(name, parameters)
        for name in (*parameters["architectures"], *parameters["controls"])
    }
    return rows | {
        released(name): language_models.model(name, parameters, recipe="released") for name in parameters["released"]
    }


def runs(parameters: Mapping[str, Any]) -> list[RunConfig]:
    """One run per row and seed, rows first."""
    configs = models(parameters)
    return [
        language_models.run(row, configs[row], seed, parameters) for row, seed in grid(configs, parameters["seeds"])
    ]


@dataclass(frozen=True)
class Measured:
    """One run: its losses in bits per token (of bytes: bits per byte), infinite where it diverged."""

    row: str
    seed: int
    validation: float
    test: float
    run: "Run"


def measure(parameters: Mapping[str, Any], store: "RunStore") -> list[Measured]:
    """Train or load every run and measure it on the test split too, which nothing was chosen on."""
    import torch

    from transnormer_lib.training.evaluation import evaluate

    corpus = language_models.corpus(parameters)
    measured = []
    for (row, seed), config in zip(grid(models(parameters), parameters["seeds"]), runs(parameters), strict=True):
        run, test = store.get(config), math.inf
        if run.record["status"] == "finished":
            result = evaluate(
                run.model(),
                config,
                corpus,
                torch.device("cpu"),
                split="test",
                windows=parameters["test_windows"],
            )
            test = result["bits_per_token"]
        measured.append(Measured(row, seed, final_bits(run), test, run))
    return measured


def bits_by_row(measured: Sequence[Measured], split: str = "validation") -> dict[str, list[float]]:
    """The loss of every row, one number per seed in the order of the seeds: what a paired ordering needs."""
    rows: dict[str, list[float]] = {}
    for m in sorted(measured, key=lambda m: m.seed):
        rows.setdefault(m.row, []).append(getattr(m, split))
    return {row: rows[row] for row in dict.fromkeys(m.row for m in measured)}


def finished_mean(bits: Sequence[float]) -> float:
    """Mean over the runs that did not diverge; infinite where all did, so that the row comes last."""
    finite = [value for value in bits if math.isfinite(value)]
    return math.fsum(finite) / len(finite) if finite else math.inf


def untrained(rows: Sequence[str], scale: str) -> str:
    """Why rows that were not trained were not: quick trains the headline rows alone."""
    reason = f"the parameters ask for no run of {' and '.join(rows)}"
    return f"decided at night: {reason}" if scale == "quick" else reason


def ngram_bits(corpus: "TextCorpus") -> dict[str, dict[str, float]]:
    """Bits per token of the 1-gram, 2-gram and 3-gram on the whole validation and test text: name, then split."""
    from transnormer_lib.data.ngrams import ngram_baselines

    grams: dict[str, dict[str, float]] = {}
    for split in PERPLEXITY:
        for gram in ngram_baselines(corpus, split=split):
            grams.setdefault(f"{gram.order}-gram", {})[split] = gram.nats_per_token / math.log(2)
    return grams


def table(measured: Sequence[Measured], ngrams: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """One line per row: losses of the runs that finished, how many diverged, Table 4; n-gram models below."""
    validation, test = bits_by_row(measured), bits_by_row(measured, "test")
    lines = []
    for row, bits in validation.items():
        printed = [f"{table_4(PUBLISHED[row], split):.2f}" for split in PERPLEXITY] if row in PUBLISHED else []
        lines.append(
            {
                "model": row,
                "validation": finished_mean(bits),
                "range": _range(bits),
                "test": finished_mean(test[row]),
                "parameters": next(m.run.record["parameters"] for m in measured if m.row == row),
                "Table 4": " / ".join(printed) or None,
            }
        )
    empty = dict.fromkeys(lines[0]) if lines else {}
    return lines + [{**empty, "model": name, **bits} for name, bits in ngrams.items()]


def _range(bits: Sequence[float]) -> str:
    finite = [value for value in bits if math.isfinite(value)]
    parts = [f"{min(finite):.3f}–{max(finite):.3f}"] if finite else []
    return ", ".join(parts + ([f"{len(bits) - len(finite)} diverged"] if len(finite) < len(bits) else []))


def prompts(corpus: "TextCorpus", count: int, length: int, following: int) -> "list[tuple[Tensor, Tensor]]":
    """``count`` prompts [length] from the validation text and the tokens [following] after each, evenly spread.

    Each stands in the middle of one of ``count`` equal parts of the text. Raises ValueError where a part is too short.
    """
    import torch

    tokens = corpus.tokens["validation"]
    part = len(tokens) // max(count, 1)
    if count < 1 or length < 1 or following < 1 or length + following > part // 2:
        raise ValueError(
            f"count={count!r}, length={length!r}, following={following!r}: must be at least 1 and fit the text, "
            f"which has {len(tokens)} tokens"
        )
    starts = [number * part + part // 2 for number in range(count)]
    return [
        (torch.tensor(tokens[at : at + length]).long(), torch.tensor(tokens[at + length :][:following]).long())
        for at in starts
    ]


def write(
    model: "LanguageModel", prompts: "Sequence[Tensor]", tokens: int, sampling: "Sampling", seed: int
) -> "list[Tensor]":
    """Continue prompts of equal length by ``tokens`` tokens each, beyond the model's longest sequence if need be.

    A model knows no positions beyond those it was trained on: when its sequence is full, the end of the text becomes
    the prompt of the next one.
    """
    import torch

    from transnormer_lib.models.generation import generate

    generator = torch.Generator().manual_seed(seed)
    length = len(prompts[0])
    room = max(model.config.max_length - length + 1, 1)
    texts = list(prompts)
    for start in range(0, tokens, room):
        contexts = [text[-length:] for text in texts]
        pieces = generate(model, contexts, min(room, tokens - start), sampling=sampling, generator=generator)
        texts = [torch.cat(pair) for pair in zip(texts, pieces, strict=True)]
    return [text[length:] for text in texts]


def readable(corpus: "TextCorpus", tokens: "Tensor") -> str:
    """The text of tokens on one line: a new line is shown as a sign, and so is what cannot be printed."""
    text = corpus.vocabulary.decode(tokens.numpy()).replace("\n", " ⏎ ")
    return " ".join("".join(letter if letter.isprintable() else "�" for letter in text).split())


def section_5_2() -> dict[str, Any]:
    """The sentences of Section 5.2 on Table 4, recomputed from the table as printed.

    - ``excess``: of T1 and T2 over softmax attention, relative, per split; negative where they are ahead.
    - ``comparable``: whether both are, on both splits, no worse than softmax attention or nearer to it than to the
      best other method. The paper does not say what "comparable" means; this is our reading of it.
    - ``best``: per split the best method beside softmax attention and TransNormer, and its perplexity.
    - ``outperform``: whether T1 and T2 are below all of these, on both splits.
    """
    ours = {row: PUBLISHED[row] for row in ("transnormer-t1", "transnormer-t2")}
    methods = [str(record["method"]) for record in tables.load("table_4").records()]
    others = [method for method in methods if method not in (*ours.values(), PUBLISHED["vanilla"])]
    excess: dict[str, dict[str, float]] = {row: {} for row in ours}
    best, comparable, outperform = {}, True, True
    for split in PERPLEXITY:
        vanilla = table_4(PUBLISHED["vanilla"], split)
        best[split] = min(((method, table_4(method, split)) for method in others), key=lambda pair: pair[1])
        for row, method in ours.items():
            perplexity = table_4(method, split)
            excess[row][split] = perplexity / vanilla - 1.0
            comparable &= perplexity <= vanilla or perplexity - vanilla < best[split][1] - perplexity
            outperform &= perplexity < best[split][1]
    return {"excess": excess, "comparable": comparable, "best": best, "outperform": outperform}


def conclusions(measured: Sequence[Measured], bigram: float) -> list[str]:
    """What the losses say, in sentences with their figures; nothing about rows that were not run."""
    bits = bits_by_row(measured)
    ranked = sorted((row for row in bits if min(bits[row]) < math.inf), key=lambda row: finished_mean(bits[row]))
    lines = []
    if ranked:
        means = ", ".join(f"{row} {finished_mean(bits[row]):.3f}" for row in ranked)
        lines.append(f"Mean loss in bits, lowest first: {means}.")
    diverged = {row: sum(map(math.isinf, values)) for row, values in bits.items()}
    behind = {row: sum(bigram <= value < math.inf for value in values) for row, values in bits.items()}
    for counts, what in ((diverged, "diverged"), (behind, f"do not beat the bigram ({bigram:.3f})")):
        if any(counts.values()):
            named = ", ".join(f"{row} {count} of {len(bits[row])}" for row, count in counts.items() if count)
            lines.append(f"Runs that {what}: {named}.")
    ours = [row for row in ranked if row in PUBLISHED]
    if len(ours) > 1:
        theirs = sorted(ours, key=lambda row: table_4(PUBLISHED[row], "validation"))
        verb = "is" if ours == theirs else "is not"
        lines.append(f"The order of the means, {' < '.join(ours)}, {verb} that of Table 4, {' < '.join(theirs)}.")
    variants = ("transnormer-t1", "transnormer-t2")
    pairs = [(row, other) for row in variants for other in ("linear", "linear-matched", "vanilla", "vanilla-matched")]
    pairs += [(released(row), released(other)) for row in variants for other in ("linear-matched", "vanilla-matched")]
    return lines + [_compared(row, other, bits) for row, other in pairs if row in bits and other in bits]


def _compared(row: str, other: str, bits: Mapping[str, Sequence[float]]) -> str:
    """How far ``row`` is from ``other``, with the interval of the paired difference."""
    if len(bits[row]) < 2 or not all(map(math.isfinite, [*bits[row], *bits[other]])):
        return f"{row} against {other}: no interval, which takes two seeds and runs that all finished."
    ahead = paired_difference(bits[row], bits[other], higher_is_better=False)
    says = "lower loss" if ahead.low > 0 else "higher loss" if ahead.high < 0 else "not told apart"
    change = f"{-ahead.mean:+.3f} bits, 95% in [{-ahead.high:+.3f}, {-ahead.low:+.3f}]"
    return f"{row} against {other}: {says}; {change}."
