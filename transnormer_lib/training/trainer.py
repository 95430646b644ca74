"""One training run: a config in, a trained model and a JSON-ready record out.

The trainer knows nothing of notebooks and reports. Device, precision and processes are Accelerate's business; the
order of the data is a pure function of (seed, step); weights and dropout follow from the seed, so a run on a CPU
repeats bit for bit, also when it was interrupted and went on from a checkpoint.

The sequences of an optimiser step are cut into equal shares, one per process and micro-batch. Every process builds
the whole batch and takes its shares, and each share counts in the loss by its number of counted tokens, or examples;
so neither the number of micro-batches nor of processes changes a step but by rounding (dropout draws other numbers,
though).

A loss that is not finite, or a gradient whose norm is not, ends the run, without the step that it would have spoilt.
Under fp16 a gradient may overflow because the gradient scaler tries a scale too large; such a step is left out, the
scale falls, and only a gradient that overflows at a scale below 1 counts as divergence. A loss outside a band of the
config ends the run too (``training.bands``).
"""

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from transnormer_lib.attention.random_features import RandomProjection
from transnormer_lib.data.batches import IGNORE, Batch
from transnormer_lib.data.text import TextCorpus
from transnormer_lib.training import bands
from transnormer_lib.training.checkpoints import Checkpoints
from transnormer_lib.training.config import RunConfig, RunRefused
from transnormer_lib.training.devices import build_accelerator, launched_processes, shards, whole_state
from transnormer_lib.training.divergence import Divergence, locate
from transnormer_lib.training.evaluation import (
    better,
    check_splits,
    evaluate,
    held_out_batches,
    labelled_batches,
    measured_splits,
)
from transnormer_lib.training.gradient_statistics import GradientRecorder, GradientStatistics
from transnormer_lib.training.interruption import deferred
from transnormer_lib.training.optimisation import build_optimizer, clip, gradient_norms, gradients_of
from transnormer_lib.training.records import History, loss_of, make_record
from transnormer_lib.training.schedules import factor, momentum
from transnormer_lib.training.setup import build, load_data, loss_on, tokens_in, training_batches

Progress = Callable[[int, float], None]
# Steps after which losses are read: reading makes an accelerator wait. On a CPU it costs nothing.
_ACCELERATOR_WINDOW = 16
_CPU_WINDOW = 1


class Trained(NamedTuple):
    """What a run gives: the model on the CPU in evaluation mode, the record, the gradients' statistics if asked for."""

    model: Any  # LanguageModel or Classifier
    record: dict[str, Any]
    gradients: GradientStatistics | None


def train(
    config: RunConfig,
    progress: Progress | None = None,
    checkpoints: Checkpoints | None = None,
    tracker: Any = None,
    tracking_dir: Path = Path("tracking"),
    start: Path | None = None,
    check_bands: bool = True,
) -> Trained:
    """Train one model as ``config`` says; go on from the newest of ``checkpoints``, if there is one.

    ``progress(step, loss)`` is called for every step, on an accelerator some steps late. With ``checkpoints``, Ctrl-C
    and SIGTERM wait for the end of the step and leave one behind (in a single process). ``tracker`` (``"tensorboard"``,
    ``"wandb"``, … or an ``accelerate.tracking.GeneralTracker``) is told the losses; one that writes files uses
    ``tracking_dir``. ``start`` is the file with the weights of the run that ``config.start_from`` says; the store knows
    it. Without ``check_bands`` the bands of the config are not looked at.

    Raises:
        RunRefused (a ValueError): the config does not fit the data (vocabulary size, classes), the number of processes
            or the device (fp16), the tracker's package is not installed, or ``start`` and the config disagree.
        DataUnavailable: the data cannot be had, or a split of them that is measured at the end.
    """
    if (start is None) != (config.start_from is None):
        raise RunRefused(
            f"start_from: the config {'names' if start is None else 'does not name'} a run to start from,"
            f" and its weights are {'not given' if start is None else 'given'}"
        )
    # Of several processes each may be at another step when a signal comes, and some may wait for one that is gone.
    holds_back = checkpoints is not None and launched_processes() == 1
    accelerator = build_accelerator(config.precision, tracker, tracking_dir)
    device = accelerator.device
    # Dropout and torch's own initialisers draw from the global state: set it for this run, give the caller's back.
    own_state = torch.random.fork_rng([device] if device.type == "cuda" else [])
    with own_state, deferred(holds_back) as interruption:
        training = _Training(config, accelerator, progress, checkpoints, start, check_bands)
        try:
            while training.goes_on():
                training.optimise()
                if training.window_is_full():
                    training.read_window()
                    if interruption.pending is not None:
                        training.leave_checkpoint()
                        interruption.deliver()
            return training.result()
        finally:
            training.close()


class _Training:
    """The state of one run between its optimiser steps."""

    def __init__(
        self,
        config: RunConfig,
        accelerator: Any,
        progress: Progress | None,
        checkpoints: Checkpoints | None,
        start: Path | None,
        check_bands: bool,
    ) -> None:
        self.config, self.accelerator, self.progress, self.checkpoints = config, accelerator, progress, checkpoints
        self.data = load_data(config)
        check_splits(config, self.data)
        self.bands = {band.step for band in config.bands} if check_bands else set()
        self.shares = config.accumulate * self.accelerator.num_processes
        if config.data.batch_size % self.shares:
            raise RunRefused(
                f"data.batch_size={config.data.batch_size}: must be divisible by accumulate={config.accumulate} times"
                f" {self.accelerator.num_processes} processes"
            )
        # Each process draws dropout of its own; the first draws what a single one would.
        torch.manual_seed(config.seed + 1_000_003 * self.accelerator.process_index)
        self.sampler = training_batches(config, self.data)
        model = build(config, start)
        self.adamw = build_optimizer(config.optimizer, model)
        self.model, self.optimizer = self.accelerator.prepare(model, self.adamw)
        # Without the wrapper for several processes, with the one for precision.
        self.local = self.accelerator.unwrap_model(self.model)
        self.parameters = [p for p in self.local.parameters() if p.requires_grad]
        # Drawn anew by optimiser steps, whatever the number of passes that one takes, and not by a repeated one.
        self.projections = [m for m in self.local.modules() if isinstance(m, RandomProjection)]
        for projection in self.projections:
            projection.automatic = False
        self.rate, self.momentum = factor(config.optimizer, config.steps), momentum(config.optimizer, config.steps)
        self.evaluate_after = config.evaluated_after()
        if config.gradients == "norms" and shards(accelerator):
            raise RunRefused("gradients='norms': the statistics are of whole gradients, and FSDP shards them")
        self.recorder = GradientRecorder(self.local, config.optimizer.warmup) if config.gradients == "norms" else None
        # fp16 decides step by step, because a step that its scaler skips must not enter the statistics.
        waits = self.accelerator.device.type != "cpu" and self.accelerator.scaler is None
        self.window_length = _ACCELERATOR_WINDOW if waits else _CPU_WINDOW
        # Per step not yet read: loss, gradient's norm, random state before it, tokens.
        self.window: list[tuple[Tensor, Tensor, Any, int]] = []
        self.best: dict[str, Tensor] = {}  # the weights of the best evaluation so far, where the config keeps those
        self.broken = torch.zeros((), device=self.accelerator.device)  # 1 from the first step on that is not finite
        self.history = History()
        self.step = 0  # optimiser steps done
        self.model.train()
        if accelerator.log_with:
            self.accelerator.init_trackers(config.name)
        if checkpoints is not None:
            self._resume(checkpoints)
        self.clock = time.perf_counter()
        if self.step == 0 and not self.history.validation and 0 in self.evaluate_after:
            self._validate()
        self._check_bands()  # a run that stopped outside a band has been asked for again

    def goes_on(self) -> bool:
        """Whether there is a step left, the model is sound and no loss outside its band."""
        return self.step < self.config.steps and not self.history.ended

    def optimise(self) -> None:
        """One optimiser step. Nothing here waits for an accelerator, except under fp16."""
        for projection in self.projections:
            projection.advance()
        state = _random_state(self.accelerator.device)
        whole = self.sampler.batch(self.step)
        loss = self._backward(self._micro_batches(whole))
        scaler = self.accelerator.scaler
        if scaler is not None:
            self.accelerator.unscale_gradients(self.optimizer)
        norms = gradient_norms(gradients_of(self.parameters))
        norm = torch.linalg.vector_norm(norms)
        skipped = False
        if scaler is None:
            self.broken = torch.maximum(self.broken, 1.0 - torch.isfinite(loss + norm).float())
            self.adamw.found_inf = self.broken  # type: ignore[attr-defined]  # AdamW leaves a step out by itself
        else:
            skipped = not math.isfinite(norm.item())
            self.history.skipped += skipped
        if self.recorder is not None:
            self.recorder.add(self.step, norms, skipped)
        clip(self.parameters, self.config.optimizer, norm)
        for group in self.adamw.param_groups:
            group["lr"] = self.config.optimizer.learning_rate * self.rate(self.step)
            group["betas"] = (self.momentum(self.step), group["betas"][1])
        # A skipped step's norm is of no concern while the scaler still has room to lower its scale.
        if skipped and scaler is not None and scaler.get_scale() >= 1.0:
            norm = torch.zeros_like(norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.window.append((loss, norm, state, tokens_in(whole)))
        self.step += 1

    def window_is_full(self) -> bool:
        """Whether the losses since the last reading are due to be read."""
        return (
            len(self.window) >= self.window_length
            or self.step in self.evaluate_after
            or self.step in self.bands
            or self.step == self.config.steps
            or (self.checkpoints is not None and self.checkpoints.steps is not None and self.checkpoints.due(self.step))
        )

    def read_window(self) -> None:
        """Take the losses of the steps since the last reading into the history; validate and save where it is due."""
        first = self.step - len(self.window)
        losses = torch.stack([loss for loss, *_ in self.window])
        due = self.checkpoints is not None and self.accelerator.is_main_process and self.checkpoints.due(self.step)
        if self.accelerator.num_processes > 1:
            # One message: every process's part of the losses, and the first one's clock.
            shared = self.accelerator.reduce(torch.cat([losses, losses.new_tensor([float(due)])]), "sum")
            losses, due = shared[:-1], bool(shared[-1] > 0)
        values = torch.stack([losses, torch.stack([norm for _, norm, *_ in self.window])]).tolist()
        for step, loss, norm, (_, _, state, tokens) in zip(range(first, self.step), *values, self.window, strict=True):
            self.history.train_loss.append(loss)
            self.history.tokens += tokens
            if not math.isfinite(loss) or not math.isfinite(norm):
                self._diverge(step, state)
                return
            self._report(step + 1, loss)
        self.window.clear()
        if self.step in self.evaluate_after:
            self._validate()
        self._check_bands()
        stopped = self.history.outside is not None and self.checkpoints is not None
        if stopped or (due and self.goes_on()):
            self.write_checkpoint()

    def leave_checkpoint(self) -> None:
        """Before an interruption."""
        if self.goes_on():
            self.write_checkpoint()

    def write_checkpoint(self) -> None:
        """Save all that the run needs to go on."""
        assert self.checkpoints is not None
        self._stop_clock()
        gradients = self.recorder.state() if self.recorder is not None else None
        self.checkpoints.write(
            self.accelerator,
            self.step,
            {"step": self.step, "history": self.history.state(), "gradients": gradients, "best": self.best},
        )

    def result(self) -> Trained:
        """The trained model and its record."""
        trained = self._kept()
        if self.history.status == "finished":
            started = time.perf_counter()
            device = self.accelerator.device
            trained.to(device)
            whole = replace(self.config, evaluation_examples=None, evaluation_part="spread")
            with self.accelerator.autocast():  # as validation, whose model has it built in
                for split in self.config.measured_at_end:
                    self.history.at_end[split] = evaluate(trained, whole, self.data, device, split)
            trained.cpu()
            self.history.validation_seconds += time.perf_counter() - started
        self._stop_clock()
        steps = len(self.history.train_loss)
        record = make_record(
            self.history,
            parameters=sum(p.numel() for p in trained.parameters()),
            data={self.config.data.source: self.data.fingerprint},
            device=str(self.accelerator.device),
            processes=self.accelerator.num_processes,
        )
        gradients = None
        if self.recorder is not None:
            gradients = self.recorder.result(steps, self.history.divergence is not None)
            record["gradients"] = {"names": list(gradients.names), "counted": gradients.counted}
        return Trained(trained, record, gradients)

    def close(self) -> None:
        """Let go of the trackers. The process group stays: a process may train several runs."""
        for tracker in self.accelerator.trackers:
            tracker.finish()

    def _kept(self) -> nn.Module:
        """The model that the run leaves, on the CPU in evaluation mode."""
        if self.best or shards(self.accelerator):
            trained = build(self.config)
            trained.load_state_dict(self.best or whole_state(self.local))
            return trained.eval()
        return self.accelerator.unwrap_model(self.model, keep_fp32_wrapper=False).cpu().eval()

    def _resume(self, checkpoints: Checkpoints) -> None:
        stored = checkpoints.read(self.accelerator)
        if stored is not None:
            self.step = stored["step"]
            self.history = History(**stored["history"])
            self.best = stored["best"]
            self.history.sessions += 1
            if self.recorder is not None:
                self.recorder.restore(stored["gradients"])
        checkpoints.start()

    def _micro_batches(self, whole: Batch, every: bool = False) -> list[tuple[Batch, float]]:
        """This process's shares of the step's batch (or all), each with its part of the counted tokens or examples."""
        if self.shares == 1:
            return [(whole, 1.0)]
        parts = {name: values.chunk(self.shares) for name, values in whole.items()}
        shares = [{name: parts[name][index] for name in parts} for index in range(self.shares)]
        counted = [int((share["targets"] != IGNORE).sum()) for share in shares]
        weighted = [(share, count / sum(counted)) for share, count in zip(shares, counted, strict=True)]
        if every:
            return weighted
        return weighted[self.accelerator.process_index :: self.accelerator.num_processes]

    def _backward(self, micro_batches: list[tuple[Batch, float]]) -> Tensor:
        """Accumulate the gradients of the micro-batches; returns their part of the step's loss, []."""
        device, processes = self.accelerator.device, self.accelerator.num_processes
        total: Tensor | None = None
        for index, (batch, weight) in enumerate(micro_batches):
            last = index == len(micro_batches) - 1
            with nullcontext() if last else self.accelerator.no_sync(self.model):
                loss = loss_on(self.model, batch, device)
                if weight != 1.0:
                    loss = loss * weight
                # Between processes gradients are averaged, so that each process's part is scaled up to make a sum.
                self.accelerator.backward(loss * processes if processes > 1 else loss)
            total = loss.detach() if total is None else total + loss.detach()
        assert total is not None
        return total

    def _validate(self) -> None:
        started = time.perf_counter()
        made, device = len(self.history.validation), self.accelerator.device
        result = evaluate(self.local, self.config, self.data, device, number=made)
        self.history.validation_seconds += time.perf_counter() - started
        self.history.validation.append({"step": self.step, **result})
        self.accelerator.log({f"validation/{name}": value for name, value in result.items()}, step=self.step)
        if not math.isfinite(loss_of(result)):
            self.local.eval()
            batches = self._validation_batches(made)
            self.history.divergence = Divergence(self.step, *locate(self.local, batches, device))
        elif self.config.keep == "best" and self._agreed(self._is_best()):
            self.history.best_step = self.step
            self.best = whole_state(self.local)

    def _validation_batches(self, number: int) -> list[Batch]:
        if isinstance(self.data, TextCorpus):
            return list(held_out_batches(self.config, self.data))
        splits = measured_splits(self.data, "validation")
        return [batch for split in splits for batch in labelled_batches(self.config, self.data, split, number)]

    def _is_best(self) -> bool:
        """Whether the last evaluation is better than all before it; of equals the first is kept."""
        best = [result for result in self.history.validation[:-1] if result["step"] == self.history.best_step]
        task = None if isinstance(self.data, TextCorpus) else self.data
        return not best or better(task, self.history.validation[-1], best[0])

    def _check_bands(self) -> None:
        if self.step in self.bands and not self.history.ended:
            found = bands.outside(self.config, self.step, self.history)
            self.history.outside = found if self._agreed(found is not None) else None

    def _agreed(self, own: bool) -> bool:
        """What the main process says: rounding must not let processes decide differently and wait for each other."""
        if self.accelerator.num_processes == 1:
            return own
        from accelerate.utils import broadcast

        return bool(broadcast(torch.tensor(float(own), device=self.accelerator.device)))

    def _diverge(self, step: int, random_state: Any) -> None:
        """Weights are as they were before ``step``: run it again, with the same dropout, and look where it breaks."""
        self.step = step
        _set_random_state(random_state, self.accelerator.device)
        batches = [batch for batch, _ in self._micro_batches(self.sampler.batch(step), every=True)]
        self.history.divergence = Divergence(step, *locate(self.local, batches, self.accelerator.device))

    def _report(self, step: int, loss: float) -> None:
        if self.progress is not None:
            self.progress(step, loss)
        if self.accelerator.trackers:
            rate = self.config.optimizer.learning_rate * self.rate(step - 1)
            self.accelerator.log({"loss": loss, "learning_rate": rate}, step=step)

    def _stop_clock(self) -> None:
        now = time.perf_counter()
        self.history.seconds += now - self.clock
        self.clock = now


def _random_state(device: torch.device) -> Any:
    return torch.get_rng_state() if device.type != "cuda" else torch.cuda.get_rng_state(device)


def _set_random_state(state: Any, device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)
