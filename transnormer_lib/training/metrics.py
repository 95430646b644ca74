"""The scores of a classifier, from scikit-learn: accuracy, F1 and Matthews' correlation, as fractions."""

from collections.abc import Callable, Sequence

from numpy.typing import NDArray


def scores(metrics: Sequence[str], predicted: NDArray, labels: NDArray) -> dict[str, float]:
    """Each of ``metrics`` for the classes ``predicted`` [n] where ``labels`` [n] are right, in [0, 1] or [-1, 1].

    ``f1`` is that of class 1, as GLUE measures MRPC; where no example is, or is taken for, class 1 it is 0. Matthews'
    correlation of a constant is 0. Raises ValueError for a metric that is none of these.
    """
    from sklearn import metrics as library

    functions: dict[str, Callable[[NDArray, NDArray], float]] = {
        "accuracy": library.accuracy_score,
        "f1": lambda y, p: library.f1_score(y, p, pos_label=1, zero_division=0.0),
        "matthews": library.matthews_corrcoef,
    }
    for name in metrics:
        if name not in functions:
            raise ValueError(f"metrics={name!r}: must be one of {', '.join(map(repr, functions))}")
    return {name: float(functions[name](labels, predicted)) for name in metrics}
