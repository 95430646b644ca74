"""One training run: a config in, a trained model and a JSON-ready record out.

Accelerate handles device, precision and processes. The batch of a step is a function of seed and step, and weights and
dropout follow from the seed, so a run on a CPU is reproducible bit for bit, also after resuming from a checkpoint.

The sequences of an optimiser step are cut into equal shares, one per process and micro-batch. Every process builds the
whole batch and takes its shares, and each share's loss is weighted by its number of counted tokens or examples. So the
number of micro-batches and of processes changes a step only by rounding and by the dropout drawn.

A loss or a gradient norm that is not finite ends the run, and that step is not applied. Under fp16 a gradient may
overflow because the gradient scaler's scale is too large; such a step is skipped and the scale lowered, and only an
overflow at a scale below 1 counts as divergence. A loss outside a band of the config ends the run too
(``training.bands``).
"""

import math
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from transnormer_lib.attention.random_features import RandomProjection
from transnormer_lib.data.batches import IGNORE, Batch
from transnormer_lib.training import bands
from transnormer_lib.training.checkpoints import Checkpoints
from transnormer_lib.training.config import RunConfig, RunRefused
from transnormer_lib.training.devices import build_accelerator, launched_processes, shards, whole_state
from transnormer_lib.training.divergence import Divergence, locate
from transnormer_lib.training.evaluation import better, check_splits, evaluate, validation_batches
from transnormer_lib.training.gradient_statistics import GradientRecorder, GradientStatistics
from transnormer_lib.training.interruption import Interruption
from transnormer_lib.training.optimisation import build_optimizer, clip, gradient_norms, gradients_of
from transnormer_lib.training.records import History, error_of, loss_of, make_record
from transnormer_lib.training.schedules import factor, halvings, momentum
from transnormer_lib.training.setup import build, load_data, loss_on, tokens_in, training_batches

Progress = Callable[[int, float], None]
# Steps between readings of the losses. Reading makes an accelerator wait; on a CPU it costs nothing.
_ACCELERATOR_WINDOW = 16
_CPU_WINDOW = 1


class Trained(NamedTuple):
    """The result of a run."""

    model: Any  # LanguageModel or Classifier, on the CPU, in evaluation mode
    record: dict[str, Any]
    gradients: GradientStatistics | None  # if the config asks for them


def train(
    config: RunConfig,
    progress: Progress | None = None,
    checkpoints: Checkpoints | None = None,
    tracker: Any = None,
    tracking_dir: Path = Path("tracking"),
    start: Path | None = None,
    check_bands: bool = True,
) -> Trained:
    """Train the model of ``config``, or resume from the newest of ``checkpoints``.

    ``progress(step, loss)`` is called for every step, on an accelerator some steps late. With ``checkpoints``, Ctrl-C
    and SIGTERM wait for the end of the step and leave a checkpoint (in a single process). ``tracker``
    (``"tensorboard"``, ``"wandb"``, … or an ``accelerate.tracking.GeneralTracker``) receives the losses; trackers that
    write files write to ``tracking_dir``. ``start`` is the file with the weights of the run ``config.start_from``.
    Without ``check_bands`` the config's bands are ignored.

    Raises :class:`RunRefused` if the config does not fit the data (vocabulary size, classes), the number of processes
    or the device (fp16), if the tracker's package is not installed, or if ``start`` and the config disagree;
    ``DataUnavailable`` if the data, or a split to be measured at the end, are not on this machine.
    """
    if (start is None) != (config.start_from is None):
        names, given = ("names", "not given") if start is None else ("does not name", "given")
        raise RunRefused(f"start_from: the config {names} a run to start from, and its weights are {given}")
    accelerator = build_accelerator(config.precision, tracker, tracking_dir)
    # Dropout and torch's initialisers draw from the global random state; the caller's is restored.
    own_state = torch.random.fork_rng([accelerator.device] if accelerator.device.type == "cuda" else [])
    # Processes may be at different steps when a signal arrives, so some could wait for one that has exited.
    interruptible = checkpoints is not None and launched_processes() == 1
    with own_state, Interruption(interruptible) as interruption:
        training = _Training(config, accelerator, progress, checkpoints, start, check_bands)
        try:
            while training.goes_on():
                training.optimise()
                if training.window_is_full():
                    training.read_window()
                    if interruption.pending is not None:
                        if training.goes_on():
                            training.write_checkpoint()
                        interruption.deliver()
            return training.result()
        finally:
            # The process group stays open, because a process may train several runs.
            for opened in accelerator.trackers:
                opened.finish()


class _Step(NamedTuple):
    """A step whose loss has not been read yet."""

    loss: Tensor  # []: this process's part
    norm: Tensor  # []: of the gradient
    random_state: Tensor  # before the step
    tokens: int


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
        self.device, self.processes = accelerator.device, accelerator.num_processes
        self.random = torch.cuda if self.device.type == "cuda" else torch.random  # the generator that dropout uses
        if config.gradients == "norms" and shards(accelerator):
            raise RunRefused("gradients='norms': the statistics are of whole gradients, and FSDP shards them")
        self.data = load_data(config)
        check_splits(config, self.data)
        self.shares = config.accumulate * self.processes
        if config.data.batch_size % self.shares:
            raise RunRefused(
                f"data.batch_size={config.data.batch_size}: must be divisible by accumulate={config.accumulate} times"
                f" {self.processes} processes"
            )
        # Each process draws its own dropout; the first draws what a single process would.
        torch.manual_seed(config.seed + 1_000_003 * accelerator.process_index)
        self.sampler = training_batches(config, self.data)
        model = build(config, start)
        self.rule = build_optimizer(config.optimizer, model)
        self.model, self.optimizer = accelerator.prepare(model, self.rule)
        self.local = accelerator.unwrap_model(self.model)  # without DDP's wrapper, with the precision's
        self.parameters = [p for p in self.local.parameters() if p.requires_grad]
        # Random features advance once per optimiser step, not per forward pass or when a step is repeated.
        self.projections = [m for m in self.local.modules() if isinstance(m, RandomProjection)]
        for projection in self.projections:
            projection.automatic = False
        self.rate, self.momentum = factor(config.optimizer, config.steps), momentum(config.optimizer, config.steps)
        self.recorder = GradientRecorder(self.local, config.optimizer.warmup) if config.gradients == "norms" else None
        self.bands = config.bands if check_bands else ()
        self.evaluate_after = config.evaluated_after()
        self.read_after = self.evaluate_after | {band.step for band in self.bands} | {config.steps}
        # fp16 waits at every step, because a step that its scaler skips must not enter the statistics.
        waits = self.device.type == "cpu" or accelerator.scaler is not None
        self.window_length = _CPU_WINDOW if waits else _ACCELERATOR_WINDOW
        self.window: list[_Step] = []  # not read yet
        self.broken = torch.zeros((), device=self.device)  # 1 after the first step that is not finite
        self.best: dict[str, Tensor] = {}  # with keep="best": the weights of the best evaluation so far
        self.history = History()
        self.step = 0  # finished optimiser steps
        self.model.train()
        if accelerator.log_with:
            accelerator.init_trackers(config.name)
        if checkpoints is not None and (stored := checkpoints.read(accelerator)) is not None:
            self.step, self.best, self.history = stored["step"], stored["best"], History(**stored["history"])
            self.history.sessions += 1
            if self.recorder is not None:
                self.recorder.restore(stored["gradients"])
        self.halvings = self._halvings()
        self.started = time.perf_counter() - self.history.seconds  # as if all sessions had been one
        if self.step == 0 and not self.history.validation and 0 in self.evaluate_after:
            self._validate()
        self._check_bands()  # the checkpoint may be that of a run that stopped outside a band

    def goes_on(self) -> bool:
        """Whether steps are left and the run neither diverged nor left a band."""
        return self.step < self.config.steps and self.history.status == "finished"

    def optimise(self) -> None:
        """One optimiser step. Except under fp16 and with RAdam, nothing here waits for an accelerator."""
        for projection in self.projections:
            projection.advance()
        random_state = self.random.get_rng_state()
        whole = self.sampler.batch(self.step)
        loss = self._backward(self._shares(whole)[self.accelerator.process_index :: self.processes])
        scaler = self.accelerator.scaler
        if scaler is not None:
            self.accelerator.unscale_gradients(self.optimizer)
        norms = gradient_norms(gradients_of(self.parameters))
        norm = torch.linalg.vector_norm(norms)
        skipped = False
        if scaler is None:
            self.broken = torch.maximum(self.broken, 1.0 - torch.isfinite(loss + norm).float())
            self.rule.found_inf = self.broken  # type: ignore[attr-defined]  # AdamW then skips the step
        else:
            skipped = not math.isfinite(norm.item())
            self.history.skipped += skipped
        if self.recorder is not None:
            self.recorder.add(self.step, norms, skipped)
        clip(self.parameters, self.config.optimizer, norm)
        for group in self.rule.param_groups:
            group["lr"] = self.config.optimizer.learning_rate * self._factor(self.step)
            group["betas"] = (self.momentum(self.step), group["betas"][1])
        # A skipped step is no divergence while the scaler can still lower its scale.
        if skipped and scaler is not None and scaler.get_scale() >= 1.0:
            norm = torch.zeros_like(norm)
        if self.config.optimizer.rule == "adamw" or not self.broken:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.window.append(_Step(loss, norm, random_state, tokens_in(whole)))
        self.step += 1

    def _factor(self, step: int) -> float:
        """Of the highest rate, at a step after the last validation."""
        return self.rate(step) * 0.5**self.halvings

    def _halvings(self) -> int:
        """After the validations so far, with the schedule "plateau"."""
        options = self.config.optimizer
        if options.schedule != "plateau":
            return 0
        errors = [error_of(result) for result in self.history.validation]
        return int(self._of_main(halvings(errors, options.patience)))

    def _shares(self, whole: Batch) -> list[tuple[Batch, float]]:
        """The micro-batches of a step in all processes, each with its share of the counted tokens or examples."""
        if self.shares == 1:
            return [(whole, 1.0)]
        parts = {name: values.tensor_split(self.shares) for name, values in whole.items()}
        shares = [{name: parts[name][index] for name in parts} for index in range(self.shares)]
        counted = [int((share["targets"] != IGNORE).sum()) for share in shares]
        return [(share, count / sum(counted)) for share, count in zip(shares, counted, strict=True)]

    def _backward(self, micro_batches: list[tuple[Batch, float]]) -> Tensor:
        """Accumulate the gradients of the micro-batches; returns their part of the step's loss, []."""
        total: Tensor | None = None
        for index, (batch, weight) in enumerate(micro_batches):
            last = index == len(micro_batches) - 1
            with nullcontext() if last else self.accelerator.no_sync(self.model):
                loss = loss_on(self.model, batch, self.device)
                if weight != 1.0:
                    loss = loss * weight
                # Gradients are averaged over processes; scaling each part makes that a sum.
                self.accelerator.backward(loss * self.processes if self.processes > 1 else loss)
            total = loss.detach() if total is None else total + loss.detach()
        assert total is not None
        return total

    def window_is_full(self) -> bool:
        return len(self.window) >= self.window_length or self.step in self.read_after

    def read_window(self) -> None:
        """Move the losses of the window into the history; validate and write a checkpoint when due."""
        first = self.step - len(self.window)
        losses = torch.stack([step.loss for step in self.window])
        due = self.checkpoints is not None and self.accelerator.is_main_process and self.checkpoints.due()
        if self.processes > 1:
            # One message: the losses, summed over processes, and whether the main process's checkpoint is due.
            shared = self.accelerator.reduce(torch.cat([losses, losses.new_tensor([float(due)])]), "sum")
            losses, due = shared[:-1], bool(shared[-1] > 0)
        values = torch.stack([losses, torch.stack([step.norm for step in self.window])]).tolist()
        for number, loss, norm, step in zip(range(first, self.step), *values, self.window, strict=True):
            self.history.train_loss.append(loss)
            self.history.tokens += step.tokens
            if not math.isfinite(loss) or not math.isfinite(norm):
                # Repeat the step, from the same weights and with the same dropout, to find where it breaks.
                self.step = number
                self.random.set_rng_state(step.random_state)
                self._diverge([batch for batch, _ in self._shares(self.sampler.batch(number))])
                return
            if self.progress is not None:
                self.progress(number + 1, loss)
            if self.accelerator.trackers:
                rate = self.config.optimizer.learning_rate * self._factor(number)
                self.accelerator.log({"loss": loss, "learning_rate": rate}, step=number + 1)
        self.window.clear()
        if self.step in self.evaluate_after:
            self._validate()
        self._check_bands()
        stopped = self.history.outside is not None and self.checkpoints is not None
        if stopped or (due and self.goes_on()):
            self.write_checkpoint()

    def _diverge(self, batches: list[Batch]) -> None:
        """End the run at this step, with the place where the model breaks on ``batches``."""
        self.history.divergence = Divergence(self.step, *locate(self.local, batches, self.device))

    def _validate(self) -> None:
        started = time.perf_counter()
        number = len(self.history.validation)
        result = evaluate(self.local, self.config, self.data, self.device, number=number)
        best = [earlier for earlier in self.history.validation if earlier["step"] == self.history.best_step]
        self.history.validation_seconds += time.perf_counter() - started
        self.history.validation.append({"step": self.step, **result})
        self.halvings = self._halvings()
        self.accelerator.log({f"validation/{name}": value for name, value in result.items()}, step=self.step)
        if not math.isfinite(loss_of(result)):
            self.local.eval()
            self._diverge(validation_batches(self.config, self.data, number))
        # Of equally good evaluations the first is kept.
        elif self.config.keep == "best" and self._agreed(not best or better(self.data, result, best[0])):
            self.history.best_step = self.step
            self.best = whole_state(self.local)

    def _check_bands(self) -> None:
        here = [band for band in self.bands if band.step == self.step]
        if here and self.history.status == "finished":
            found = bands.outside(here, self.history.train_loss, self.history.validation)
            self.history.outside = found if self._agreed(found is not None) else None

    def _agreed(self, own: bool) -> bool:
        """The main process's answer, because rounding could make processes decide differently and deadlock."""
        return bool(self._of_main(own))

    def _of_main(self, own: float) -> float:
        if self.processes == 1:
            return own
        from accelerate.utils import broadcast

        return float(broadcast(torch.tensor(float(own), device=self.device)))

    def write_checkpoint(self) -> None:
        assert self.checkpoints is not None
        self.history.seconds = time.perf_counter() - self.started
        gradients = self.recorder.state() if self.recorder is not None else None
        state = {"step": self.step, "history": self.history.state(), "gradients": gradients, "best": self.best}
        self.checkpoints.write(self.accelerator, self.step, state)

    def result(self) -> Trained:
        trained = self._kept()
        if self.history.status == "finished":
            started = time.perf_counter()
            self.history.at_end |= _at_end(trained, self.config, self.data, self.accelerator)
            self.history.validation_seconds += time.perf_counter() - started
        self.history.seconds = time.perf_counter() - self.started
        record = make_record(
            self.history,
            parameters=sum(p.numel() for p in trained.parameters()),
            data={self.config.data.source: self.data.fingerprint},
            device=str(self.device),
            processes=self.processes,
        )
        gradients = None
        if self.recorder is not None:
            gradients = self.recorder.result(record["steps"], record["status"] == "diverged")
            record["gradients"] = {"names": list(gradients.names), "counted": gradients.counted}
        return Trained(trained, record, gradients)

    def _kept(self) -> nn.Module:
        """The model with the kept weights, on the CPU in evaluation mode."""
        if self.best or shards(self.accelerator):
            trained = build(self.config)
            trained.load_state_dict(self.best or whole_state(self.local))
            return trained.eval()
        return self.accelerator.unwrap_model(self.model, keep_fp32_wrapper=False).cpu().eval()


def _at_end(model: nn.Module, config: RunConfig, data: Any, accelerator: Any) -> dict[str, dict[str, float]]:
    """The results on the config's further splits, read as a whole; the model is on the CPU before and after."""
    whole = replace(config, evaluation_examples=None, evaluation_part="spread")
    model.to(accelerator.device)
    with accelerator.autocast():  # in the precision of validation
        found = {split: evaluate(model, whole, data, accelerator.device, split) for split in config.measured_at_end}
    model.cpu()
    return found


def measure_kept(model: nn.Module, config: RunConfig, data: Any, record: Mapping[str, Any]) -> dict[str, Any]:
    """``validation`` and ``at_end`` of a stored run's record, measured from its weights by today's evaluation.

    Of the curve only the point of the kept weights can be measured again.
    """
    accelerator = build_accelerator(config.precision)
    number = [point["step"] for point in record["validation"]].index(record["kept_step"])
    model.to(accelerator.device)
    with accelerator.autocast():
        result = evaluate(model, config, data, accelerator.device, number=number)
    validation = list(record["validation"])
    validation[number] = {"step": record["kept_step"], **result}
    return {"validation": validation, "at_end": _at_end(model.cpu(), config, data, accelerator)}
