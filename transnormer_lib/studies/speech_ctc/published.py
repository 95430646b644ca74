"""What Table 3 and the sentences of Section 4.3 of "Transformers are RNNs" say by themselves."""

from collections.abc import Mapping

from transnormer_lib.models.config import BILSTM
from transnormer_lib.studies.common.published import number

PAPER = "linear-transformers"
PRINTED: Mapping[str, str] = {BILSTM: "Bi-LSTM", "softmax": "Softmax", "lsh-4": "LSH-4", "linear": "Linear"}


def table_3(row: str, column: str) -> float:
    """A number of Table 3: ``per`` (phoneme error rate in percent) or ``seconds_per_epoch``."""
    return number("table_3", column, paper=PAPER, method=PRINTED[row])


def saved(row: str, other: str, column: str) -> float:
    """By which fraction ``row`` is below ``other`` in print."""
    return 1.0 - table_3(row, column) / table_3(other, column)


def order(column: str) -> list[str]:
    """The rows as Table 3 orders them, lowest first."""
    return sorted(PRINTED, key=lambda row: table_3(row, column))
