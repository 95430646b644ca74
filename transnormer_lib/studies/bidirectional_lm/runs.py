"""The encoders of Table 5 before any task: masked language models, which GLUE and the ablations start from.

Whoever needs such an encoder asks :func:`run` for it with the parameters of notebook 05, and the store trains it once.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from transnormer_lib.data.masking import MaskingConfig
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.papers import tables
from transnormer_lib.studies.common import language_models, row_losses
from transnormer_lib.studies.common.language_models import RELEASED, final_bits, grid, released
from transnormer_lib.training.config import RunConfig

if TYPE_CHECKING:
    from torch import Tensor

    from transnormer_lib.data.text import TextCorpus
    from transnormer_lib.data.vocabulary import Vocabulary
    from transnormer_lib.models.language_model import LanguageModel
    from transnormer_lib.studies.bidirectional_lm.places import Guess, Sides
    from transnormer_lib.training.store import Run, RunStore

# Rows of Table 5 by our names.
PUBLISHED = {
    "vanilla": "Vanilla",
    "flash-quad": "FLASH-quad",
    "flash": "FLASH",
    "transformer-ls": "LS",
    "performer": "Performer",
    "linear": "1+elu",
    "transnormer-t1": "TransNormer T1",
    "transnormer-t2": "TransNormer T2",
}

# The best guess that looks at the selected place alone: who is no better has learned nothing from the other tokens.
NO_CONTEXT = "no context"

# The vocabulary of Table 13: perplexity per piece of it is what Tables 1 and 8 print.
PIECES = "gpt2-bpe"


@dataclass(frozen=True)
class EncoderParameters(language_models.LanguageModelParameters):
    """What the pre-training of an encoder depends on."""

    attention_dropout: float  # of the attention matrix; softmax attention alone has it
    waypoints: tuple[float, ...]  # shares of the steps after which the validation loss is measured


@dataclass(frozen=True)
class Parameters(EncoderParameters, language_models.Rows):
    """The notebook's parameters that decide what is trained and measured."""

    sides_windows: int  # held-out sequences with one gap each, read with and without what follows


def model(row: str, parameters: EncoderParameters, **fields: Any) -> ModelConfig:
    """The encoder of a row: an architecture, or one as :func:`released`; ``fields`` as in ``architecture``.

    ``attention_dropout`` is Table 13's, where vanilla attention alone has it; the released recipe has its own.
    Embeddings are not scaled, as in RoBERTa: scaled to unit size they would drown the learned positions, which start
    at a fiftieth of that.
    """
    name, shared = row.removesuffix(RELEASED), {"scale_embedding": False, **fields}
    if name != row:
        return language_models.model(name, parameters, recipe="released", **shared)
    dropout = parameters.attention_dropout if "vanilla" in name else 0.0
    return language_models.model(name, parameters, attention_dropout=dropout, **shared)


def run(row: str, seed: int, parameters: EncoderParameters, **fields: Any) -> RunConfig:
    """The pre-training of one row with one seed; validation is measured at ``waypoints``, shares of the steps."""
    waypoints = language_models.waypoints(parameters.waypoints, parameters.steps)
    return language_models.run(row, model(row, parameters, **fields), seed, parameters, waypoints=waypoints)


def runs(parameters: Parameters) -> list[RunConfig]:
    """One run per row and seed, rows first."""
    return [run(row, seed, parameters) for row, seed in grid(parameters.rows(), parameters.seeds)]


def published_perplexity(row: str) -> float | None:
    """The masked-LM perplexity that the paper prints for a row; it has one for 1+elu (Table 1) and TransNormer (8)."""
    if row == "linear":
        value = tables.load("transnormer", "table_1").value("ppl_val", method="1+elu")
    elif row in ("transnormer-t1", "transnormer-t2"):
        value = tables.load("transnormer", "table_8").value(
            row.removeprefix("transnormer-"), diag_layers=6, norm_layers=6
        )
    else:
        return None
    assert isinstance(value, float)
    return value


def published_parameters(row: str) -> float:
    """The parameters in millions that Table 5 prints for a row."""
    value = tables.load("transnormer", "table_5").value("params", method=PUBLISHED[row])
    assert isinstance(value, float)
    return value


def decoder_and_encoder() -> list[dict[str, Any]]:
    """What tells the two published TransNormer models apart, one line per property."""
    from transnormer_lib.models.architectures import published
    from transnormer_lib.models.language_model import count_parameters

    models = {kind: published("transnormer-t2", kind) for kind in ("decoder", "encoder")}
    places = {"pre": "before each part, and at the end", "post": "after each part's sum"}
    reads = {"decoder": "what came before", "encoder": "both sides"}
    lines: dict[str, dict[str, Any]] = {
        "a token reads": reads,
        "layers": {kind: model.layers for kind, model in models.items()},
        "width": {kind: model.dim for kind, model in models.items()},
        "heads": {kind: model.heads for kind, model in models.items()},
        "width inside the GLU": {kind: model.hidden_width for kind, model in models.items()},
        "ids of the vocabulary": {kind: f"{model.vocab_size:,}" for kind, model in models.items()},
        "positions": {kind: model.positions for kind, model in models.items()},
        "norm": {kind: places[model.norm_placement] for kind, model in models.items()},
        "parameters (M)": {kind: round(count_parameters(model) / 1e6, 2) for kind, model in models.items()},
    }
    return [{"": name, "notebook 04": by["decoder"], "here": by["encoder"]} for name, by in lines.items()]


@dataclass(frozen=True)
class Measured:
    """One run: its losses in bits per selected token, infinite where it diverged."""

    row: str
    seed: int
    validation: float
    run: "Run"
    by_input: Mapping[str, float] = field(default_factory=dict)  # by what the model sees at the place
    sides: "Sides | None" = None  # of single gaps, with the whole sequence and with what stands before

    @property
    def both(self) -> float:
        return math.inf if self.sides is None else self.sides.both

    @property
    def left(self) -> float:
        return math.inf if self.sides is None else self.sides.left


def measure(parameters: Parameters, store: "RunStore") -> list[Measured]:
    """Train or load every run, and see what its model does at the places of the held-out text."""
    from transnormer_lib.studies.bidirectional_lm import places as masked_places
    from transnormer_lib.training.evaluation import held_out_batches

    corpus = language_models.corpus(parameters)
    windows, mask_id = held_out(corpus, parameters.length, parameters.sides_windows), corpus.vocabulary.mask_id
    measured = []
    for (row, seed), config in zip(grid(parameters.rows(), parameters.seeds), runs(parameters), strict=True):
        run = store.get(config)
        if run.record["status"] != "finished":
            measured.append(Measured(row, seed, math.inf, run))
            continue
        model = run.model()
        by_input = masked_places.losses_by_input(model, held_out_batches(config, corpus), mask_id)
        sides = masked_places.sides(model, windows, mask_id)
        measured.append(Measured(row, seed, final_bits(run), run, by_input, sides))
    return measured


def baselines(corpus: "TextCorpus") -> dict[str, float]:
    """Bits per token of what is no masked model: the n-gram models, and :data:`NO_CONTEXT`, best first."""
    from transnormer_lib.studies.bidirectional_lm.places import without_context

    train, validation = (corpus.tokens[split] for split in ("train", "validation"))
    blind = without_context(train, validation, corpus.vocabulary.text_size, MaskingConfig())
    bits = language_models.ngram_bits(corpus) | {NO_CONTEXT: blind}
    return dict(sorted(bits.items(), key=lambda item: item[1]))


def held_out(corpus: "TextCorpus", length: int, limit: int) -> "Tensor":
    """At most ``limit`` sequences [B, length] of the validation text as it is, spread evenly over it."""
    import torch

    tokens = corpus.tokens["validation"]
    windows = len(tokens) // length
    chosen = [number * windows // min(limit, windows) * length for number in range(min(limit, windows))]
    return torch.stack([torch.tensor(tokens[at : at + length]).long() for at in chosen])


def table(measured: Sequence[Measured], ngrams: Mapping[str, float]) -> list[dict[str, Any]]:
    """One line per row: losses of the runs that finished, how many diverged, the paper's number; n-grams below."""
    lines = []
    for row, bits in row_losses.by_row(measured).items():
        mean = row_losses.finished_mean(bits)
        printed = published_perplexity(row)
        lines.append(
            {
                "model": row,
                "bits": mean,
                "range": row_losses.spread(bits),
                "perplexity": 2.0**mean,
                "parameters": next(m.run.record["parameters"] for m in measured if m.row == row),
                "Tables 1, 8": printed,
            }
        )
    empty = dict.fromkeys(lines[0]) if lines else {}
    return lines + [{**empty, "model": name, "bits": bits, "perplexity": 2.0**bits} for name, bits in ngrams.items()]


def input_table(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """One line per row: mean bits by what the model sees at a selected place, over the runs that finished."""
    lines = []
    for row in dict.fromkeys(m.row for m in measured if m.by_input):
        mine = [m.by_input for m in measured if m.row == row and m.by_input]
        lines.append({"model": row} | {name: math.fsum(by[name] for by in mine) / len(mine) for name in mine[0]})
    return lines


def sides_table(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """One line per row: mean bits at a gap with both sides, with the left one alone, and what the right one adds."""
    both, left = (row_losses.by_row(measured, name) for name in ("both", "left"))
    return [
        {
            "model": row,
            "both sides": row_losses.finished_mean(bits),
            "left side alone": row_losses.finished_mean(left[row]),
            "worth of the right side": row_losses.finished_mean(left[row]) - row_losses.finished_mean(bits),
        }
        for row, bits in both.items()
        if row_losses.finished_mean(bits) < math.inf
    ]


@dataclass(frozen=True)
class Passage:
    """A held-out passage with gaps."""

    ids: "Tensor"  # [N]
    gaps: tuple[int, ...]  # positions, rising


def passages(corpus: "TextCorpus", count: int, length: int, gaps: int) -> list[Passage]:
    """``count`` passages [length] of the validation text, evenly spread, each with ``gaps`` gaps, evenly spread.

    A passage begins with a word. Raises ValueError where passages or gaps do not fit.
    """
    import torch

    tokens = corpus.tokens["validation"]
    part = len(tokens) // max(count, 1)
    if count < 1 or not 1 <= gaps <= length or 2 * length > part:
        raise ValueError(f"count={count!r}, length={length!r}, gaps={gaps!r}: must be at least 1 and fit the text")
    places = tuple((2 * number + 1) * length // (2 * gaps) for number in range(gaps))
    found = []
    for number in range(count):
        middle = number * part + part // 2
        start = next((at for at in range(middle, middle + length) if _begins_word(corpus, at)), middle)
        found.append(Passage(torch.tensor(tokens[start : start + length]).long(), places))
    return found


def _begins_word(corpus: "TextCorpus", at: int) -> bool:
    """Whether a word begins at this token: its text starts with white space, or it follows such a byte."""
    tokens, decode = corpus.tokens["validation"], corpus.vocabulary.decode
    return decode(tokens[at : at + 1])[:1].isspace()


def with_gaps(corpus: "TextCorpus", passage: Passage) -> str:
    """The passage on one line, its gaps as ⟨1⟩, ⟨2⟩, ...; signs as in :func:`piece`, but that a space is a space."""
    text, start = "", 0
    for number, gap in enumerate((*passage.gaps, len(passage.ids)), start=1):
        text += _shown(corpus.vocabulary.decode(passage.ids[start:gap].numpy()))
        text += f"⟨{number}⟩" if number <= len(passage.gaps) else ""
        start = gap + 1
    return text.strip()


def piece(vocabulary: "Vocabulary", token: int) -> str:
    """A token as it can be read: a space is shown as ␣, a new line as ⏎, what cannot be printed as �, and the ids
    that stand for no text as ∅."""
    return _shown(vocabulary.decode([token])).replace(" ", "␣") or "∅"


def _shown(text: str) -> str:
    signs = text.replace("\n", "⏎")
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in signs)


def guess_table(corpus: "TextCorpus", passage: Passage, guesses: Mapping[str, "list[Guess]"]) -> list[dict[str, str]]:
    """One line per row: at every gap its likeliest pieces with their probability, in percent; first the text itself."""
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


def models_of(measured: Sequence[Measured], seed: int) -> "dict[str, LanguageModel]":
    """The trained model of every row for one seed; rows whose run did not finish are left out."""
    return {m.row: m.run.model() for m in measured if m.seed == seed and m.run.record["status"] == "finished"}


def conclusions(measured: Sequence[Measured], baselines: Mapping[str, float]) -> list[str]:
    """What the losses say, in sentences with their figures; nothing about rows that were not run."""
    bits, blind = row_losses.by_row(measured), baselines[NO_CONTEXT]
    lines = row_losses.summary(bits, baselines["2-gram"])
    if bits:
        named = [f"{row} {sum(value < blind for value in of)} of {len(of)}" for row, of in bits.items()]
        lines.append(f"Runs that do better than without context ({blind:.3f}): {', '.join(named)}.")
    lines += row_losses.order(bits, published_perplexity, "Tables 1 and 8")
    variants = ("transnormer-t1", "transnormer-t2")
    pairs = [(row, other) for row in variants for other in ("linear", "linear-matched", "vanilla", "vanilla-matched")]
    pairs += [(released(row), released(other)) for row in variants for other in ("linear-matched", "vanilla-matched")]
    lines += [row_losses.compared(row, other, bits) for row, other in pairs if row in bits and other in bits]
    if worth := {line["model"]: line["worth of the right side"] for line in sides_table(measured)}:
        said = ", ".join(f"{row} {gain:+.3f}" for row, gain in worth.items())
        lines.append(f"What the right side of a gap is worth, in bits: {said}.")
    return lines
