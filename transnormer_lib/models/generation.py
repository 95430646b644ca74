"""Sampling from a decoder in its recurrent form, one step per token.

Shapes: B sequences, V vocabulary.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transnormer_lib.checks import check_count, check_not_negative
from transnormer_lib.models.language_model import LanguageModel


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn from the logits: the fields apply in this order. Raises ``ValueError`` for a bad field."""

    temperature: float = 1.0  # divides the logits; 0: always the likeliest token
    top_k: int = 0  # keep the k likeliest tokens; 0: all
    top_p: float = 1.0  # keep the fewest likeliest tokens whose probabilities reach p (Holtzman et al., 2020)

    def __post_init__(self) -> None:
        check_not_negative("temperature", self.temperature)
        check_count("top_k", self.top_k, least=0)
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p={self.top_p!r}: must be in (0, 1]")

    def probabilities(self, logits_BV: Tensor) -> Tensor:
        """The distribution [B, V] that tokens are drawn from, in float32 or wider. Rows sum to one."""
        logits_BV = logits_BV.float() if logits_BV.dtype in (torch.float16, torch.bfloat16) else logits_BV
        if self.temperature == 0.0:
            return torch.zeros_like(logits_BV).scatter(-1, logits_BV.argmax(-1, keepdim=True), 1.0)
        logits_BV = logits_BV / self.temperature
        ordered_BV, index_BV = logits_BV.sort(dim=-1, descending=True, stable=True)
        keep_BV = torch.ones_like(ordered_BV, dtype=torch.bool)
        if self.top_k:
            keep_BV[:, self.top_k :] = False
        if self.top_p < 1.0:
            p_BV = ordered_BV.masked_fill(~keep_BV, -torch.inf).softmax(-1)
            # A token stays while those before it have not reached p, so the likeliest one always does.
            keep_BV &= p_BV.cumsum(-1) - p_BV < self.top_p
        keep_BV = torch.zeros_like(keep_BV).scatter(-1, index_BV, keep_BV)
        return logits_BV.masked_fill(~keep_BV, -torch.inf).softmax(-1)

    def draw(self, logits_BV: Tensor, generator: torch.Generator | None) -> Tensor:
        if self.temperature == 0.0:
            return logits_BV.argmax(-1)
        return torch.multinomial(self.probabilities(logits_BV), 1, generator=generator)[:, 0]


@torch.no_grad()
def generate(
    model: LanguageModel,
    prompts: Sequence[Tensor],
    max_new_tokens: int,
    *,
    sampling: Sampling | None = None,
    stop: Collection[int] = (),
    generator: torch.Generator | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Tensor]:
    """Continue each prompt by at most ``max_new_tokens`` tokens, and return the new ids of each.

    The model reads the shortest prompt's length in parallel, then advances every sequence one token per step: a token
    of its prompt while that lasts, then a sampled one. So prompts of different lengths need no padding, and a
    continuation depends on the other sequences only through the draws of ``generator``; greedily (temperature 0), not
    at all.

    ``prompts`` are B tensors of token ids, each [N] with N at least 1, on the model's device, as is ``generator``, by
    default torch's own. The first sampled id in ``stop`` ends its sequence and is the last of its result. ``progress``
    is called with the number of steps made. Raises ValueError for no prompt, an empty one, ids outside the vocabulary,
    and a continuation that is too long for the model's ``max_length``.
    """
    sampling = sampling or Sampling()
    _check(model, prompts, max_new_tokens)
    if max_new_tokens == 0:
        return [prompt.new_empty(0) for prompt in prompts]
    lengths = [len(prompt) for prompt in prompts]
    read = min(lengths)  # tokens so far
    made: list[list[int]] = [[] for _ in prompts]
    done = [False] * len(prompts)
    was_training = model.training
    model.eval()
    try:
        logits_BV, states = model.prefill(torch.stack([prompt[:read] for prompt in prompts]))
        while True:
            drawn = sampling.draw(logits_BV, generator).tolist()
            for b, token in enumerate(drawn):
                if read < lengths[b]:
                    drawn[b] = int(prompts[b][read])
                elif not done[b]:
                    made[b].append(token)
                    done[b] = token in stop or len(made[b]) == max_new_tokens
            if progress is not None:
                progress(read - min(lengths) + 1)
            if all(done):
                return [prompt.new_tensor(tokens) for prompt, tokens in zip(prompts, made, strict=True)]
            logits_BV, states = model.step(logits_BV.new_tensor(drawn, dtype=torch.long), states)
            read += 1
    finally:
        model.train(was_training)


def continued(
    model: LanguageModel, prompts: Sequence[Tensor], tokens: int, sampling: Sampling | None = None, seed: int = 0
) -> list[Tensor]:
    """Continue prompts of equal length by ``tokens`` tokens each, however many; returns the new ids.

    A model has no positions beyond its longest sequence. When that is full, the end of the text, as long as the prompt,
    becomes the prompt of the next one. Raises the errors of :func:`generate`.
    """
    generator = torch.Generator().manual_seed(seed)
    length = len(prompts[0])
    room = max(model.config.max_length - length + 1, 1)
    texts = list(prompts)
    for start in range(0, tokens, room):
        contexts = [text[-length:] for text in texts]
        pieces = generate(model, contexts, min(room, tokens - start), sampling=sampling, generator=generator)
        texts = [torch.cat(pair) for pair in zip(texts, pieces, strict=True)]
    return [text[length:] for text in texts]


def _check(model: LanguageModel, prompts: Sequence[Tensor], max_new_tokens: int) -> None:
    check_count("max_new_tokens", max_new_tokens, least=0)
    if not prompts:
        raise ValueError("prompts=[]: needs at least one prompt")
    vocab_size, max_length = model.config.vocab_size, model.config.max_length
    for number, prompt in enumerate(prompts):
        if prompt.ndim != 1 or len(prompt) == 0:
            raise ValueError(f"prompts[{number}].shape={tuple(prompt.shape)}: must be [N] with N at least 1")
        if int(prompt.min()) < 0 or int(prompt.max()) >= vocab_size:
            raise ValueError(f"prompts[{number}]: holds an id outside [0, {vocab_size})")
        if len(prompt) + max_new_tokens - 1 > max_length:
            raise ValueError(
                f"max_new_tokens={max_new_tokens}: with prompts[{number}] of {len(prompt)} tokens exceeds the model's "
                f"max_length={max_length}"
            )
