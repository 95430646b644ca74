"""The claims that the companion checks, as data: ``studies/<study>/claims.yaml``.

A file names its paper and lists claims: what the paper states (in our words), what it published, how the claim is
judged and the smallest scale that may decide it. The study's notebook measures; ``ledger.verdicts`` judges.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from transnormer_lib.choices import Scale
from transnormer_lib.files import read_yaml
from transnormer_lib.papers import catalogue
from transnormer_lib.papers.records import Record, build
from transnormer_lib.project import Project

Kind = Literal["theorem", "misprint", "property", "print", "number", "ordering", "comparable"]

PACKAGE = Path(__file__).parents[1]
FILE = "claims.yaml"  # in a study's folder
PLANS = "plan*.yaml"
BEYOND = "Beyond the paper"  # how a hypothesis or a question of our own begins
_ID = r"^[a-z0-9]+(-[a-z0-9]+)*$"
_Text = Annotated[str, Field(min_length=1, pattern=r"\S")]


class Claim(Record):
    """One claim.

    A ``number`` has a numeric ``published``, or a mapping of a table's cells to numbers, and a ``tolerance``. That of a
    ``comparable`` claim is how far behind it may be. A ``misprint`` names the claim that is its correction.
    """

    id: Annotated[str, Field(pattern=_ID, max_length=80)]  # unique over all papers; the anchor in the report
    paper: str
    locus: _Text  # where the paper says it: "Table 4", "Proposition 3.1"
    statement: _Text  # in our words; may hold $math$
    kind: Kind
    published: float | int | str | list[Any] | dict[str, Any] | None  # None: the paper gives no value
    tolerance: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None  # largest |ours - published|
    least: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None  # of an ordering: the lead that it means
    corrected: str | None = None  # of a misprint: the claim that is its correction
    decided_at: Scale  # smallest preset that may decide it
    notebook: str  # that measures it, the study's: "01_gradient_theory"
    timing: bool = False  # a measured time: differs between two runs of the same code
    rounds: bool = False  # its values are rounds of one measurement, which stand in the place of seeds
    exploratory: bool = False  # added after the study's plan (plan*.yaml); its reason says so

    @property
    def beyond(self) -> bool:
        """Whether it is a hypothesis of our own, which the paper does not state."""
        return BEYOND in (self.statement[: len(BEYOND)], self.locus[: len(BEYOND)])

    @field_validator("paper")
    @classmethod
    def _known(cls, value: str) -> str:
        catalogue.folder(value)
        return value

    @field_validator("published", mode="before")
    @classmethod
    def _showable(cls, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float | str | list | dict | None):
            raise ValueError(f"published={value!r}: must be a number, a text, a list, a mapping or null")
        return value

    @model_validator(mode="after")
    def _judgeable(self) -> "Claim":
        cells = list(self.published.values()) if isinstance(self.published, dict) else [self.published]
        if self.kind == "number" and not (cells and all(isinstance(cell, int | float) for cell in cells)):
            raise ValueError(f"published={self.published!r}: a claim of kind 'number' needs a number, or one per cell")
        if self.kind in ("number", "comparable") and self.tolerance is None:
            raise ValueError(f"tolerance: a claim of kind {self.kind!r} needs an explicit tolerance")
        for name, kinds in (
            ("tolerance", ("number", "comparable", "property", "print")),
            ("least", ("ordering",)),
            ("corrected", ("misprint",)),
        ):
            if getattr(self, name) is not None and self.kind not in kinds:
                raise ValueError(f"{name}={getattr(self, name)!r}: a claim of kind {self.kind!r} has none")
        if self.kind == "misprint" and self.corrected is None:
            raise ValueError("corrected: a claim of kind 'misprint' needs the claim that is its correction")
        return self


def load(studies: Path = PACKAGE / "studies", project: Project | None = None) -> tuple[Claim, ...]:
    """The claims of every study, in the order of ``project``'s notebooks (default: this checkout's) and of the files.

    Raises ValueError naming file, claim and field for a broken entry, both files for an id used twice, the file of a
    study without a notebook, and a claim that is exploratory where there is no plan.
    """
    found: dict[str, tuple[str, Claim]] = {}
    notebooks = (project or Project(PACKAGE.parent)).notebook_of_study
    for path in sorted(studies.glob(f"*/{FILE}")):
        study, where = path.parent.name, f"{path.parent.name}/{path.name}"
        if study not in notebooks:
            raise ValueError(f"{where}: notebooks/ holds no NN_{study}.ipynb that could measure its claims")
        try:
            content = read_yaml(path)
        except ValueError as fault:
            raise ValueError(f"{study}/{fault}") from None
        complete = isinstance(content, dict) and set(content) == {"paper", "claims"}
        if not complete or not isinstance(content["claims"], list):
            raise ValueError(f"{where}: must hold 'paper: NAME' and 'claims:', a list")
        for position, fields in enumerate(content["claims"], start=1):
            name = fields.get("id") if isinstance(fields, dict) else None
            named = {"paper": content["paper"], "notebook": notebooks[study], **fields} if name else fields
            claim = build(Claim, named, f"{where}: claim {name!r}" if name else f"{where}: entry {position}")
            if claim.exploratory and not any(path.parent.glob(PLANS)):
                raise ValueError(f"{where}: claim {name!r}: exploratory=True: the study has no plan, no file {PLANS}")
            if claim.id in found:
                raise ValueError(f"id={claim.id!r}: used twice, in {found[claim.id][0]} and in {where}")
            found[claim.id] = (where, claim)
    for where, claim in found.values():
        if claim.corrected is not None and claim.corrected not in found:
            raise ValueError(f"{where}: claim {claim.id!r}: corrected={claim.corrected!r}: must be a claim")
    return tuple(sorted((claim for _, claim in found.values()), key=lambda claim: claim.notebook))


def by_id(claims: Iterable[Claim]) -> dict[str, Claim]:
    """The claims under their ids."""
    return {claim.id: claim for claim in claims}
