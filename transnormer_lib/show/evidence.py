"""Which data a notebook read: displayed in its output, from where the guard copies it into the record."""

from typing import Any

PROVENANCE_MIME = "application/vnd.transnormer.provenance+json"


class DataShown:
    """Fingerprints of data as one line of text, and as JSON for the guard."""

    def __init__(self, fingerprints: dict[str, str]) -> None:
        self.fingerprints = fingerprints

    def __repr__(self) -> str:
        return "data: " + ", ".join(f"{name} sha256 {value[:16]}…" for name, value in self.fingerprints.items())

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return {"text/plain": repr(self), PROVENANCE_MIME: {"data": self.fingerprints}}


def data_read(**fingerprints: str) -> DataShown:
    """Say which data a notebook read: ``name=sha256``, as a cell's last expression."""
    return DataShown(fingerprints)
