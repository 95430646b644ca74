"""Which data and runs a notebook read: displayed in its output, from where the guard copies it into the record."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

PROVENANCE_MIME = "application/vnd.transnormer.provenance+json"
EXHIBIT_MIME = "application/vnd.transnormer.exhibit+json"
LARGEST_EXHIBIT = 300_000  # characters of JSON; kept files are committed


def data_read(**fingerprints: str) -> None:
    """Display which data a notebook read, ``name=sha256``: as a line of text, and as JSON for the guard."""
    from IPython.display import display

    line = "data: " + ", ".join(f"{name} sha256 {value[:16]}…" for name, value in fingerprints.items())
    display({"text/plain": line, PROVENANCE_MIME: {"data": fingerprints}}, raw=True)


def runs_read(records: Iterable[Mapping[str, Any]]) -> None:
    """Display how many runs a notebook read, from their records, how long they trained, and by which torch and machine.

    Runs of several machines differ in the last bits.
    """
    from IPython.display import display

    seconds, made, training = 0.0, Counter[str](), {}
    for record in records:
        seconds += record["seconds"]
        training[str(record["seconds"])] = record["seconds"]  # no two runs take the same time to the microsecond
        conditions = record["provenance"]
        made[f"torch {conditions['versions'].get('torch')} on {conditions['device']}"] += 1
    total = made.total()
    line = f"{total} run{'' if total == 1 else 's'}, {seconds:.0f} seconds of training in all" + (
        f"; {runs_text(made)}" if made else ""
    )
    display({"text/plain": line, PROVENANCE_MIME: {"runs": dict(made), "training": training}}, raw=True)


def exhibit(name: str, content: Mapping[str, Any]) -> None:
    """Display what is to be kept of a notebook besides claims and runs, such as samples: a line, and the JSON.

    ``transnormer claims --keep`` copies it into the kept file (``ledger.kept.Kept.exhibits``). Raises ValueError for
    more than ``LARGEST_EXHIBIT`` characters.
    """
    from IPython.display import display

    size = len(json.dumps(content))
    if size > LARGEST_EXHIBIT:
        raise ValueError(f"content: takes {size:,} characters, must take at most {LARGEST_EXHIBIT:,} to be kept")
    display({"text/plain": f"{name}: {size / 1000:.0f} kB to keep", EXHIBIT_MIME: {name: content}}, raw=True)


def exhibits(notebook: Mapping[str, Any]) -> dict[str, Any]:
    """What the cells of an executed notebook displayed with :func:`exhibit`, by name."""
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    return {name: content for o in outputs for name, content in o.get("data", {}).get(EXHIBIT_MIME, {}).items()}


def runs_text(made: Mapping[str, int]) -> str:
    """By which torch and machine runs were trained, in words."""
    if len(made) == 1:
        return f"trained with {next(iter(made))}"
    return "trained on different machines: " + ", ".join(f"{count} with {what}" for what, count in made.items())
