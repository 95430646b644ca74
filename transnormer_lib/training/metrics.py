"""The scores of a classifier, from scikit-learn: accuracy, F1 and Matthews' correlation, as fractions.

Those of answers marked in a text, as the evaluation of CMRC 2018 has them, and the error rate of a transcriber, from
RapidFuzz's edit distance.
"""

import importlib.util
import re
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


# What CMRC's evaluation leaves out; further signs, such as a full stop, count.
_LEFT_OUT = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
# Chinese characters singly, other words and numbers whole ("3.5"), other signs singly. CMRC's evaluation cuts what is
# not Chinese with NLTK.
_UNITS = re.compile(r"[\u4e00-\u9fa5]|[^\W\u4e00-\u9fa5]+(?:[.,][^\W\u4e00-\u9fa5]+)*|[^\w\s]")


def units_of(answer: str) -> list[str]:
    """The answer in lower case, without white space and the punctuation that CMRC leaves out, cut into units."""
    return _UNITS.findall(answer.lower().translate(_LEFT_OUT))


def span_scores(found: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """``exact_match``, ``f1``, both against the best reference, and their mean, ``score``; means over the answers.

    An answer matches exactly if its units are those of a reference. Its F1 is over units: precision and recall count
    the longest *unbroken* stretch that both have, as CMRC's evaluation does.
    """
    exact, overlap = [], []
    for answer, right in zip(found, references, strict=True):
        ours, theirs = units_of(answer), [units_of(reference) for reference in right]
        exact.append(float(ours in theirs))
        overlap.append(max(_f1(ours, reference) for reference in theirs))
    result = {"exact_match": sum(exact) / len(exact), "f1": sum(overlap) / len(overlap)}
    return {"score": (result["exact_match"] + result["f1"]) / 2} | result


def _f1(ours: Sequence[str], theirs: Sequence[str]) -> float:
    if not ours or not theirs:
        return float(ours == theirs)
    longest, before = 0, [0] * (len(theirs) + 1)  # the stretches that end at the last unit of ours, by end in theirs
    for unit in ours:
        before = [0, *(before[at] + 1 if unit == other else 0 for at, other in enumerate(theirs))]
        longest = max(longest, *before)
    return 2 * longest / (len(ours) + len(theirs))


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
