"""The averages of a row of Table 5.

- ``table_5``: the paper's own. Its seven columns count alike, MNLI's two separately, and a model that did not converge
  on a task scores 0 there: so the printed averages come out, 1+elu's 70.00 among them.
- ``plain``: the benchmark's (Wang et al., 2019). Six tasks count alike, MNLI with the mean of its two; where a model
  did not converge there is none.
"""

from collections.abc import Mapping
from dataclasses import dataclass

COLUMNS = ("mnli_m", "mnli_mm", "qnli", "qqp", "sst2", "mrpc", "cola")


@dataclass(frozen=True)
class GlueAverage:
    """Both averages, in the unit of the scores."""

    table_5: float
    plain: float | None  # None: did not converge on every task


def glue_average(scores: Mapping[str, float | None]) -> GlueAverage:
    """The averages of one score for each of ``COLUMNS``; None where training did not converge.

    A score that was not measured is another matter: without it there is no average. Raises ValueError naming it.
    """
    lacking = [name for name in COLUMNS if name not in scores]
    if lacking:
        raise ValueError(f"scores: {', '.join(lacking)} not measured: an average needs all of {', '.join(COLUMNS)}")
    known = {name: score for name in COLUMNS if (score := scores[name]) is not None}
    plain = None
    if len(known) == len(COLUMNS):
        tasks = [(known["mnli_m"] + known["mnli_mm"]) / 2, *(known[name] for name in COLUMNS[2:])]
        plain = sum(tasks) / len(tasks)
    return GlueAverage(sum(known.values()) / len(COLUMNS), plain)
