"""A run on disk: ``config.json``, ``record.json``, ``model.safetensors``, and what else it needs or recorded.

``tokenizer.json`` is the vocabulary of a run on byte pairs or characters, so that the run can be used without the text
it was learned from; ``gradients.safetensors`` holds the statistics of the gradients.

``SHA256SUMS`` (``transnormer_lib.sums``) holds the digest of each file, so that a damaged or edited run is noticed
before anything is read from it. A run whose record alone was carried over (``training.carried``) has neither weights
nor what else was recorded.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transnormer_lib import sums
from transnormer_lib.files import read_object, write_text
from transnormer_lib.strict import from_plain
from transnormer_lib.training import bands
from transnormer_lib.training.config import RunConfig
from transnormer_lib.training.identity import run_id
from transnormer_lib.training.records import check_record, explain_divergence

if TYPE_CHECKING:
    from torch import Tensor

    from transnormer_lib.data.vocabulary import Vocabulary
    from transnormer_lib.models.sampling import Sampling
    from transnormer_lib.training.gradient_statistics import GradientStatistics

_CONFIG, _RECORD, _WEIGHTS, _GRADIENTS = "config.json", "record.json", "model.safetensors", "gradients.safetensors"


class RunFailed(RuntimeError):
    """A stored run did not finish; the message names the run and what its record says."""


class RunDamaged(RuntimeError):
    """A stored run is not what was written; the message names the run, the file and the damage."""


@dataclass(frozen=True)
class Run:
    """A run on disk."""

    path: Path
    config: RunConfig
    record: dict[str, Any]

    @property
    def weights(self) -> Path:
        """The file with the kept weights."""
        return self.path / _WEIGHTS

    @property
    def has_weights(self) -> bool:
        """False where only the record was carried over."""
        return self.weights.exists()

    def model(self) -> Any:
        """The trained ``LanguageModel`` or ``Classifier``, in evaluation mode.

        Raises :class:`RunFailed` for a run that stopped outside a band and so has a checkpoint but no model, and for
        one whose record alone was carried over.
        """
        from safetensors.torch import load_model

        from transnormer_lib.training.setup import build

        if self.record["status"] == "outside-band":
            raise self.failure()
        if not self.has_weights:
            raise RunFailed(f"run {self.path.name}: only its record was imported; train it for its weights")
        model = build(self.config)
        load_model(model, str(self.weights))  # refuses missing and unexpected names
        return model.eval()

    @property
    def validation(self) -> dict[str, float]:
        """The validation result of the kept weights; raises :class:`RunFailed` for a run that did not finish."""
        if self.record["status"] != "finished":
            raise self.failure()
        step = self.record["kept_step"]
        return next(result for result in self.record["validation"] if result["step"] == step)

    @property
    def parameters(self) -> int:
        """The number of trainable parameters."""
        return int(self.record["parameters"])

    def vocabulary(self) -> "Vocabulary":
        """The vocabulary of its text, also where the text itself is not on this machine."""
        if self.config.data.task in ("context", "pixels", "speech"):
            name = self.config.data.task_name
            raise ValueError(f"run {self.path.name}: {name} has symbols of its own, so this model reads no text")
        from transnormer_lib.data import stored_vocabulary
        from transnormer_lib.data.corpora import load_vocabulary

        if (self.path / stored_vocabulary.FILE).exists():
            return stored_vocabulary.read(self.config.data.vocabulary, self.path)
        return load_vocabulary(self.config.data.corpus, self.config.data.vocabulary)

    def generate(
        self,
        prompt: str,
        tokens: int = 200,
        sampling: "Sampling | None" = None,
        seed: int = 0,
        stop: Sequence[str] = (),
    ) -> str:
        """The text that the model writes after ``prompt``: all pieces of :meth:`stream`."""
        return "".join(self.stream(prompt, tokens, sampling, seed, stop))

    def stream(
        self,
        prompt: str,
        tokens: int = 200,
        sampling: "Sampling | None" = None,
        seed: int = 0,
        stop: Sequence[str] = (),
    ) -> Iterator[str]:
        """The text that the model writes after ``prompt``, piece by piece as it is made; a piece is whole characters.

        It ends after ``tokens`` tokens or with the first of the texts in ``stop``, which is kept. Raises ValueError for
        an encoder, an empty prompt and an empty stop.
        """
        from transnormer_lib.models import text

        if self.config.model.kind != "decoder" or self.config.head is not None:
            raise ValueError(f"run {self.path.name}: only a decoder writes text, and this is an encoder")
        model = self.model()
        model.vocabulary = self.vocabulary()
        return text.stream(model, prompt, tokens, sampling, seed, stop)

    def attention_maps(self, text: str) -> "list[Tensor]":
        """The attention weights of every layer on ``text``, each [heads, N, N] for N tokens."""
        import torch

        from transnormer_lib.models.text import encoded

        with torch.no_grad():
            return [w[0] for w in self.model().attention_weights(encoded(self.vocabulary(), text)[None])]

    def gradients(self) -> "GradientStatistics":
        """The statistics of the gradients; raises ValueError for a run whose config did not ask for them."""
        from transnormer_lib.training.gradient_statistics import GradientStatistics

        if self.config.gradients == "none":
            raise ValueError(f"gradients='none': run {self.path.name} recorded no gradients; set gradients='norms'")
        stored = self.record["gradients"]
        return GradientStatistics.load(self.path / _GRADIENTS, stored["names"], stored["counted"])

    def failure(self, context: str = "") -> RunFailed:
        """The error that says why the run did not finish, after ``context``."""
        line = f"{context}run {self.path.name}: {self.record['status']} after {self.record['steps']} steps"
        if self.record["status"] == "outside-band":
            line += f": {bands.explain(self.record['outside'])}"
        elif self.record["divergence"] is not None:
            line += f": {explain_divergence(self.record['divergence'])}"
        return RunFailed(line)


def write_record(config: RunConfig, record: dict[str, Any], folder: Path) -> None:
    """Write config and record."""
    write_text(folder / _CONFIG, json.dumps(asdict(config), indent=1, sort_keys=True))
    write_text(folder / _RECORD, _record_text(record))


def _record_text(record: dict[str, Any]) -> str:
    return json.dumps(record, indent=1, sort_keys=True)


def write_run(config: RunConfig, record: dict[str, Any], model: Any, gradients: Any, folder: Path) -> None:
    """Write all files of a complete run, ``gradients`` (statistics) unless None, and their digests."""
    from safetensors.torch import save_model

    from transnormer_lib.data import stored_vocabulary
    from transnormer_lib.data.corpora import load_vocabulary
    from transnormer_lib.data.vocabulary import is_learned

    save_model(model, str(folder / _WEIGHTS))
    if is_learned(config.data.vocabulary):
        vocabulary = load_vocabulary(config.data.corpus, config.data.vocabulary)
        for name, text in stored_vocabulary.files(vocabulary).items():
            write_text(folder / name, text)
    if gradients is not None:
        gradients.save(folder / _GRADIENTS)
    write_record(config, record, folder)
    sums.seal(folder)


def rewrite_record(run: Run, changes: dict[str, Any]) -> Run:
    """The run with these entries of its record replaced, on disk too.

    A kill at any moment leaves the run whole, with the old record or the new one.
    """
    record = run.record | changes
    sums.write(run.path / _RECORD, _record_text(record))
    return Run(run.path, run.config, record)


def read_run(path: Path, skim: bool = False) -> Run:
    """The run in a folder, after all digests are checked and that its config gives its name.

    With ``skim``, for commands that ask whether thousands of runs are there, weights and gradients are not read: their
    header must fit their size. Raises FileNotFoundError if there is no such folder, :class:`RunDamaged` for a run that
    is not what was written.
    """
    if not path.is_dir():
        raise FileNotFoundError(f"{path}: no such run")
    try:
        if skim:
            _skim(path)
        else:
            sums.check(path, needed=(_CONFIG, _RECORD))
    except ValueError as damage:
        raise RunDamaged(f"run {path.name}: {damage}") from None
    stored, record = read_object(path / _CONFIG), read_object(path / _RECORD)
    if stored is None or record is None:
        raise RunDamaged(f"run {path.name}: {_CONFIG if stored is None else _RECORD} is not what a run leaves")
    try:
        check_record(record)
    except ValueError as fault:
        raise RunDamaged(f"run {path.name}: {_RECORD} is not what a run leaves: {fault}") from None
    try:
        config = from_plain(RunConfig, stored)
    except ValueError as fault:
        raise RunDamaged(f"run {path.name}: {_CONFIG} does not describe a run of this version: {fault}") from None
    if (name := run_id(config, record["data"], record["arithmetic"])) != path.name:
        raise RunDamaged(f"run {path.name}: its config is that of {name}")
    return Run(path, config, record)


def _skim(folder: Path) -> None:
    """Raise ValueError, naming the file and the damage, as ``sums.check`` does, but read no weights or gradients."""
    from safetensors import SafetensorError, safe_open

    for name in sorted({name for _, name in sums.read(folder)} | {_CONFIG, _RECORD}):
        path = folder / name
        if path.suffix != ".safetensors" or not path.is_file():
            if damage := sums.damage(path):
                raise ValueError(damage)
            continue
        try:
            with safe_open(path, "numpy"):
                pass
        except SafetensorError as fault:
            raise ValueError(f"{name} is not what was written: {fault}") from None


def recorded_data(path: Path) -> dict[str, str]:
    """The fingerprints of the data by which the record of the run in a folder names it, without the rest of the run.

    Raises :class:`RunDamaged` for a record that is not what was written.
    """
    if damage := sums.damage(path / _RECORD):
        raise RunDamaged(f"run {path.name}: {damage}")
    record = read_object(path / _RECORD)
    if record is None or not isinstance(record.get("data"), dict):
        raise RunDamaged(f"run {path.name}: {_RECORD} is not what a run leaves")
    return record["data"]
