"""Shows claims in a notebook: what a cell measured appears below it when the cell ends.

``Claims`` is ``ledger.measurements.Measurements`` with a display. The output carries the measurements as JSON, so the
executed notebook is the record that the ledger reads.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from transnormer_lib.ledger.claims import Claim
from transnormer_lib.ledger.measurements import MIME, Measurements, Recorded, ipython_shell
from transnormer_lib.show.cards import claim_line, claims_html


class Claims(Measurements):
    """Records the measurements of one notebook and displays those of a cell together."""

    def __init__(self, notebook: str, scale: str, claims: Iterable[Claim] | None = None) -> None:
        super().__init__(notebook, scale, claims)
        self._pending: list[Recorded] = []

    def _record(self, claim: str, kind: str, fields: Mapping[str, Any]) -> Recorded:
        recorded = super()._record(claim, kind, fields)
        shell = ipython_shell()
        if shell is not None:
            if not self._pending:
                shell.events.register("post_execute", self._display)
            self._pending.append(recorded)
        return recorded

    def _display(self) -> None:
        """Runs when a cell ends, even by an exception, and unregisters itself until the next measurement."""
        from IPython.display import display

        ipython_shell().events.unregister("post_execute", self._display)
        recorded, self._pending = self._pending, []
        display(bundle(recorded), raw=True)


def bundle(recorded: Sequence[Recorded]) -> dict[str, Any]:
    """The output of a cell: a card or a table, a line of text per claim, and the list of measurements as JSON."""
    members = [(one.claim, one.judgement) for one in recorded]
    return {
        "text/plain": "\n".join(claim_line(*member) for member in members),
        "text/html": claims_html(members, standalone=True),
        MIME: [one.measurement for one in recorded],
    }
