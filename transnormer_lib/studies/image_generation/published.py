"""What Tables 1 and 2 and the sentences of Section 4.2 say by themselves."""

import math
from functools import partial

from transnormer_lib.papers import settings, tables
from transnormer_lib.papers.settings import said
from transnormer_lib.papers.tables import PublishedTable
from transnormer_lib.studies.common.published import number

PAPER = "linear-transformers"
TABLES = ("table_1", "table_2")
value = partial(number, paper=PAPER)
sentence = partial(said, PAPER, model="sentences")


def table(name: str) -> PublishedTable:
    return tables.load(PAPER, name)


def times_softmax(name: str, method: str) -> float:
    """How many times softmax's images per second a method has, from the printed speeds."""
    rate, softmax = (value(name, "images_per_second", method=row) for row in (method, "Softmax"))
    return rate / softmax


def chunks_cover(model: str) -> bool:
    """Whether the printed number of chunks times their size is the printed length (``mnist`` or ``cifar``)."""
    (printed,) = (s.values for s in settings.load(PAPER) if s.model == model and "chunks" in s.values)
    return bool(printed["chunks"] * printed["chunk_size"] == printed["length"])


def growth_exponent() -> float:
    """The power of the length with which the printed factor over softmax grows from 784 to 3,072 values."""
    first, second = (times_softmax(name, "Linear") for name in TABLES)
    return math.log(second / first) / math.log(3072 / 784)


def leading(number_: float, digits: int) -> float:
    """A number rounded to so many digits, as a sentence quotes it."""
    return float(f"{number_:.{digits}g}")
