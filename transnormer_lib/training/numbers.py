"""The numbers of the arithmetic that trains and measures runs. A person raises one when it changes its results.

They are part of a run's identity, and the code is not: a faster or clearer form of the same arithmetic keeps every
stored run. ``tests/training/test_golden_steps.py`` trains a few steps of every recipe and fails if they change while
these numbers do not.
"""

from collections.abc import Iterable
from typing import Any

# Of every run: layers, first weights, optimiser, schedules, order of batches, dropout.
TRAINING = 1
# Of validation results: stored runs of another number are measured again from their weights.
EVALUATION = 1
# Of the runs that use a mechanism; 1 where it is not named.
MECHANISMS: dict[str, int] = {}


def arithmetic(mechanisms: Iterable[str]) -> dict[str, Any]:
    """The numbers that decide the weights of a run with these mechanisms."""
    return {"training": TRAINING, "mechanisms": {name: MECHANISMS.get(name, 1) for name in mechanisms}}
