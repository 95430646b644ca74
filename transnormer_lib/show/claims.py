"""Claims as a notebook shows them: each cell that measures claims ends with their cards.

``Claims`` is ``ledger.measurements.Measurements`` with a display. The output carries the measurements as JSON, so the
executed notebook is the record that the ledger reads.
"""

from collections.abc import Mapping
from typing import Any

from transnormer_lib.ledger.measurements import MIME, Measurements, Recorded, ipython_shell
from transnormer_lib.show.cards import claim_card, claim_line


class Claims(Measurements):
    """Records the measurements of one notebook and displays them."""

    def _record(self, claim: str, kind: str, fields: Mapping[str, Any]) -> Recorded:
        recorded = super()._record(claim, kind, fields)
        if ipython_shell() is not None:
            from IPython.display import display

            display(bundle(recorded), raw=True)
        return recorded


def bundle(recorded: Recorded) -> dict[str, Any]:
    """What the notebook's output holds: the card, a line of text, the measurement as JSON."""
    return {
        "text/plain": claim_line(recorded.claim, recorded.judgement),
        "text/html": claim_card(recorded.claim, recorded.judgement, standalone=True),
        MIME: recorded.measurement,
    }
