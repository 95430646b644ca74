"""What shows that an executed notebook was edited by hand: a digest over what its cells displayed.

A record holds it, and the digest of its own fields. A person who edits notebook, record and digests is not stopped; the
commit of the record and a new run show that.
"""

from collections.abc import Mapping
from typing import Any

from transnormer_lib.sums import of_values


def displayed(notebook: Mapping[str, Any]) -> str:
    """The digest of an executed notebook's code and of all that it displayed: measurements, tables, figures.

    Text around the code is left out, because a report copies it from the notebook's source again.
    """
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return of_values([["".join(cell["source"]), cell.get("outputs", [])] for cell in cells])
