"""What the runs of notebook 05 say: losses, what they are made of, and the gaps that the models fill."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from transnormer_lib.analysis import seeds
from transnormer_lib.data.masking import MaskingConfig
from transnormer_lib.data.text import TextCorpus
from transnormer_lib.data.vocabulary import Vocabulary
from transnormer_lib.models.language_model import LanguageModel
from transnormer_lib.studies.bidirectional_lm.places import Guess, Sides, without_context
from transnormer_lib.studies.bidirectional_lm.published import published_perplexity
from transnormer_lib.studies.bidirectional_lm.runs import Parameters, search
from transnormer_lib.studies.common import language_models, row_losses
from transnormer_lib.studies.common.language_models import Floor, final_bits, printable
from transnormer_lib.studies.common.measured import Measured, by_row
from transnormer_lib.training.evaluation import held_out_batches
from transnormer_lib.training.store import RunStore

NO_CONTEXT = "no context"  # the best guess from the selected place alone; no better: nothing learned from other tokens


@dataclass(frozen=True)
class MeasuredEncoder(Measured):
    """One run, with its loss by what the model sees at a place, and at single gaps with both sides or the left."""

    by_input: Mapping[str, float] = field(default_factory=dict)
    sides: Sides | None = None

    @property
    def both(self) -> float:
        return math.inf if self.sides is None else self.sides.both

    @property
    def left(self) -> float:
        return math.inf if self.sides is None else self.sides.left


def measure(parameters: Parameters, store: RunStore) -> list[MeasuredEncoder]:
    """Train or load every run, and measure its model at the selected places of the held-out text."""
    from transnormer_lib.studies.bidirectional_lm import places

    corpus = language_models.corpus(parameters)
    windows, mask_id = held_out(corpus, parameters.length, parameters.sides_windows), corpus.vocabulary.mask_id
    measured = []
    for row, seed, run in search(parameters).trained(store):
        if run.record["status"] != "finished":
            measured.append(MeasuredEncoder(row, seed, math.inf, run))
            continue
        model = run.model()
        by_input = places.losses_by_input(model, held_out_batches(run.config, corpus), mask_id)
        sides = places.sides(model, windows, mask_id)
        measured.append(MeasuredEncoder(row, seed, final_bits(run), run, by_input, sides))
    return measured


def baselines(parameters: language_models.LanguageModelParameters, corpus: TextCorpus) -> dict[str, float]:
    """Bits per token of n-gram models and of :data:`NO_CONTEXT`, best first."""
    train, validation = (corpus.tokens[split] for split in ("train", "validation"))
    blind = without_context(train, validation, corpus.vocabulary.text_size, MaskingConfig())
    bits = language_models.ngram_bits(parameters, corpus) | {NO_CONTEXT: blind}
    return dict(sorted(bits.items(), key=lambda item: item[1]))


def held_out(corpus: TextCorpus, length: int, limit: int) -> Tensor:
    """At most ``limit`` sequences [B, length] of the unmasked validation text, spread evenly over it."""
    tokens = corpus.tokens["validation"]
    windows = len(tokens) // length
    chosen = [number * windows // min(limit, windows) * length for number in range(min(limit, windows))]
    return torch.stack([torch.tensor(tokens[at : at + length]).long() for at in chosen])


def table(measured: Sequence[Measured], ngrams: Mapping[str, float]) -> list[dict[str, Any]]:
    """One line per row: mean loss, the range and how many runs diverged, the paper's perplexity; n-grams below."""
    lines = []
    for row, bits in by_row(measured).items():
        lines.append(
            {
                "model": row,
                "bits": seeds.mean(bits),
                "range": seeds.spread(bits, 3),
                "perplexity": 2.0 ** seeds.mean(bits),
                "parameters": next(m.run.record["parameters"] for m in measured if m.row == row),
                "Tables 1, 8": published_perplexity(row),
            }
        )
    empty = dict.fromkeys(lines[0]) if lines else {}
    return lines + [{**empty, "model": name, "bits": bits, "perplexity": 2.0**bits} for name, bits in ngrams.items()]


def input_table(measured: Sequence[MeasuredEncoder]) -> list[dict[str, Any]]:
    """One line per row: mean bits by what the model sees at a selected place, over the runs that finished."""
    lines = []
    for row in dict.fromkeys(m.row for m in measured if m.by_input):
        mine = [m.by_input for m in measured if m.row == row and m.by_input]
        lines.append({"model": row} | {name: seeds.mean([by[name] for by in mine]) for name in mine[0]})
    return lines


def sides_table(measured: Sequence[MeasuredEncoder]) -> list[dict[str, Any]]:
    """One line per row: mean bits at a gap with both sides, with the left one alone, and what the right one adds."""
    left = by_row(measured, "left")
    lines = []
    for row, values in by_row(measured, "both").items():
        with_both, with_left = seeds.mean(values), seeds.mean(left[row])
        line = {"model": row, "both sides": with_both, "left side alone": with_left}
        if with_both < math.inf:
            lines.append(line | {"worth of the right side": with_left - with_both})
    return lines


@dataclass(frozen=True)
class Passage:
    """A held-out passage with gaps."""

    ids: Tensor  # [N]
    gaps: tuple[int, ...]  # positions, rising


def passages(corpus: TextCorpus, count: int, length: int, gaps: int) -> list[Passage]:
    """``count`` passages [length] of the validation text, evenly spread, each with ``gaps`` evenly spread gaps.

    A passage starts with white space, so with a whole word. Raises ValueError if passages or gaps do not fit.
    """
    tokens = corpus.tokens["validation"]
    part = len(tokens) // max(count, 1)
    if count < 1 or not 1 <= gaps <= length or 2 * length > part:
        raise ValueError(f"count={count!r}, length={length!r}, gaps={gaps!r}: must be at least 1 and fit the text")
    places = tuple((2 * number + 1) * length // (2 * gaps) for number in range(gaps))
    found = []
    for number in range(count):
        middle = number * part + part // 2
        nearby = range(middle, middle + length)
        start = next((at for at in nearby if corpus.vocabulary.decode(tokens[at : at + 1])[:1].isspace()), middle)
        found.append(Passage(torch.tensor(tokens[start : start + length]).long(), places))
    return found


def with_gaps(corpus: TextCorpus, passage: Passage) -> str:
    """The passage on one line, its gaps as ⟨1⟩, ⟨2⟩, ...; signs as in :func:`piece`, except for spaces."""
    text, start = "", 0
    for number, gap in enumerate((*passage.gaps, len(passage.ids)), start=1):
        text += printable(corpus.vocabulary.decode(passage.ids[start:gap].numpy()))
        text += f"⟨{number}⟩" if number <= len(passage.gaps) else ""
        start = gap + 1
    return text.strip()


def piece(vocabulary: Vocabulary, token: int) -> str:
    """A token in readable form: ␣ for a space, ⏎ for a new line, � for what cannot be printed, ∅ for no text."""
    return printable(vocabulary.decode([token])).replace(" ", "␣") or "∅"


def guess_table(corpus: TextCorpus, passage: Passage, guesses: Mapping[str, list[Guess]]) -> list[dict[str, str]]:
    """One line per row: its likeliest pieces for every gap with their probability in percent; first the text itself."""
    vocabulary = corpus.vocabulary
    headings = [f"⟨{number}⟩" for number in range(1, len(passage.gaps) + 1)]
    there = [piece(vocabulary, int(passage.ids[gap])) for gap in passage.gaps]
    lines = [{"model": "the text"} | dict(zip(headings, there, strict=True))]
    for row, by_gap in guesses.items():
        cells = []
        for guess in by_gap:
            likely = zip(guess.tokens, guess.probabilities, strict=True)
            said = ", ".join(f"{piece(vocabulary, token)} {100 * share:.0f}" for token, share in likely)
            cells.append(f"{said}; right: {100 * guess.right:.1f} (place {guess.rank})")
        lines.append({"model": row} | dict(zip(headings, cells, strict=True)))
    return lines


def models_of(measured: Sequence[Measured], seed: int) -> dict[str, LanguageModel]:
    """The trained model of every row for one seed; without rows whose run did not finish."""
    return {m.row: m.run.model() for m in measured if m.seed == seed and m.run.record["status"] == "finished"}


def conclusions(measured: Sequence[MeasuredEncoder], baselines: Mapping[str, float], floor: Floor) -> list[str]:
    """What the losses say, in sentences; nothing about rows that were not run."""
    bits, blind = by_row(measured), baselines[NO_CONTEXT]
    lines = row_losses.summary(bits, floor)
    if bits:
        named = [f"{row} {sum(value < blind for value in of)} of {len(of)}" for row, of in bits.items()]
        lines.append(f"Runs that do better than without context ({blind:.3f}): {', '.join(named)}.")
    lines += row_losses.order(bits, published_perplexity, "Tables 1 and 8") + row_losses.against_baselines(bits)
    if worth := {line["model"]: line["worth of the right side"] for line in sides_table(measured)}:
        said = ", ".join(f"{row} {gain:+.3f}" for row, gain in worth.items())
        lines.append(f"What the right side of a gap is worth, in bits: {said}.")
    return lines
