"""Sequence classifiers for every registered attention: an encoder stack, pooling, a small head.

- Pooling ``mean`` averages over the real tokens only. Dividing by the padded length, as the original Long Range Arena
  harness does, would reveal the length of the input. ``first`` takes the first real token's hidden state.
- The head is a hidden layer with ReLU and a projection onto the classes (Long Range Arena: 64 → 128 → classes). By
  default it has no dropout, as in the original harness.
- ``pairs``: two sequences through the same stack, and the head sees [a, b, a·b, a − b] (its Retrieval task).
- ``kind="choice"``: the head gives each sequence of a group one score, and the softmax runs over the group.
- ``kind="span"``: the head gives each token a score as the start and one as the end of a span, without pooling; both
  softmaxes run over all tokens of the group, which are windows of one passage (``data.sequences``). The loss is the
  mean of the two cross-entropies, in which the windows that hold the right span count together.

Groups are padded to the largest of a batch. A sequence that is all padding is missing: it is not computed, and its
scores are −∞, as are those of padding in a span.

Shapes: B batch, N length, D width, C classes or sequences of a group, R those that are there.
"""

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transnormer_lib.data.examples import END, START
from transnormer_lib.models.backbone import Backbone
from transnormer_lib.models.config import ClassifierHead, ModelConfig
from transnormer_lib.models.initialisation import draw_weights, undrawn
from transnormer_lib.models.inputs import check_ids, check_sequences, check_targets, explained


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(ClassifierHead):
    """A head and the encoder below it. Raises ``ValueError`` naming the field, value and rule."""

    __pydantic_config__ = {"extra": "forbid", "strict": True}  # noqa: RUF012  read by pydantic, not a field

    model: ModelConfig  # kind="encoder"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model.kind != "encoder":
            raise ValueError(f"model.kind={self.model.kind!r}: must be 'encoder'")


def head_of(config: ClassifierConfig) -> nn.Sequential:
    width = config.head_width or 2 * config.model.dim
    return nn.Sequential(
        nn.Linear(config.model.dim * (4 if config.pairs else 1), width),
        nn.ReLU(),
        nn.Dropout(config.head_dropout),
        nn.Linear(width, config.outputs),
    )


class Classifier(Backbone):
    """Logits [B, C] of sequences, of pairs or of choices; of spans [B, C, N, 2].

    ``generator`` fixes the first weights.
    """

    head: nn.Sequential

    def __init__(self, config: ClassifierConfig, generator: torch.Generator | None = None) -> None:
        super().__init__(config.model)
        self.classifier_config = config
        self.head = head_of(config)
        draw_weights(self, generator)

    def whole_config(self) -> ClassifierConfig:
        return self.classifier_config

    def forward(
        self, input_ids: Tensor, key_padding_mask: Tensor | None = None, targets_B: Tensor | None = None
    ) -> Tensor:
        """Logits, or with ``targets_B`` (of spans [B, C, N], the marks of ``data.examples.Passages``) the mean
        cross-entropy in nats.

        ``input_ids`` and ``key_padding_mask`` (True on padding) are [B, N], with ``pairs`` [B, 2, N], of choices and
        spans [B, C, N]. Raises ValueError or TypeError for ids, a mask or targets that do not fit.
        """
        if torch.compiler.is_compiling():
            return self._forward(input_ids, key_padding_mask, targets_B)
        with explained(lambda: self._check(input_ids, key_padding_mask, targets_B)):
            return self._forward(input_ids, key_padding_mask, targets_B)

    def _check(self, input_ids: Tensor, key_padding_mask: Tensor | None, targets: Tensor | None) -> None:
        config, weight = self.classifier_config, self.embedding.weight
        check_ids("input_ids", input_ids, config.model.vocab_size)
        shape = f"[B, C, N] with kind={config.kind!r}"
        if config.kind == "label":
            shape = f"[B, 2, N] with pairs={config.pairs}" if config.pairs else f"[B, N] with pairs={config.pairs}"
        check_sequences("input_ids", input_ids, shape, key_padding_mask, weight)
        if targets is not None and config.kind != "span":
            classes = input_ids.shape[1] if config.kind == "choice" else config.classes
            check_targets(targets, tuple(input_ids.shape[:1]), classes, weight)

    def _forward(self, input_ids: Tensor, key_padding_mask: Tensor | None, targets_B: Tensor | None) -> Tensor:
        config = self.classifier_config
        if config.kind != "label":
            return self._of_groups(input_ids, key_padding_mask, targets_B)
        if input_ids.ndim != 2 + config.pairs or (config.pairs and input_ids.shape[1] != 2):
            shape = "[B, 2, N]" if config.pairs else "[B, N]"
            raise ValueError(f"input_ids.shape={tuple(input_ids.shape)}: must be {shape} with pairs={config.pairs}")
        if config.pairs:
            mask = None if key_padding_mask is None else key_padding_mask.flatten(0, 1)
            a_BD, b_BD = self._pooled(input_ids.flatten(0, 1), mask).unflatten(0, (-1, 2)).unbind(1)
            pooled = torch.cat([a_BD, b_BD, a_BD * b_BD, a_BD - b_BD], dim=-1)
        else:
            pooled = self._pooled(input_ids, key_padding_mask)
        logits_BC = self.head(pooled)
        return logits_BC if targets_B is None else F.cross_entropy(logits_BC, targets_B)

    def _of_groups(self, input_ids: Tensor, key_padding_mask: Tensor | None, targets: Tensor | None) -> Tensor:
        kind = self.classifier_config.kind
        if input_ids.ndim != 3:
            raise ValueError(f"input_ids.shape={tuple(input_ids.shape)}: must be [B, C, N] with kind={kind!r}")
        B, C = input_ids.shape[:2]
        ids_RN, mask_RN = input_ids.flatten(0, 1), None
        there = torch.ones(B * C, dtype=torch.bool, device=input_ids.device)
        if key_padding_mask is not None:
            there = ~key_padding_mask.all(-1).flatten()
            ids_RN, mask_RN = ids_RN[there], key_padding_mask.flatten(0, 1)[there]
        if kind == "choice":
            scores = self.head(self._pooled(ids_RN, mask_RN))[:, 0]
        else:
            scores = self.head(self.hidden(ids_RN, mask_RN))
            if mask_RN is not None:
                scores = scores.masked_fill(mask_RN[..., None], -torch.inf)
        logits = scores.new_full((B * C, *scores.shape[1:]), -torch.inf)
        logits[there] = scores
        logits = logits.unflatten(0, (B, C))
        if targets is None:
            return logits
        return F.cross_entropy(logits, targets) if kind == "choice" else span_losses(logits, targets).mean()

    def _pooled(self, input_ids_BN: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        hidden_BND = self.hidden(input_ids_BN, key_padding_mask)
        if self.classifier_config.pooling == "first":
            if key_padding_mask is None:
                return hidden_BND[:, 0]
            first_B = (~key_padding_mask).int().argmax(1)
            return hidden_BND[torch.arange(len(first_B), device=first_B.device), first_B]
        if key_padding_mask is None:
            return hidden_BND.mean(1)
        real_BN1 = ~key_padding_mask[..., None]
        # Filled, not multiplied: hidden states of padding are meaningless and may be NaN.
        total_BD = hidden_BND.masked_fill(~real_BN1, 0.0).sum(1)
        return total_BD / real_BN1.sum(1).clamp(min=1)


def span_losses(logits_BCN2: Tensor, marks_BCN: Tensor) -> Tensor:
    """[B]: the mean of −log P(start) and −log P(end) in nats, each the probability of all tokens that are marked."""
    logits_BT2, marks_BT = logits_BCN2.float().flatten(1, 2), marks_BCN.flatten(1)
    right_BT2 = torch.stack([marks_BT & START, marks_BT & END], -1) > 0
    right_B2 = logits_BT2.masked_fill(~right_BT2, -torch.inf).logsumexp(1)
    return (logits_BT2.logsumexp(1) - right_B2).mean(1)


def best_spans(logits_BCN2: Tensor, allowed_BCN: Tensor, longest: int) -> Tensor:
    """[B, 3]: sequence, first and last token of the span with the highest sum of scores.

    It has at most ``longest`` tokens, in one sequence, and begins and ends at ``allowed`` ones.
    """
    start_BCN, end_BCN = logits_BCN2.masked_fill(~allowed_BCN[..., None], -torch.inf).unbind(-1)
    N = start_BCN.shape[2]
    more = min(longest, N)
    sums = start_BCN.new_full((*start_BCN.shape, more), -torch.inf)  # [B, C, N, tokens after the first]
    for after in range(more):
        sums[..., : N - after, after] = start_BCN[..., : N - after] + end_BCN[..., after:]
    best_B = sums.flatten(1).argmax(1)
    first_B = best_B // more
    return torch.stack([first_B // N, first_B % N, first_B % N + best_B % more], dim=1)


def build_classifier(config: ClassifierConfig, seed: int) -> Classifier:
    """The classifier with weights drawn from ``seed`` alone, independent of torch's global random state."""
    return Classifier(config, torch.Generator().manual_seed(seed))


def with_head(model: ModelConfig, head: ClassifierHead) -> ClassifierConfig:
    return ClassifierConfig(model=model, **asdict(head))


def count_classifier_parameters(config: ClassifierConfig) -> int:
    """Number of trainable parameters; no weight is drawn for it."""
    with undrawn():
        return Classifier(config).parameter_count()
