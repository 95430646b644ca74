"""Decoding by beam search, with the package fast-ctc-decode where it is installed.

It is optional: a wheel of it does not exist for every platform. PyTorch's own decoder needs torchaudio and flashlight,
and pyctcdecode asks for a version of NumPy that this project has left behind.
"""

import importlib.util
from typing import Any

from torch import Tensor

from transnormer_lib.data.faults import DataUnavailable

_PACKAGE = "fast_ctc_decode"


def available() -> bool:
    """Whether the package is installed."""
    return importlib.util.find_spec(_PACKAGE) is not None


def beam(logits_NV: Tensor, beam_size: int = 10) -> list[int]:
    """The symbols of one utterance without padding, by prefix beam search over the sums of paths.

    Raises DataUnavailable if the package is not installed.
    """
    if not available():
        raise DataUnavailable("beam search: package 'fast-ctc-decode' is not installed; pip install fast-ctc-decode")
    from importlib import import_module

    package: Any = import_module(_PACKAGE)
    alphabet = [chr(ord("a") + symbol) for symbol in range(logits_NV.shape[1])]  # one sign per symbol, the blank first
    probabilities = logits_NV.float().softmax(-1).numpy()
    found, _ = package.beam_search(probabilities, alphabet, beam_size=beam_size, beam_cut_threshold=0.0)
    return [alphabet.index(sign) for sign in found]
