"""The scores of a classifier, from scikit-learn: accuracy, F1 and Matthews' correlation, as fractions.

And the error rate of a transcriber, from RapidFuzz's edit distance.
"""

import importlib.util
from collections.abc import Callable, Sequence

from numpy.typing import NDArray

from transnormer_lib.checks import check_choice
from transnormer_lib.data.faults import DataUnavailable


def scores(metrics: Sequence[str], predicted: NDArray, labels: NDArray) -> dict[str, float]:
    """Each of ``metrics`` for ``predicted`` classes [n] and correct ``labels`` [n], in [0, 1] or [-1, 1].

    ``f1`` is that of class 1, as GLUE measures MRPC; it is 0 if no example is of, or predicted as, class 1. Matthews'
    correlation of a constant is 0. Raises ValueError for an unknown metric.
    """
    from sklearn import metrics as library

    functions: dict[str, Callable[[NDArray, NDArray], float]] = {
        "accuracy": library.accuracy_score,
        "f1": lambda y, p: library.f1_score(y, p, pos_label=1, zero_division=0.0),
        "matthews": library.matthews_corrcoef,
    }
    for name in metrics:
        check_choice("metrics", name, functions)
    return {name: float(functions[name](labels, predicted)) for name in metrics}


def error_rate(found: Sequence[Sequence[int]], wanted: Sequence[Sequence[int]]) -> float:
    """The edits (insertions, deletions, substitutions) that turn ``found`` into ``wanted``, per symbol of ``wanted``.

    As phoneme and word error rates are defined: summed over all utterances, so it may exceed 1. Raises ValueError if
    ``wanted`` has no symbol, or not as many utterances.
    """
    from rapidfuzz.distance import Levenshtein

    total = sum(map(len, wanted))
    if not total:
        raise ValueError("wanted: has no symbol")
    return sum(Levenshtein.distance(f, w) for f, w in zip(found, wanted, strict=True)) / total


def check_edit_distance() -> None:
    """Raises DataUnavailable, in one line, if the package of :func:`error_rate` is missing."""
    if importlib.util.find_spec("rapidfuzz") is None:
        raise DataUnavailable("error rates: package 'rapidfuzz' is not installed; to get it: pip install rapidfuzz")
