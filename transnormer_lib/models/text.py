"""Text from a decoder and its vocabulary, piece by piece."""

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from transnormer_lib.data.vocabulary import Vocabulary
from transnormer_lib.models.generation import continuation
from transnormer_lib.models.language_model import LanguageModel
from transnormer_lib.models.sampling import Sampling


def encoded(vocabulary: Vocabulary, text: str) -> Tensor:
    """The ids [N] of ``text``, int64."""
    return torch.tensor(vocabulary.encode(text)).long()


def stream(
    model: LanguageModel,
    prompt: str,
    tokens: int = 200,
    sampling: Sampling | None = None,
    seed: int = 0,
    stop: Sequence[str] = (),
) -> Iterator[str]:
    """The text that ``model`` writes after ``prompt``, piece by piece as it is made; a piece is whole characters.

    It ends after ``tokens`` tokens or with the first of the texts in ``stop``, which is kept. Raises ValueError at once
    for a model that is no decoder or has no ``vocabulary``, an empty prompt and an empty stop.
    """
    if model.config.kind != "decoder":
        raise ValueError(f"kind={model.config.kind!r}: only a decoder writes text")
    if model.vocabulary is None:
        raise ValueError("vocabulary=None: the model knows ids and no text; set model.vocabulary")
    if not prompt:
        raise ValueError("prompt='': must hold at least one character")
    try:
        prompt.encode()
    except UnicodeEncodeError as fault:
        raise ValueError(f"prompt={prompt!r}: must be valid Unicode: {fault.reason}") from None
    if "" in stop:
        raise ValueError(f"stop={list(stop)!r}: each must hold at least one character")
    ids = encoded(model.vocabulary, prompt).to(model.embedding.weight.device)
    return pieces(model.vocabulary, continuation(model, [ids], tokens, sampling, seed), stop)


def pieces(vocabulary: Vocabulary, steps: Iterable[list[int]], stop: Sequence[str]) -> Iterator[str]:
    """The text of the single ids in ``steps`` as soon as its characters are complete, up to the first stop."""
    ids: list[int] = []
    shown = 0  # characters
    for (token,) in steps:
        ids.append(token)
        text = vocabulary.decode(ids)
        ends = [text.find(one) + len(one) for one in stop if one in text]
        if ends:
            yield text[shown : min(ends)]
            return
        whole = text.rstrip("\ufffd")  # the next token may complete the last character
        if len(whole) > shown:
            yield whole[shown:]
            shown = len(whole)
    if ids and (rest := vocabulary.decode(ids)[shown:]):
        yield rest
