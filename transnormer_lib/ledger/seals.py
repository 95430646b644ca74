"""What shows that a record or an executed notebook was edited by hand: digests over their content.

A record holds the digest of its own fields and of what its notebook's cells displayed. A person who edits notebook,
record and digests is not stopped; the commit of the record and a new run show that.
"""

from collections.abc import Mapping
from typing import Any

from transnormer_lib.sums import of_values

FIELD = "sha256"  # of a record: over its other fields


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """``content`` with the digest of its fields."""
    fields = {name: value for name, value in content.items() if name != FIELD}
    return fields | {FIELD: of_values(fields)}


def is_whole(content: Mapping[str, Any]) -> bool:
    """Whether ``content`` is what :func:`sealed` returned."""
    return sealed(content)[FIELD] == content.get(FIELD)


def displayed(notebook: Mapping[str, Any]) -> str:
    """The digest of an executed notebook's code and of all that it displayed: measurements, tables, figures.

    Text around the code is left out, because a report copies it from the notebook's source again.
    """
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return of_values([["".join(cell["source"]), cell.get("outputs", [])] for cell in cells])
