"""Figures that a visitor of a page can move: their data, for the page's script (report/templates/movable*.js).

``figures.show(..., moves=Movable(kind, data))`` puts the data beside the still picture, as an attribute of the figure,
which the template escapes. On a page the script makes the controls and draws in place of the picture. Without scripts,
on paper and in JupyterLab, the picture stands alone.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from transnormer_lib.checks import check_choice

Kind = Literal["scores", "maps", "cost"]  # the figures that the script can draw
LARGEST = 150_000  # characters of the data; a page stays below two megabytes


@dataclass(frozen=True)
class Movable:
    """What the script draws a figure from. The names in ``data`` are those that the script reads for this kind.

    ``beside``: the still picture stays, and what moves stands beside or below it. Raises ValueError for an unknown
    kind, data that JSON cannot hold, and data above :data:`LARGEST`.
    """

    kind: Kind
    data: Mapping[str, Any]
    beside: bool = False

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, Kind)
        if len(self.json) > LARGEST:
            raise ValueError(f"data: {len(self.json):,} characters; must not exceed {LARGEST:,}")

    @property
    def json(self) -> str:
        """The data as JSON, not yet escaped for HTML."""
        return json.dumps(self.data, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def packed(values: "np.ndarray[Any, Any]", kind: Literal["u1", "<u2"]) -> str:
    """Numbers from 0 to 1 as base64 of whole numbers of one or two bytes, where the largest stands for 1.

    Raises ValueError for a number outside.
    """
    if values.size and not (values.min() >= 0 and values.max() <= 1):
        raise ValueError(f"values from {values.min()} to {values.max()}: must be in [0, 1]")
    whole = np.rint(values * np.iinfo(kind).max).astype(kind)
    return base64.b64encode(whole.tobytes()).decode("ascii")
