"""The runs behind Table 4: the published rows, the matched controls, and both with the release's rotation."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transnormer_lib.models.config import ModelConfig
from transnormer_lib.papers import tables
from transnormer_lib.studies.common import language_models, row_losses
from transnormer_lib.studies.common.language_models import final_bits, grid, released
from transnormer_lib.training.config import RunConfig

if TYPE_CHECKING:
    from torch import Tensor

    from transnormer_lib.data.text import TextCorpus
    from transnormer_lib.models.generation import Sampling
    from transnormer_lib.models.language_model import LanguageModel
    from transnormer_lib.training.store import Run, RunStore

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


@dataclass(frozen=True)
class Parameters(language_models.LanguageModelParameters, language_models.Rows):
    """The notebook's parameters that decide what is trained and measured."""

    test_windows: int  # sequences of the test text on which the loss is measured


def table_4(method: str, split: str) -> float:
    """The perplexity that Table 4 prints for a method, by its own name for it, on ``validation`` or ``test``."""
    value = tables.load("transnormer", "table_4").value(PERPLEXITY[split], method=method)
    assert isinstance(value, float)
    return value


def models(parameters: Parameters) -> dict[str, ModelConfig]:
    """The rows: published architectures and matched controls in the ``paper`` recipe, then those as released."""
    rows = {name: language_models.model(name, parameters) for name in (*parameters.architectures, *parameters.controls)}
    return rows | {
        released(name): language_models.model(name, parameters, recipe="released") for name in parameters.released
    }


def runs(parameters: Parameters) -> list[RunConfig]:
    """One run per row and seed, rows first."""
    configs = models(parameters)
    return [language_models.run(row, configs[row], seed, parameters) for row, seed in grid(configs, parameters.seeds)]


@dataclass(frozen=True)
class Measured:
    """One run: its losses in bits per token (of bytes: bits per byte), infinite where it diverged."""

    row: str
    seed: int
    validation: float
    test: float
    run: "Run"


def measure(parameters: Parameters, store: "RunStore") -> list[Measured]:
    """Train or load every run and measure it on the test split too, which nothing was chosen on."""
    import torch

    from transnormer_lib.training.evaluation import evaluate

    corpus = language_models.corpus(parameters)
    measured = []
    for (row, seed), config in zip(grid(models(parameters), parameters.seeds), runs(parameters), strict=True):
        run, test = store.get(config), math.inf
        if run.record["status"] == "finished":
            result = evaluate(
                run.model(),
                config,
                corpus,
                torch.device("cpu"),
                split="test",
                windows=parameters.test_windows,
            )
            test = result["bits_per_token"]
        measured.append(Measured(row, seed, final_bits(run), test, run))
    return measured


def ngram_bits(corpus: "TextCorpus") -> dict[str, dict[str, float]]:
    """Bits per token of the 1-gram, 2-gram and 3-gram on the whole validation and test text: name, then split."""
    from transnormer_lib.data.ngrams import ngram_baselines_by_split

    grams: dict[str, dict[str, float]] = {}
    for split, baselines in ngram_baselines_by_split(corpus, tuple(PERPLEXITY)).items():
        for gram in baselines:
            grams.setdefault(f"{gram.order}-gram", {})[split] = gram.nats_per_token / math.log(2)
    return grams


def table(measured: Sequence[Measured], ngrams: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """One line per row: losses of the runs that finished, how many diverged, Table 4; n-gram models below."""
    validation, test = row_losses.by_row(measured), row_losses.by_row(measured, "test")
    lines = []
    for row, bits in validation.items():
        printed = [f"{table_4(PUBLISHED[row], split):.2f}" for split in PERPLEXITY] if row in PUBLISHED else []
        lines.append(
            {
                "model": row,
                "validation": row_losses.finished_mean(bits),
                "range": row_losses.spread(bits),
                "test": row_losses.finished_mean(test[row]),
                "parameters": next(m.run.record["parameters"] for m in measured if m.row == row),
                "Table 4": " / ".join(printed) or None,
            }
        )
    empty = dict.fromkeys(lines[0]) if lines else {}
    return lines + [{**empty, "model": name, **bits} for name, bits in ngrams.items()]


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


def section_5_2() -> dict[str, Any]:
    """The sentences of Section 5.2 on Table 4, recomputed from the table as printed.

    - ``excess``: of T1 and T2 over softmax attention, relative, per split; negative where they are ahead.
    - ``comparable``: whether both are, on both splits, no worse than softmax attention or nearer to it than to the
      best other method. The paper does not say what "comparable" means; this is our reading of it.
    - ``best``: per split the best method beside softmax attention and TransNormer, and its perplexity.
    - ``outperform``: whether T1 and T2 are below all of these, on both splits.
    """
    ours = {row: PUBLISHED[row] for row in ("transnormer-t1", "transnormer-t2")}
    methods = [str(record["method"]) for record in tables.load("transnormer", "table_4").records()]
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
    bits = row_losses.by_row(measured)
    lines = row_losses.summary(bits, bigram)
    lines += row_losses.order(
        bits, lambda row: table_4(PUBLISHED[row], "validation") if row in PUBLISHED else None, "Table 4"
    )
    variants = ("transnormer-t1", "transnormer-t2")
    pairs = [(row, other) for row in variants for other in ("linear", "linear-matched", "vanilla", "vanilla-matched")]
    pairs += [(released(row), released(other)) for row in variants for other in ("linear-matched", "vanilla-matched")]
    return lines + [row_losses.compared(row, other, bits) for row, other in pairs if row in bits and other in bits]
