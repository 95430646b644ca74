"""What the runs of notebook 15 say: losses and accuracies of the masked models, and scores of the fine-tuned ones."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from transnormer_lib.analysis import seeds
from transnormer_lib.analysis.shortcuts import shortcuts
from transnormer_lib.choices import TaskKind
from transnormer_lib.data.batches import IGNORE, evaluation_windows
from transnormer_lib.data.faults import DataUnavailable
from transnormer_lib.data.tasks import TaskData, task_definition
from transnormer_lib.data.text import TextCorpus
from transnormer_lib.data.two_sided_ngrams import two_sided_bits
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.models.initialisation import undrawn
from transnormer_lib.models.language_model import LanguageModel
from transnormer_lib.progress import tracked
from transnormer_lib.studies.bidirectional_lm.places import without_context
from transnormer_lib.studies.common import classification, findings, language_models
from transnormer_lib.studies.common.classification import Absent
from transnormer_lib.studies.common.language_models import TWO_SIDED, Floor, final_bits
from transnormer_lib.studies.common.measured import Measured, by_row
from transnormer_lib.studies.gau_model import runs as study
from transnormer_lib.studies.gau_model.runs import MASKING, Parameters
from transnormer_lib.training.config import RunConfig
from transnormer_lib.training.evaluation import held_out_batches
from transnormer_lib.training.setup import training_batches
from transnormer_lib.training.store import RunStore
from transnormer_lib.training.stored_run import Run, RunFailed

# What ``analysis.shortcuts`` measures, by the kind of the task.
SHORTCUTS: Mapping[TaskKind, tuple[str, str]] = {
    "label": ("most common label", "bag of characters"),
    "choice": ("most common place", "bag of characters"),
    "span": ("first sentence", "sentence most like the question"),
}
NO_CONTEXT = "no context"  # the best guess from the selected place alone


def text(parameters: Parameters) -> TextCorpus | Absent:
    """The text of the pre-training, or why it is not on this machine."""
    try:
        return language_models.corpus(parameters)
    except DataUnavailable as problem:
        return Absent(str(problem))


def missing(text: TextCorpus | Absent, rows: Sequence[str], parameters: Parameters) -> str:
    """Why these rows have no pre-training; empty where they have."""
    if isinstance(text, Absent):
        return text.reason
    lacking = [row for row in rows if row not in parameters.rows]
    return f"the parameters train no {' and no '.join(lacking)}" if lacking else ""


@dataclass(frozen=True)
class MeasuredEncoder(Measured):
    """One pre-training, with the share of the selected tokens that its model guesses right."""

    accuracy: float


def measure(parameters: Parameters, corpus: TextCorpus, store: RunStore) -> list[MeasuredEncoder]:
    """Train or load every pre-training and measure its model on the held-out text."""
    found = []
    for row, seed, run in study.search(parameters).trained(store):
        done = run.record["status"] == "finished"
        accuracy = accuracy_of(run.model(), run.config, corpus) if done else -math.inf
        found.append(MeasuredEncoder(row, seed, final_bits(run), run, accuracy))
    return found


@torch.no_grad()
def accuracy_of(model: LanguageModel, config: RunConfig, corpus: TextCorpus) -> float:
    """The share of the selected tokens of the held-out text whose likeliest character is the right one."""
    right = places = 0
    for batch in held_out_batches(config, corpus):
        selected = batch["targets"] != IGNORE
        logits = model.logits(model.hidden(batch["input_ids"])[selected])
        right += int((logits.argmax(-1) == batch["targets"][selected]).sum())
        places += int(selected.sum())
    return right / places


def baselines(parameters: Parameters, corpus: TextCorpus) -> dict[str, float]:
    """Bits per selected token of the two-sided 3-gram and of :data:`NO_CONTEXT`, where the models are measured."""
    windows = parameters.validation_windows
    batches = evaluation_windows(
        corpus.tokens["validation"],
        length=parameters.length,
        batch_size=windows,
        limit=windows,
        masked=(corpus.vocabulary, MASKING),
        word_starts=corpus.word_starts["validation"],
    )
    train, held_out = corpus.tokens["train"], corpus.tokens["validation"]
    blind = without_context(train, held_out, corpus.vocabulary.text_size, MASKING)
    return {TWO_SIDED: two_sided_bits(corpus, batches, MASKING), NO_CONTEXT: blind}


def floor(baselines: Mapping[str, float]) -> Floor:
    return Floor(TWO_SIDED, baselines[TWO_SIDED])


def loss_table(measured: Sequence[MeasuredEncoder], baselines: Mapping[str, float]) -> list[dict[str, Any]]:
    """One line per row: mean loss and range, mean accuracy, parameters; the simple models below."""
    accuracy = by_row(measured, "accuracy")
    lines: list[dict[str, Any]] = [
        {
            "model": row,
            "bits": seeds.mean(bits),
            "range": seeds.spread(bits, 3),
            "right, percent": 100.0 * seeds.mean(accuracy[row]),
            "parameters": next(m.run.parameters for m in measured if m.row == row),
        }
        for row, bits in by_row(measured).items()
    ]
    return lines + [{**dict.fromkeys(lines[0]), "model": name, "bits": bits} for name, bits in baselines.items()]


@dataclass(frozen=True)
class Tuned:
    """The fine-tunings on one task: the data, the judged runs by row, the shortcuts.

    Scores are the task's first metric in percent, accuracy but for CMRC; minus infinity where a run or its encoder
    diverged.
    """

    data: TaskData
    split: str  # on which they are measured: test where it has labels, else validation
    scores: Mapping[str, list[float]]
    shortcuts: Mapping[str, float]
    runs: Sequence[Run]


def tune(task: str, parameters: Parameters, store: RunStore) -> Tuned | Absent:
    """Train or load every fine-tuning on a task, or say which data lack."""
    data = classification.load(study.task_data(task, parameters))
    if isinstance(data, Absent):
        return data
    split = "test" if "test" in data.splits else "validation"
    found: list[Measured] = []
    runs = []
    for row, seed, config in tracked(study.tunings(task, parameters).judged(), "run"):
        value, run = _score(config, split, store)
        found.append(Measured(row, seed, value, run))
        runs.append(run)
    short, metric = shortcuts(data, split), data.metrics[0]
    simplest, simple = SHORTCUTS[data.kind]
    reached = {simplest: 100.0 * short.most_common[metric], simple: 100.0 * short.bag_of_tokens[metric]}
    return Tuned(data, split, by_row(found), reached, runs)


def _score(config: RunConfig, split: str, store: RunStore) -> tuple[float, Run]:
    try:
        run = store.get(config)
    except RunFailed:  # its encoder diverged, so there is nothing to fine-tune, and the row loses
        assert config.start_from is not None
        return -math.inf, store.get(config.start_from)
    if run.record["status"] != "finished":
        return -math.inf, run
    measured = run.record["at_end"]["test"] if split == "test" else run.validation
    return 100.0 * measured[task_definition(config.data.task_name).metrics[0]], run


def notes(*tuned: Tuned) -> list[str]:
    """How the data of these tasks differ from the published ones. A sample's note begins with that word."""
    return [f"{note} ({of.data.title})" for of in tuned for note in of.data.notes]


def lacking(
    task: str, tuned: Mapping[str, Tuned], absent: Mapping[str, Absent], parameters: Parameters, rows: Iterable[str]
) -> str:
    """Why these rows have no scores on a task of CLUE; empty where they have."""
    if task in absent:
        return absent[task].reason
    if task not in tuned:
        return f"the parameters ask for no run on {task}"
    missing = [row for row in rows if row not in parameters.rows]
    return f"the parameters train no {' and no '.join(missing)}" if missing else ""


def mean_floor(tuned: Mapping[str, Tuned], tasks: Sequence[str]) -> float:
    """The mean over the tasks of the better shortcut: the floor of :func:`mean_scores`."""
    return math.fsum(max(tuned[task].shortcuts.values()) for task in tasks) / len(tasks)


def mean_scores(tuned: Mapping[str, Tuned], tasks: Sequence[str], row: str) -> list[float]:
    """The mean over the tasks of a row's scores, by seed."""
    return [math.fsum(of) / len(tasks) for of in zip(*(tuned[task].scores[row] for task in tasks), strict=True)]


@dataclass(frozen=True)
class Words:
    """What whole-word masking selected in a number of batches."""

    words: int
    selected: float  # share of the words
    tokens: float  # share of the tokens
    in_part: int  # words with selected tokens and others


def words_selected_in_part(parameters: Parameters, corpus: TextCorpus, batches: int) -> Words:
    """Count the words of the first training batches of seed 0, with a loop over words that the library does without."""
    config = study.pretraining(parameters.rows[0], 0, parameters.learning_rate, "count", parameters)
    starts, words, selected, in_part, tokens = corpus.word_starts["train"], 0, 0, 0, 0
    sampler = training_batches(config, corpus)
    for number in range(batches):
        chosen = (sampler.batch(number)["targets"] != IGNORE).numpy()
        places = np.random.default_rng([config.seed, number]).integers(
            starts.size - parameters.length + 1, size=parameters.batch_size
        )
        for row, place in zip(chosen, places.tolist(), strict=True):
            begins = [0, *np.flatnonzero(starts[place + 1 : place + parameters.length]) + 1]
            shares = np.add.reduceat(row, begins) / np.diff([*begins, parameters.length])
            words, selected = words + len(begins), selected + int((shares > 0).sum())
            in_part += int(((shares > 0) & (shares < 1)).sum())
        tokens += int(chosen.sum())
    all_tokens = batches * parameters.batch_size * parameters.length
    return Words(words, selected / words, tokens / all_tokens, in_part)


def layer_parts(config: ModelConfig) -> dict[str, int]:
    """Numbers of parameters in the layers of a model: all, the biases, and GAU's scales of z. No weight is drawn."""
    with undrawn():
        named = [pair for block in LanguageModel(config).stack() for pair in block.named_parameters()]
    return {
        "all layers": sum(weight.numel() for _, weight in named),
        "biases": sum(weight.numel() for name, weight in named if name.endswith("bias")),
        "scales of z": sum(weight.numel() for name, weight in named if name.endswith("gamma")),
    }


def picture(parameters: Parameters, store: RunStore) -> list[Measured]:
    """Train or load every decoder of the picture; most are notebook 04's."""
    return [Measured(row, seed, final_bits(run), run) for row, seed, run in study.picture(parameters).trained(store)]


def bigram(parameters: Parameters) -> float:
    """Bits per byte of the bigram on the validation text of the decoders: their floor."""
    decoders = parameters.decoders
    return language_models.ngram_bits(decoders, language_models.corpus(decoders))["2-gram"]


def unbeaten(bits: Mapping[str, Sequence[float]], prices: Mapping[str, float]) -> list[str]:
    """The trained models than which no other has both a loss and a price that are as low."""
    points = {row: (seeds.mean(bits[row]), price) for row, price in prices.items() if row in bits}
    return [
        row
        for row, (loss, price) in points.items()
        if not any(other != row and a <= loss and b <= price for other, (a, b) in points.items())
    ]


def in_the_picture(bits: Mapping[str, Sequence[float]], kinds: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Which models are not beaten in loss and price at once, per kind of price."""
    return [
        f"{kind.capitalize()}: no other model has both a lower loss and a lower price than {', '.join(best)}."
        for kind, prices in kinds.items()
        if (best := unbeaten(bits, prices))
    ]


def picture_in_words(bits: Mapping[str, Sequence[float]], kinds: Mapping[str, Mapping[str, float]]) -> str:
    """:func:`unbeaten` of every kind of price in one sentence; one seed is named, since it orders no losses."""
    said = "; ".join(f"{kind}: {findings.joined(unbeaten(bits, prices)) or 'none'}" for kind, prices in kinds.items())
    single = " (one seed)" if bits and max(map(len, bits.values())) == 1 else ""
    return f"Not beaten in loss and price at once{single}, {said}."
