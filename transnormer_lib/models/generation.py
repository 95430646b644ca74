"""Continuing texts: one step per token, each step's tokens as they are made, a stop and a later resumption.

:func:`generate` returns whole continuations; :class:`Generation` is the same, step by step, and can be saved::

    for tokens in Generation(model, prompts, 100):  # one id per sequence, None where it has none
        ...

Shapes: B sequences, N length, V vocabulary.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from operator import index
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch import Tensor

from transnormer_lib import attention
from transnormer_lib.checks import check_choice, check_count
from transnormer_lib.files import write_bytes
from transnormer_lib.models.backbone import evaluating
from transnormer_lib.models.inputs import check_device
from transnormer_lib.models.language_model import LanguageModel, ModelState
from transnormer_lib.models.sampling import Sampling
from transnormer_lib.models.stepper import Rereader, Stepper

Form = Literal["recurrent", "parallel"]  # a state per token, or the whole text read again for every token
Stop = Collection[int | Sequence[int]]  # ids, and sequences of ids, after which a text ends

_FORMAT = "transnormer generation 3"


class Generation:
    """Continuations of B prompts under way. Iterating makes one step and gives its new ids: None for a sequence that
    still reads its prompt or has ended.

    The model reads the shortest prompt's length in parallel, then advances every sequence one token per step: a token
    of its prompt while that lasts, then a sampled one. So prompts of different lengths need no padding, and a
    continuation depends on the other sequences only through the draws of ``generator``; greedily (temperature 0), not
    at all. Every decoder with a recurrent form is served, softmax attention by its cache; ``form="parallel"`` reads the
    whole text for every token, as a decoder without a recurrent form must.

    ``prompts`` are B tensors of token ids, each [N] with N at least 1, on the model's device, as is ``generator``, by
    default one seeded from torch's own. A sequence ends with ``max_new_tokens`` new ids, or with the first of ``stop``
    among them, which is kept. The model's weights must not change before the end.

    Raises ValueError for no prompt, an empty one, ids outside the vocabulary, a continuation that is too long for the
    model's ``max_length``, an empty stop, and a form that the model does not have; FloatingPointError for a step whose
    logits are not finite, as a diverged model's; TypeError for prompts, a sampling or a generator of another type.
    """

    def __init__(
        self,
        model: LanguageModel,
        prompts: Sequence[Tensor],
        max_new_tokens: int,
        *,
        sampling: Sampling | None = None,
        stop: Stop = (),
        generator: torch.Generator | None = None,
        form: Form = "recurrent",
    ) -> None:
        _check(model, prompts, max_new_tokens, form)
        _check_draws(model, sampling, generator)
        self._prepare(
            model, Sampling() if sampling is None else sampling, _sequences(stop, model.config.vocab_size), form
        )
        self.prompts = [prompt.tolist() for prompt in prompts]
        self.max_new_tokens = max_new_tokens
        self.made: list[list[int]] = [[] for _ in prompts]  # the new ids of each sequence
        self.ended = [max_new_tokens == 0] * len(prompts)
        self.read = min(map(len, self.prompts))  # tokens per sequence that the model has read
        self._generator = generator or torch.Generator(self._device).manual_seed(int(torch.randint(2**62, ())))
        self._next: list[int] | None = None  # what the model reads next; None: its logits are there
        self._logits_BV = torch.empty(0)
        self._states: ModelState = []
        if not all(self.ended):
            with evaluating(model):
                start_BN = torch.stack([prompt[: self.read] for prompt in prompts])
                self._logits_BV, self._states = self._stepper.prefill(start_BN)

    def _prepare(self, model: LanguageModel, sampling: Sampling, stop: tuple[tuple[int, ...], ...], form: Form) -> None:
        self.model, self.sampling, self.stop, self.form = model, sampling, stop, form
        self._device = model.embedding.weight.device
        with evaluating(model):
            self._stepper: Stepper | Rereader = Stepper(model) if form == "recurrent" else Rereader(model)

    def __iter__(self) -> Iterator[list[int | None]]:
        return self

    def __next__(self) -> list[int | None]:
        if all(self.ended):
            raise StopIteration
        if self._next is not None:
            with evaluating(self.model):
                ids_B = torch.tensor(self._next, device=self._device)
                self._logits_BV, self._states = self._stepper.step(ids_B, self._states)
            self.read += 1
        if not bool(self._logits_BV.isfinite().all()):
            raise FloatingPointError(f"model: its logits after {self.read} tokens are not finite; has it diverged?")
        self._next = self.sampling.draw(self._logits_BV, self._generator).tolist()
        new: list[int | None] = [None] * len(self.prompts)
        for b, token in enumerate(self._next):
            if self.read < len(self.prompts[b]):
                self._next[b] = self.prompts[b][self.read]
            elif not self.ended[b]:
                new[b] = token
                self.made[b].append(token)
                self.ended[b] = len(self.made[b]) == self.max_new_tokens or self._stopped(self.made[b])
        return new

    def _stopped(self, made: list[int]) -> bool:
        return any(tuple(made[-len(ids) :]) == ids for ids in self.stop)

    def save(self, path: Path) -> None:
        """Write everything that :meth:`load` needs to go on with the same numbers, as safetensors."""
        from safetensors.torch import save

        tensors = {f"state.{n}.{name}": x.clone() for n, state in enumerate(self._states) for name, x in state.items()}
        tensors |= {"logits": self._logits_BV.contiguous(), "generator": self._generator.get_state()}
        names = ("prompts", "max_new_tokens", "made", "ended", "read", "stop", "form")
        plain = {name: getattr(self, name) for name in names} | {"next": self._next, "sampling": asdict(self.sampling)}
        metadata = {"format": _FORMAT, "model": fingerprint(self.model), "generation": json.dumps(plain)}
        metadata["device"] = self._device.type
        metadata["sha256"] = _digest(metadata, tensors)
        write_bytes(Path(path), save(tensors, metadata))

    @classmethod
    def load(cls, path: Path, model: LanguageModel) -> Self:
        """The generation that :meth:`save` wrote. Raises ValueError for any other file and model."""
        tensors, metadata = _saved(path)
        if metadata.get("model") != fingerprint(model):
            raise ValueError(f"path={str(path)!r}: was saved with another model, or with other weights of this one")
        if metadata.get("device") != (here := model.embedding.weight.device.type):
            raise ValueError(
                f"path={str(path)!r}: was saved on {metadata.get('device')!r}, whose random numbers {here!r} does not"
                " make"
            )
        if metadata.pop("sha256", "") != _digest(metadata, tensors):
            raise ValueError(f"path={str(path)!r}: is damaged: it is not what was saved")
        plain = json.loads(metadata["generation"])
        self = cls.__new__(cls)
        stop = tuple(tuple(ids) for ids in plain.pop("stop"))
        self._prepare(model, Sampling(**plain.pop("sampling")), stop, plain.pop("form"))
        self._next = plain.pop("next")
        for name, value in plain.items():
            setattr(self, name, value)
        self._generator = torch.Generator(self._device)
        self._generator.set_state(tensors.pop("generator"))
        self._logits_BV = tensors.pop("logits").to(self._device)
        self._states = []
        for key, tensor in sorted(tensors.items(), key=lambda item: int(item[0].split(".")[1])):
            _, layer, name = key.split(".", 2)
            if int(layer) == len(self._states):
                self._states.append({})
            # The position stays on the CPU: see attention.recurrent.
            self._states[-1][name] = tensor if name.endswith("position") else tensor.to(self._device)
        return self


def generate(
    model: LanguageModel,
    prompts: Sequence[Tensor],
    max_new_tokens: int,
    *,
    sampling: Sampling | None = None,
    stop: Stop = (),
    generator: torch.Generator | None = None,
    form: Form = "recurrent",
    progress: Callable[[int], None] | None = None,
) -> list[Tensor]:
    """The new ids of each prompt's continuation, all steps of a :class:`Generation`, which has the same arguments.

    ``progress`` is called with the number of steps made.

    >>> from transnormer_lib.models.architectures import architecture
    >>> from transnormer_lib.models.language_model import build_model
    >>> shape = {"vocab_size": 258, "max_length": 64, "dim": 16, "heads": 2, "layers": 2, "block_size": 8}
    >>> model = build_model(architecture("transnormer-t2", kind="decoder", **shape), seed=0)
    >>> prompts = [torch.tensor([1, 2, 3]), torch.tensor([4])]  # of any lengths
    >>> [len(ids) for ids in generate(model, prompts, max_new_tokens=5)]
    [5, 5]
    """
    generation = Generation(
        model, prompts, max_new_tokens, sampling=sampling, stop=stop, generator=generator, form=form
    )
    for number, _ in enumerate(generation, 1):
        if progress is not None:
            progress(number)
    return [prompt.new_tensor(ids) for prompt, ids in zip(prompts, generation.made, strict=True)]


def continuation(
    model: LanguageModel, prompts: Sequence[Tensor], tokens: int, sampling: Sampling | None = None, seed: int = 0
) -> Iterator[list[int]]:
    """Continue prompts of equal length by ``tokens`` tokens each, however many; yields each step's ids.

    A model has no positions beyond its longest sequence. When that is full, the end of the text, as long as the prompt,
    becomes the prompt of the next one. Raises the errors of :class:`Generation`, and ValueError for prompts of
    different lengths.
    """
    check_count("tokens", tokens, least=0)
    check_count("seed", seed, least=0)
    _check_draws(model, sampling, None)
    _check(model, prompts, min(tokens, 1), "recurrent")
    if len(lengths := {len(prompt) for prompt in prompts}) > 1:
        raise ValueError(f"prompts: have lengths {sorted(lengths)}, must all have the same")
    return _continuation(model, prompts, tokens, sampling, seed)


def _continuation(
    model: LanguageModel, prompts: Sequence[Tensor], tokens: int, sampling: Sampling | None, seed: int
) -> Iterator[list[int]]:
    generator = torch.Generator(model.embedding.weight.device).manual_seed(seed)
    length = len(prompts[0])
    room = max(model.config.max_length - length + 1, 1)
    texts = list(prompts)
    for start in range(0, tokens, room):
        contexts = [text[-length:] for text in texts]
        generation = Generation(model, contexts, min(room, tokens - start), sampling=sampling, generator=generator)
        for ids in generation:
            yield [token for token in ids if token is not None]
        pairs = zip(texts, generation.made, strict=True)
        texts = [torch.cat([text, text.new_tensor(made)]) for text, made in pairs]


def continued(
    model: LanguageModel, prompts: Sequence[Tensor], tokens: int, sampling: Sampling | None = None, seed: int = 0
) -> list[Tensor]:
    """The new ids of each prompt that :func:`continuation` yields."""
    steps = list(continuation(model, prompts, tokens, sampling, seed))
    return [prompt.new_tensor([ids[b] for ids in steps]) for b, prompt in enumerate(prompts)]


def fingerprint(model: LanguageModel) -> str:
    """The digest of a model's config and weights."""
    return _digest(asdict(model.config), model.state_dict())


def _digest(facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _saved(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            # Cloned, since products of tensors that are not aligned to 64 bytes, as those of a file, round differently.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118  not a mapping
    except SafetensorError as error:
        raise ValueError(f"path={str(path)!r}: is no saved generation: {error}") from error
    if metadata.get("format") != _FORMAT:
        raise ValueError(f"path={str(path)!r}: is no saved generation of this version")
    return tensors, metadata


def _sequences(stop: Stop, vocab_size: int) -> tuple[tuple[int, ...], ...]:
    try:
        sequences = tuple(tuple(map(index, ids if isinstance(ids, Sequence) else (ids,))) for ids in stop)
    except TypeError:
        raise TypeError(f"stop={stop!r}: must hold ids and sequences of ids") from None
    for ids in sequences:
        if not ids or min(ids) < 0 or max(ids) >= vocab_size:
            raise ValueError(f"stop={list(stop)!r}: each must hold at least one id, all in [0, {vocab_size})")
    return sequences


def _check_draws(model: LanguageModel, sampling: object, generator: object) -> None:
    for name, value, kind in (("sampling", sampling, Sampling), ("generator", generator, torch.Generator)):
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"{name}={type(value).__name__}: must be None or a {kind.__name__}")
    if isinstance(generator, torch.Generator) and generator.device.type != (own := model.embedding.weight.device.type):
        raise ValueError(f"generator.device={generator.device}: must be that of the model, {own}")


def _check(model: LanguageModel, prompts: Sequence[Tensor], max_new_tokens: int, form: str) -> None:
    check_choice("form", form, Form)
    for name in model.config.mechanisms:
        if form == "recurrent" and not attention.is_recurrent(name):
            raise ValueError(f"form='recurrent': {name!r} has no recurrent form; use form='parallel'")
    check_count("max_new_tokens", max_new_tokens, least=0)
    if not isinstance(prompts, Sequence | Tensor) or (isinstance(prompts, Tensor) and not prompts.ndim):
        raise TypeError(f"prompts={type(prompts).__name__}: must be a sequence of tensors of token ids")
    if not len(prompts):
        raise ValueError("prompts=[]: needs at least one prompt")
    vocab_size, max_length = model.config.vocab_size, model.config.max_length
    for number, prompt in enumerate(prompts):
        if not isinstance(prompt, Tensor):
            raise ValueError(f"prompts[{number}]: must be a tensor of token ids, not {type(prompt).__name__}")
        if prompt.ndim != 1 or len(prompt) == 0:
            raise ValueError(f"prompts[{number}].shape={tuple(prompt.shape)}: must be [N] with N at least 1")
        if prompt.dtype not in (torch.int64, torch.int32):
            raise ValueError(f"prompts[{number}].dtype={prompt.dtype}: must be int64 or int32")
        check_device(f"prompts[{number}]", prompt, model.embedding.weight)
        if int(prompt.min()) < 0 or int(prompt.max()) >= vocab_size:
            raise ValueError(f"prompts[{number}]: holds an id outside [0, {vocab_size})")
        if len(prompt) + max_new_tokens - 1 > max_length:
            raise ValueError(
                f"max_new_tokens={max_new_tokens}: with prompts[{number}] of {len(prompt)} tokens exceeds the model's "
                f"max_length={max_length}"
            )
