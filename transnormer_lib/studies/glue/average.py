"""The averages of a row of Table 5.

- ``table_5``: the paper's rule, inferred from the printed averages. All seven columns count alike, MNLI's two
  separately, and a task on which training did not converge counts as 0.
- ``plain``: the benchmark's rule (Wang et al., 2019). The six tasks count alike, MNLI with the mean of its two columns;
  None where training did not converge on a task.
"""

from collections.abc import Mapping
from dataclasses import dataclass

COLUMNS = ("mnli_m", "mnli_mm", "qnli", "qqp", "sst2", "mrpc", "cola")


@dataclass(frozen=True)
class GlueAverage:
    """Both averages, in the unit of the scores."""

    table_5: float
    plain: float | None


def glue_average(scores: Mapping[str, float | None]) -> GlueAverage:
    """The averages of one score per column of ``COLUMNS``; None is a score of training that did not converge.

    Raises ValueError naming the columns that are missing.
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
