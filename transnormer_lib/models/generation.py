"""Sampling from a decoder in its recurrent form: one step per token, whatever the mechanism.

Shapes: B sequences, V vocabulary.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transnormer_lib.models.language_model import LanguageModel


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn from the logits. The filters apply in this order; by default nothing is cut off.

    Raises ``ValueError`` naming the field, its value and the rule.
    """

    temperature: float = 1.0  # divides the logits; 0: always the likeliest token
    top_k: int = 0  # keep the k likeliest tokens; 0: all
    top_p: float = 1.0  # keep the fewest likeliest tokens whose probabilities reach p (Holtzman et al., 2020)

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature={self.temperature!r}: must be finite and not negative")
        if self.top_k < 0:
            raise ValueError(f"top_k={self.top_k!r}: must not be negative (0 keeps all tokens)")
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
        """One token id per row, [B]."""
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
    """Continue each prompt: per sequence the new token ids, at most ``max_new_tokens`` of them.

    The shortest prompt's length is read in parallel; from there on every sequence advances by one token per step,
    taken from its prompt as long as that lasts and sampled afterwards. So prompts of different lengths need no
    padding, and each sequence's tokens follow from its own prompt alone, up to the draws of ``generator``. Greedy
    continuations (temperature 0) do not depend on what else is in the batch.

    Args:
        prompts: B tensors of token ids, each [N] with N at least 1, on the model's device.
        stop: a sequence ends with the first of these ids that is sampled; the id is part of the result.
        generator: fixes the draws; torch's default generator without it. Must be on the model's device.
        progress: called with the number of steps made.

    Raises:
        ValueError: no prompt, an empty prompt, ids outside the vocabulary, or more tokens than the model's
            ``max_length`` has positions for.
    """
    sampling = sampling or Sampling()
    _check(model, prompts, max_new_tokens)
    lengths = [len(prompt) for prompt in prompts]
    made: list[list[int]] = [[] for _ in prompts]
    if max_new_tokens == 0:
        return [prompt.new_empty(0) for prompt in prompts]
    was_training = model.training
    model.eval()
    try:
        read = min(lengths)
        logits_BV, states = model.prefill(torch.stack([prompt[:read] for prompt in prompts]))
        done = [False] * len(prompts)
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
                break
            logits_BV, states = model.step(logits_BV.new_tensor(drawn, dtype=torch.long), states)
            read += 1
    finally:
        model.train(was_training)
    return [prompt.new_tensor(tokens) for prompt, tokens in zip(prompts, made, strict=True)]


def _check(model: LanguageModel, prompts: Sequence[Tensor], max_new_tokens: int) -> None:
    if max_new_tokens < 0:
        raise ValueError(f"max_new_tokens={max_new_tokens!r}: must not be negative")
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
