"""The claims that the companion checks, as data: ``claims/*.yaml``, one file per notebook.

A claim says what a paper states (in our words), what was published, how it is judged and the smallest scale
that may decide it. Notebooks measure; ``transnormer_lib.report.verdicts`` judges.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from transnormer_lib.paper.records import PACKAGE, Record, build, read_list

Paper = Literal["transnormer", "linear-transformers", "gau"]
Kind = Literal["theorem", "property", "number", "ordering"]
Scale = Literal["quick", "night", "gpu", "paper"]

FOLDER = PACKAGE / "claims"
_NOTEBOOK = r"^\d\d_[a-z0-9]+(_[a-z0-9]+)*$"
_ID = r"^[a-z0-9]+(-[a-z0-9]+)*$"
_Text = Annotated[str, Field(min_length=1, pattern=r"\S")]


class Claim(Record):
    """One claim. ``number`` claims need a numeric ``published`` and an explicit ``tolerance``."""

    id: Annotated[str, Field(pattern=_ID, max_length=80)]  # unique over all papers; the anchor in the report
    paper: Paper
    locus: _Text  # where the paper says it: "Table 4", "Proposition 3.1"
    statement: _Text  # in our words; may hold $math$
    kind: Kind
    published: float | int | str | list[Any] | dict[str, Any] | None  # None: the paper gives no value
    tolerance: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None  # largest |ours - published|
    decided_at: Scale  # smallest preset that may decide it
    notebook: Annotated[str, Field(pattern=_NOTEBOOK)]  # the notebook that measures it: "01_gradient_theory"
    timing: bool = False  # a measured time, which differs between two runs of the same code

    @field_validator("published", mode="before")
    @classmethod
    def _showable(cls, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float | str | list | dict | None):
            raise ValueError(f"published={value!r}: must be a number, a text, a list, a mapping or null")
        return value

    @model_validator(mode="after")
    def _judgeable(self) -> "Claim":
        if self.kind == "number":
            if not isinstance(self.published, int | float):
                raise ValueError(f"published={self.published!r}: a claim of kind 'number' needs a number")
            if self.tolerance is None:
                raise ValueError("tolerance: a claim of kind 'number' needs an explicit tolerance")
        elif self.kind != "property" and self.tolerance is not None:
            raise ValueError(f"tolerance={self.tolerance!r}: a claim of kind {self.kind!r} has none")
        return self


def load(folder: Path = FOLDER) -> tuple[Claim, ...]:
    """Every claim of ``folder``, in the order of notebooks and, within one, of its file.

    Raises ValueError naming file, claim and field for a broken entry, and both files for an id used twice.
    """
    found: dict[str, tuple[str, Claim]] = {}
    for path in sorted(folder.glob("*.yaml")):
        for position, fields in enumerate(read_list(path), start=1):
            name = fields.get("id") if isinstance(fields, dict) else None
            claim = build(Claim, fields, f"{path.name}: claim {name!r}" if name else f"{path.name}: entry {position}")
            if claim.id in found:
                raise ValueError(f"id={claim.id!r}: used twice, in {found[claim.id][0]} and in {path.name}")
            found[claim.id] = (path.name, claim)
    return tuple(sorted((claim for _, claim in found.values()), key=lambda claim: claim.notebook))


def by_id(claims: Iterable[Claim]) -> dict[str, Claim]:
    """The claims under their ids."""
    return {claim.id: claim for claim in claims}


def is_notebook_name(name: str) -> bool:
    """Whether ``name`` is a notebook's name as the project writes it: ``NN_lower_case``."""
    return re.fullmatch(_NOTEBOOK, name) is not None
