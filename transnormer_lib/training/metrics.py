"""The scores of a classifier, from scikit-learn: accuracy, F1 and Matthews' correlation, as fractions."""

from collections.abc import Callable, Sequence

from numpy.typing import NDArray

from transnormer_lib.checks import check_choice


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
