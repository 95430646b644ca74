"""Which data a notebook read: displayed in its output, from where the guard copies it into the record."""

PROVENANCE_MIME = "application/vnd.transnormer.provenance+json"


def data_read(**fingerprints: str) -> None:
    """Display which data a notebook read, ``name=sha256``: as a line of text, and as JSON for the guard."""
    from IPython.display import display

    line = "data: " + ", ".join(f"{name} sha256 {value[:16]}…" for name, value in fingerprints.items())
    display({"text/plain": line, PROVENANCE_MIME: {"data": fingerprints}}, raw=True)
