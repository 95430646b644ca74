"""One training run: a config in, a trained model and a JSON-ready record out.

The trainer knows nothing of notebooks and reports. Device and precision are Accelerate's business; the order of the
data is a pure function of (seed, step); weights and dropout follow from the seed, so a run on a CPU repeats bit for
bit. A loss that is not finite stops the run, and the record says at which step.
"""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from transnormer_lib.data.batches import (
    IGNORE,
    Batch,
    Sampler,
    causal_batches,
    evaluation_windows,
    masked_batches,
    masked_evaluation_windows,
)
from transnormer_lib.data.text import TextCorpus, load_text_corpus
from transnormer_lib.models.language_model import LanguageModel, build_model
from transnormer_lib.training.config import RunConfig
from transnormer_lib.training.schedules import factor

Progress = Callable[[int, float], None]
_EVALUATION_BATCH = 32  # sequences; the loss does not depend on it


@torch.no_grad()
def evaluate(model: torch.nn.Module, config: RunConfig, corpus: TextCorpus, device: torch.device) -> dict[str, float]:
    """Validation loss on fixed windows: nats per counted token, and for causal runs bits per byte (base 2)."""
    was_training = model.training
    model.eval()
    nats, counted = 0.0, 0
    for batch in _validation_batches(config, corpus):
        targets = batch["targets"].to(device)
        loss = model(batch["input_ids"].to(device), targets_BN=targets)
        tokens = int((targets != IGNORE).sum())
        nats += loss.item() * tokens
        counted += tokens
    model.train(was_training)
    result = {"nats_per_token": nats / counted}
    if config.data.task == "causal":
        result["bits_per_byte"] = corpus.bits_per_byte(result["nats_per_token"], "validation")
    return result


def train(config: RunConfig, progress: Progress | None = None) -> tuple[LanguageModel, dict[str, Any]]:
    """Train one model as ``config`` says.

    Returns the model on the CPU in evaluation mode, and the record: status (``finished`` or ``diverged``), the loss
    per step, the validation results, seconds. ``progress(step, loss)`` is called after every step.

    Raises:
        ValueError: the config does not fit the data (vocabulary size).
        DataUnavailable: the corpus cannot be had.
    """
    # Dropout and torch's own initialisers draw from the global state: set it for this run, give the caller's back.
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        return _train(config, progress)


def _train(config: RunConfig, progress: Progress | None) -> tuple[LanguageModel, dict[str, Any]]:
    from accelerate import Accelerator

    corpus = load_text_corpus(config.data.corpus, config.data.vocabulary)
    if corpus.vocabulary.size != config.model.vocab_size:
        raise ValueError(
            f"model.vocab_size={config.model.vocab_size}: {config.data.vocabulary!r} has {corpus.vocabulary.size} ids"
        )
    accelerator = Accelerator(mixed_precision="no")
    model = build_model(config.model, config.seed)
    options = config.optimizer
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=options.learning_rate,
        betas=options.betas,
        eps=options.eps,
        weight_decay=options.weight_decay,
        fused=True,
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor(options, config.steps))
    prepared, optimizer = accelerator.prepare(model, optimizer)

    losses: list[float] = []
    validation: list[dict[str, float]] = []
    status, started = "finished", time.perf_counter()
    sampler = _sampler(config, corpus)
    evaluate_after = set(_evaluation_steps(config))
    prepared.train()
    for step in range(config.steps):
        batch = sampler.batch(step)
        loss: Tensor = prepared(
            batch["input_ids"].to(accelerator.device), targets_BN=batch["targets"].to(accelerator.device)
        )
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            status = "diverged"
            break
        accelerator.backward(loss)
        if options.clip_norm > 0:
            accelerator.clip_grad_norm_(prepared.parameters(), options.clip_norm)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        if progress is not None:
            progress(step + 1, losses[-1])
        if step + 1 in evaluate_after:
            validation.append({"step": step + 1, **evaluate(prepared, config, corpus, accelerator.device)})
    if config.steps == 0:
        validation.append({"step": 0, **evaluate(prepared, config, corpus, accelerator.device)})
    seconds = time.perf_counter() - started
    trained = accelerator.unwrap_model(prepared).cpu().eval()
    return trained, {
        "status": status,
        "steps": len(losses),
        "train_loss": losses,
        "validation": validation,
        "parameters": sum(p.numel() for p in trained.parameters()),
        "tokens": len(losses) * config.data.batch_size * config.data.length,
        "data": {config.data.corpus: corpus.fingerprint},
        "device": str(accelerator.device),
        "seconds": seconds,
    }


def _evaluation_steps(config: RunConfig) -> Iterator[int]:
    for k in range(1, config.evaluations + 1):
        yield round(config.steps * k / config.evaluations)


def _sampler(config: RunConfig, corpus: TextCorpus) -> Sampler:
    tokens, data = corpus.tokens["train"], config.data
    if data.task == "causal":
        return causal_batches(tokens, length=data.length, batch_size=data.batch_size, seed=config.seed)
    return masked_batches(tokens, corpus.vocabulary, length=data.length, batch_size=data.batch_size, seed=config.seed)


def _validation_batches(config: RunConfig, corpus: TextCorpus) -> Iterator[Batch]:
    """The same windows for every run on the same data, whatever its seed: runs are compared on them."""
    tokens, length, limit = corpus.tokens["validation"], config.data.length, config.validation_windows
    if config.data.task == "causal":
        return evaluation_windows(tokens, length=length, batch_size=_EVALUATION_BATCH, limit=limit)
    return masked_evaluation_windows(
        tokens, corpus.vocabulary, length=length, batch_size=_EVALUATION_BATCH, limit=limit
    )
