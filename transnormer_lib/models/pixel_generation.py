"""Images pixel by pixel: by the recurrence of Eq. 16 to 20, from a cache, or by reading the prefix anew each time.

Shapes: B images, M values given, N values in all, D width.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from transnormer_lib.checks import check_count
from transnormer_lib.models.backbone import evaluating
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.models.language_model import LanguageModel
from transnormer_lib.models.logistics import LogisticHead
from transnormer_lib.models.stepper import Stepper


def head_of(model: LanguageModel) -> LogisticHead:
    """The head that draws pixels. Raises ValueError for a model that has logits instead."""
    if not isinstance(model.head, LogisticHead):
        raise ValueError(f"model.config.logistics={model.config.logistics}: only a mixture of logistics draws pixels")
    return model.head


@torch.no_grad()
def completed(
    model: LanguageModel,
    given_BM: Tensor,
    pixels: int,
    generator: torch.Generator | None = None,
    *,
    recompute: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Tensor:
    """Images [B, N] of ``pixels`` values that begin with ``given_BM``, at least one each, int64.

    Every further value is drawn from the mixture that the model predicts for it. With ``recompute`` the model reads the
    whole prefix for every value, as a transformer without a cache does; a mechanism without a recurrent form needs
    that. Both draw from the same distributions, so with equal generators they differ by rounding alone. ``progress`` is
    called with the number of values made. Raises ValueError for no given value, and for more values than the model
    reads.
    """
    head, config = head_of(model), model.config
    if given_BM.is_floating_point():
        raise ValueError(f"given_BM.dtype={given_BM.dtype}: must be integers")
    check_count("pixels", pixels)
    batch, given = given_BM.shape
    if not 1 <= given <= pixels <= config.max_length + 1:
        raise ValueError(
            f"given_BM.shape={tuple(given_BM.shape)}, pixels={pixels}:"
            f" needs 1 <= M <= pixels <= {config.max_length + 1}"
        )
    if batch and not 0 <= int(given_BM.min()) <= int(given_BM.max()) < config.vocab_size:
        raise ValueError(f"given_BM: holds a value outside [0, {config.vocab_size})")
    image_BN = torch.zeros(batch, pixels, dtype=torch.int64, device=given_BM.device)
    image_BN[:, :given] = given_BM
    if not batch:
        return image_BN
    with evaluating(model):
        stepper: Stepper | None = None
        for at in range(given, pixels):
            if recompute:
                hidden_BD = model.hidden(image_BN[:, :at])[:, -1]
            elif stepper is None:
                stepper, (hidden_BD, states) = Stepper(model), model.read(image_BN[:, :at])
            else:
                hidden_BD, states = stepper.advance(image_BN[:, at - 1], states)
            image_BN[:, at] = head.mixtures(hidden_BD).draw(generator)
            if progress is not None:
                progress(at - given + 1)
    return image_BN


def with_attention(model: LanguageModel, mechanism: str, max_length: int, **options: object) -> LanguageModel:
    """A decoder with the weights of ``model`` and another mechanism in every layer, for up to ``max_length`` tokens.

    Softmax, linear and LSH attention have the same weights; LSH's rotations, which are no weights, are drawn from seed
    0. Raises ValueError for learned positions, of which there are no more.
    """
    old = model.config
    if old.positions == "learned":
        raise ValueError("positions='learned': there are none beyond the model's own max_length")
    config: ModelConfig = replace(
        old,
        attention=(mechanism,) * old.layers,
        attention_options={mechanism: options} if options else {},
        max_length=max_length,
    )
    weights = dict(model.named_parameters())
    other = LanguageModel(config, torch.Generator().manual_seed(0)).to(model.embedding.weight)
    with torch.no_grad():
        for name, parameter in other.named_parameters():
            parameter.copy_(weights[name])
    return other.eval()
