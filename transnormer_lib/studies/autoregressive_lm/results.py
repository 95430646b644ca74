"""What the runs of notebook 04 say: their losses beside Table 4, and the texts that they write."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transnormer_lib.analysis import seeds
from transnormer_lib.data.ngrams import ngram_baselines
from transnormer_lib.data.text import TextCorpus
from transnormer_lib.studies.autoregressive_lm.published import PERPLEXITY, PUBLISHED, table_4
from transnormer_lib.studies.autoregressive_lm.runs import Parameters, search
from transnormer_lib.studies.common import row_losses
from transnormer_lib.studies.common.language_models import Floor, final_bits
from transnormer_lib.studies.common.measured import Measured, by_row
from transnormer_lib.training.store import RunStore


@dataclass(frozen=True)
class MeasuredDecoder(Measured):
    """One run, with its loss on the test text too; infinite where it diverged."""

    test: float


def measure(parameters: Parameters, store: RunStore) -> list[MeasuredDecoder]:
    """Train or load every run and measure it on the test split too, on which nothing was chosen."""
    measured = []
    for row, seed, run in search(parameters).trained(store, weights=False):
        done = run.record["status"] == "finished"
        test = run.record["at_end"]["test"]["bits_per_token"] if done else math.inf
        measured.append(MeasuredDecoder(row, seed, final_bits(run), run, test))
    return measured


def ngram_bits(corpus: TextCorpus) -> dict[str, dict[str, float]]:
    """Bits per token of the 1-gram, 2-gram and 3-gram on the whole validation and test text: name, then split."""
    grams: dict[str, dict[str, float]] = {}
    for split, baselines in ngram_baselines(corpus, tuple(PERPLEXITY)).items():
        for gram in baselines:
            grams.setdefault(f"{gram.order}-gram", {})[split] = gram.nats_per_token / math.log(2)
    return grams


def table(measured: Sequence[MeasuredDecoder], ngrams: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """One line per row: mean losses, the range and how many runs diverged, Table 4; n-gram models below."""
    test = by_row(measured, "test")
    lines = []
    for row, bits in by_row(measured).items():
        printed = [f"{table_4(PUBLISHED[row], split):.2f}" for split in PERPLEXITY] if row in PUBLISHED else []
        lines.append(
            {
                "model": row,
                "validation": seeds.mean(bits),
                "range": seeds.spread(bits, 3),
                "test": seeds.mean(test[row]),
                "parameters": next(m.run.record["parameters"] for m in measured if m.row == row),
                "Table 4": " / ".join(printed) or None,
            }
        )
    empty = dict.fromkeys(lines[0]) if lines else {}
    return lines + [{**empty, "model": name, **bits} for name, bits in ngrams.items()]


def prompts(corpus: TextCorpus, count: int, length: int, following: int) -> list[tuple[Tensor, Tensor]]:
    """``count`` prompts [length] from the validation text and the tokens [following] after each, evenly spread.

    Each starts in the middle of one of ``count`` equal parts of the text. Raises ValueError if a part is too short.
    """
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


def conclusions(bits: Mapping[str, Sequence[float]], bigram: float) -> list[str]:
    """What the validation losses say, in sentences; nothing about rows that were not run."""

    def printed(row: str) -> float | None:
        return table_4(PUBLISHED[row], "validation") if row in PUBLISHED else None

    order = row_losses.order(bits, printed, "Table 4")
    return row_losses.summary(bits, Floor("bigram", bigram)) + order + row_losses.against_baselines(bits)
