"""Speech recognition without alignment: frames in, a distribution over symbols for every frame out, trained by CTC.

Section 4.3 of "Transformers are RNNs" and its baseline:

- :class:`Transcriber`: frames → linear layer + positions → a stack of bidirectional attention blocks → symbols.
- :class:`BiLstm`: frames → bidirectional LSTM → symbols. Its ``ModelConfig`` has ``"bilstm"`` once per layer
  in ``attention``, and ``dim`` is the hidden size of one direction, as the paper gives it.

CTC (Graves et al., 2006) gives every frame a symbol or the blank. A path says a target if merging its repetitions and
then dropping its blanks leaves the target, and the target's probability is the sum over all paths that say it.

Shapes: B utterances, N frames, F features, D width, V symbols with the blank, S symbols of a target.
"""

from itertools import groupby

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transnormer_lib.attention.gated import uniform_linear
from transnormer_lib.attention.interface import check_tensor
from transnormer_lib.attention.norms import widen
from transnormer_lib.data.batches import IGNORE
from transnormer_lib.data.speech import BLANK
from transnormer_lib.models.backbone import Backbone
from transnormer_lib.models.config import BILSTM, ModelConfig
from transnormer_lib.models.initialisation import draw_weights, undrawn
from transnormer_lib.models.inputs import check_sequences, check_targets, explained


def ctc_loss(logits_BNV: Tensor, targets_BS: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
    """−log p(target | frames) in nats per symbol, over all symbols of the batch: []; in float32 or wider.

    ``targets_BS`` are filled up with ``IGNORE``. Infinite where an utterance has too few frames for its target. Raises
    ValueError or TypeError for targets of another shape, dtype or device and, on a CPU, for symbols that do not exist.
    """
    if logits_BNV.device.type == "cpu":  # where torch would read memory that is not the model's
        check_tensor("targets", targets_BS)
        check_targets(targets_BS, (len(logits_BNV), *targets_BS.shape[-1:]), logits_BNV.shape[-1], logits_BNV)
    logits_BNV = widen(logits_BNV)
    counted = targets_BS != IGNORE
    frames = _frames(logits_BNV, key_padding_mask)
    nats = F.ctc_loss(
        logits_BNV.log_softmax(-1).transpose(0, 1),
        targets_BS.where(counted, BLANK + 1),  # what fills them up is not read
        frames,
        counted.sum(1),
        blank=BLANK,
        reduction="sum",
    )
    return nats / counted.sum()


def check_frames(config: ModelConfig, frames_BNF: Tensor, key_padding_mask: Tensor | None, weight: Tensor) -> None:
    """Refuse frames of another shape, dtype or device than the model reads, and a mask that does not fit them."""
    check_tensor("frames", frames_BNF)
    if frames_BNF.ndim != 3 or frames_BNF.shape[2] != config.features or not frames_BNF.shape[1]:
        rule = f"must be [B, N, {config.features}], N at least 1"
        raise ValueError(f"frames.shape={tuple(frames_BNF.shape)}: {rule}")
    if frames_BNF.dtype != weight.dtype and not torch.is_autocast_enabled(frames_BNF.device.type):
        raise TypeError(f"frames.dtype={frames_BNF.dtype}: must equal the weights' dtype={weight.dtype}")
    check_sequences("frames", frames_BNF[..., 0], "[B, N]", key_padding_mask, weight)


def greedy(logits_BNV: Tensor, key_padding_mask: Tensor | None = None) -> list[list[int]]:
    """The symbols of each utterance by its likeliest path: the best of every frame, repetitions merged, blanks dropped.

    The likeliest path need not give the likeliest transcript, whose probability is spread over many paths.
    """
    best_BN, frames = logits_BNV.argmax(-1).tolist(), _frames(logits_BNV, key_padding_mask).tolist()
    merged = ([symbol for symbol, _ in groupby(best[:n])] for best, n in zip(best_BN, frames, strict=True))
    return [[symbol for symbol in path if symbol != BLANK] for path in merged]


def spliced(frames_BNF: Tensor, context: int) -> Tensor:
    """Every frame with ``context`` frames on either side, zeros beyond the ends: [B, N, (2·context + 1)·F]."""
    if not context:
        return frames_BNF
    padded = F.pad(frames_BNF, (0, 0, context, context))
    return padded.unfold(1, 2 * context + 1, 1).mT.flatten(2)


def _frames(logits_BNV: Tensor, key_padding_mask: Tensor | None) -> Tensor:
    """The frames of each utterance, [B]; padding stands at the end."""
    if key_padding_mask is None:
        return torch.full(logits_BNV.shape[:1], logits_BNV.shape[1], device=logits_BNV.device)
    return (~key_padding_mask).sum(1)


class Transcriber(Backbone):
    """Logits [B, N, V] of frames [B, N, F]. ``generator`` fixes the first weights."""

    head: nn.Linear

    def __init__(self, config: ModelConfig, generator: torch.Generator | None = None) -> None:
        super().__init__(config)
        self.embedding = nn.Linear(config.input_width, config.embedding_width)  # type: ignore[assignment]
        self.head = nn.Linear(config.dim, config.vocab_size)
        draw_weights(self, generator)
        if config.init == "fairseq":  # whose embeddings are of tokens
            uniform_linear(self.embedding, generator)

    def embed(self, input_ids_BN: Tensor, start: int = 0) -> Tensor:
        """The first block's input [B, N, D], here of frames [B, N, F]."""
        return self.dropout(
            self.embedding_norm(self.positions(self.embedding(spliced(input_ids_BN, self.config.context)), start))
        )

    def forward(
        self, frames_BNF: Tensor, key_padding_mask: Tensor | None = None, targets_BS: Tensor | None = None
    ) -> Tensor:
        """Logits [B, N, V], or with ``targets_BS`` :func:`ctc_loss`. ``key_padding_mask`` [B, N] is True on padding.

        Raises ValueError or TypeError for frames, a mask or targets that do not fit.
        """
        with explained(lambda: check_frames(self.config, frames_BNF, key_padding_mask, self.head.weight)):
            logits_BNV = self.head(self.hidden(frames_BNF, key_padding_mask))
        return logits_BNV if targets_BS is None else ctc_loss(logits_BNV, targets_BS, key_padding_mask)


class BiLstm(nn.Module):
    """The recurrent baseline, with the interface of :class:`Transcriber`. Dropout is between its layers.

    Equal to a bidirectional ``nn.LSTM`` over packed sequences, one module per layer and direction: either direction
    begins at an utterance's own end, not at its padding. Packing makes a step on a CPU seven times as long.
    """

    def __init__(self, config: ModelConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        widths = [config.input_width] + [2 * config.dim] * (config.layers - 1)
        self.onward, self.back = (
            nn.ModuleList(nn.LSTM(width, config.dim, batch_first=True) for width in widths) for _ in range(2)
        )
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Linear(2 * config.dim, config.vocab_size)
        bound = config.dim**-0.5  # PyTorch's own range, drawn again from the generator
        for weight in (*self.onward.parameters(), *self.back.parameters()):
            nn.init.uniform_(weight, -bound, bound, generator=generator)
        uniform_linear(self.head, generator)

    def forward(
        self, frames_BNF: Tensor, key_padding_mask: Tensor | None = None, targets_BS: Tensor | None = None
    ) -> Tensor:
        """As :meth:`Transcriber.forward`."""
        with explained(lambda: check_frames(self.config, frames_BNF, key_padding_mask, self.head.weight)):
            logits_BNV = self._logits(frames_BNF, key_padding_mask)
        return logits_BNV if targets_BS is None else ctc_loss(logits_BNV, targets_BS, key_padding_mask)

    def _logits(self, frames_BNF: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        # The frames of each utterance in reverse, its padding where it was; doing it twice restores the order.
        position = torch.arange(frames_BNF.shape[1], device=frames_BNF.device)
        last_B1 = _frames(frames_BNF, key_padding_mask)[:, None] - 1
        order_BN1 = torch.where(position <= last_B1, last_B1 - position, position)[..., None]
        x = spliced(frames_BNF, self.config.context)
        for number, (onward, backward) in enumerate(zip(self.onward, self.back, strict=True)):
            x = self.dropout(x) if number else x
            there, _ = onward(x)
            back, _ = backward(x.gather(1, order_BN1.expand_as(x)))
            x = torch.cat([there, back.gather(1, order_BN1.expand_as(back))], dim=-1)
        return self.head(x)

    def parameter_count(self) -> int:
        """Number of trainable parameters."""
        return sum(p.numel() for p in self.parameters())


def build_transcriber(config: ModelConfig, seed: int) -> Transcriber | BiLstm:
    """The model with weights drawn from ``seed`` alone, independent of torch's global random state."""
    generator = torch.Generator().manual_seed(seed)
    return BiLstm(config, generator) if config.attention[0] == BILSTM else Transcriber(config, generator)


def count_transcriber_parameters(config: ModelConfig) -> int:
    """Number of trainable parameters; no weight is drawn for it."""
    with undrawn():
        return build_transcriber(config, 0).parameter_count()
