"""What a paper is about, in sentences, and the answers that the ledger gives to them: ``papers/<paper>/theses.yaml``.

A thesis names the claims that bear on it. A claim in ``for`` speaks for the thesis if it holds and against it if it
fails; one in ``against`` the other way round. A claim that was not decided leaves the thesis open, and so does one
about trained models that only the scale ``quick`` has measured, or one that was added after its runs were known, which
keeps its thesis open at every scale. An open comparison leans to a side if its 95% interval lies there before the
correction for several comparisons. The answers:

- ``supported``: every claim speaks for it.
- ``contradicted``: some speak against it, none for it, its first claim is not open, and no open one leans for it.
- ``mixed``: some speak for it and some against it.
- ``cannot tell``: the rest.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from transnormer_lib.checks import nearest
from transnormer_lib.choices import SCALES
from transnormer_lib.ledger.claims import BEYOND, Claim, by_id
from transnormer_lib.ledger.claims import load as load_claims
from transnormer_lib.ledger.values import rounded, shown
from transnormer_lib.ledger.verdicts import at_least
from transnormer_lib.papers import catalogue, tables
from transnormer_lib.papers.records import Record, build, read_list
from transnormer_lib.project import UserMistake

ANSWERS = ("contradicted", "mixed", "cannot tell", "supported")
Side = Literal["for", "against", "open"]
SIDES: tuple[Side, ...] = get_args(Side)

_HOLDS = ("survives", "reproduced", "trend")
_FAILS = ("refuted", "not reproduced", "opposite")
_Text = Annotated[str, Field(min_length=1, pattern=r"\S")]


class Bearing(Record):
    """How a claim bears on a thesis: what it means if the claim holds, if it fails, and if the reverse is the case."""

    claim: str
    holds: _Text  # a clause: "with relu the gradient exceeds every bound"
    fails: _Text
    reverse: _Text | None = None  # of an ordering whose other side is ahead; without it, what it means if it fails


class PublishedEffect(Record):
    """Two cells of a published table, each found by the labels of its row."""

    table: str
    column: str
    better: dict[str, Any]
    worse: dict[str, Any]
    of: str = ""  # what the two cells compare, where the claim's contrast is another


class Effect(Record):
    """Which claim shows the size of the effect, and in what.

    ``percent`` is the difference of two losses in percent of the other side's; of a published perplexity, the loss is
    its logarithm. So tokens of different length can be compared. ``difference`` is that of the claim's two sides,
    ``value`` the claim's number.
    """

    claim: str
    form: Literal["percent", "difference", "value"]
    unit: _Text
    over: str = ""  # what the effect is over, where the sentence names several: "over FLASH-quad"
    published: PublishedEffect | None = None


class Thesis(Record):
    """One thesis. ``short`` names it in a sentence: "locality in the early layers"."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=60)]
    locus: _Text
    sentence: _Text
    short: _Text
    in_favour: list[Bearing] = Field(alias="for")
    against: list[Bearing] = []  # noqa: RUF012  pydantic copies the default
    cause: list[Bearing] = []  # noqa: RUF012  changes of one thing alone, which say why; they decide nothing
    effect: Effect | None = None
    headline: bool = False  # its effect is named in the answer on the front page
    would_change: _Text  # the evidence that would change the answer
    objection: _Text  # the strongest that a reviewer could raise
    reply: _Text  # what meets it here, or that it is granted

    @property
    def claims(self) -> list[str]:
        """The ids of the claims that bear on it, those in its favour first."""
        return [bearing.claim for bearing in (*self.in_favour, *self.against)]


@dataclass(frozen=True)
class Part:
    """One claim's part in an answer."""

    claim: str
    side: Side
    verdict: str
    says: str  # what it means for the thesis; where it is open, why and where it leans
    scale: str
    source: str  # "run" or "kept"
    anchor: str
    leans: Side = "open"  # where an open comparison lies before the correction
    below: str = ""  # the scale that may decide the claim, where it was measured below it


@dataclass(frozen=True)
class Answer:
    """The answer to one thesis, with the size of the effect: positive in the thesis' favour."""

    paper: str
    thesis: Thesis
    answer: str  # one of ANSWERS
    parts: tuple[Part, ...]
    effect: float | None = None
    interval: tuple[float, float] | None = None
    standing: str = ""  # the verdict of the effect's own claim where that decides nothing: unresolved, undecided
    published_effect: float | None = None
    scale: str | None = None  # the largest at which a part was decided
    seeds: tuple[int, ...] | None = None
    controls: str | None = None  # what the effect's matched controls did
    exploratory: bool = False  # whether the effect's claim was added after its study's plan
    causes: tuple[Part, ...] = ()  # of ``thesis.cause``

    @property
    def beyond(self) -> bool:
        """Whether the thesis is a question of our own, beside the paper."""
        return self.thesis.locus.startswith(BEYOND)

    @property
    def because(self) -> str:
        """The parts as sentences, those that speak for the thesis first."""
        found = []
        for side, words in (("for", "For it"), ("against", "Against it"), ("open", "Open")):
            clauses = [part.says for part in self.parts if part.side == side]
            if clauses:
                found.append(f"{words}: {'; '.join(clauses)}.")
        found += [text for text in (self.trends, self.controls) if text]
        return " ".join(found) or "No claim of this report bears on it."

    @property
    def trends(self) -> str:
        """How many of the deciding claims were measured below the scale that may decide them; empty for none."""
        decided = [part for part in self.parts if part.side != "open"]
        small = [part for part in decided if part.below]
        if not small:
            return ""
        scales = " or ".join(dict.fromkeys(part.below for part in small))
        if len(decided) == 1:
            return f"Its one decided claim is a trend, measured below {scales}."
        share = "All" if len(small) == len(decided) else str(len(small))
        told = "is a trend" if len(small) == 1 else "are trends"
        return f"{share} of its {len(decided)} decided claims {told}, measured below {scales}."


def everything() -> tuple[tuple[Claim, ...], list[tuple[str, Thesis]]]:
    """The claims of every study, and the theses of every paper with its name.

    Raises :class:`UserMistake` with what :func:`ledger.claims.load` or :func:`load` refuse.
    """
    try:
        claims = load_claims()
        return claims, [(paper, thesis) for paper in catalogue.papers() for thesis in load(paper, claims)]
    except ValueError as fault:
        raise UserMistake(" ".join(str(fault).split())) from None


def load(paper: str, claims: Sequence[Claim]) -> tuple[Thesis, ...]:
    """The theses of a paper, in order; () for a paper without any.

    Raises ValueError naming file, thesis and field for a broken entry, a claim that does not exist or is another
    paper's, or one that can say nothing of what is the case: print compared with print, or a misprint.
    """
    return read(catalogue.folder(paper) / "theses.yaml", claims)


def read(path: Path, claims: Sequence[Claim]) -> tuple[Thesis, ...]:
    """The theses of one file; () if there is none."""
    known, found = by_id(claims), []
    for fields in read_list(path) if path.exists() else []:
        where = f"{path.parent.name}/{path.name}: thesis {fields.get('id') if isinstance(fields, dict) else fields!r}"
        thesis = build(Thesis, fields, where)
        causes = [bearing.claim for bearing in thesis.cause]
        for name in [*thesis.claims, *causes, *([thesis.effect.claim] if thesis.effect else [])]:
            if name not in known:
                raise ValueError(f"{where}: claim={name!r}: no such claim{nearest(name, known)}")
            if known[name].paper.replace("-", "_") != path.parent.name:
                raise ValueError(f"{where}: claim={name!r}: belongs to the paper {known[name].paper!r}")
            if known[name].kind in ("print", "misprint"):
                raise ValueError(f"{where}: claim={name!r}: a claim of kind {known[name].kind!r} decides no thesis")
        found.append(thesis)
    return tuple(found)


def answer(paper: str, thesis: Thesis, claims: Mapping[str, Claim], entries: Mapping[str, Mapping[str, Any]]) -> Answer:
    """The answer to ``thesis`` from the objects of claims.json, by id."""
    parts = [_part(bearing, claims, entries, "for", "against") for bearing in thesis.in_favour]
    parts += [_part(bearing, claims, entries, "against", "for") for bearing in thesis.against]
    sides = {part.side for part in parts}
    decided = [part.scale for part in parts if part.side != "open"]
    if {"for", "against"} <= sides:
        word = "mixed"
    elif sides == {"for"}:
        word = "supported"
    elif "against" in sides and parts[0].side != "open" and "for" not in {part.leans for part in parts}:
        word = "contradicted"
    else:
        word = "cannot tell"
    return Answer(
        paper,
        thesis,
        word,
        tuple(parts),
        scale=max(decided, key=SCALES.index, default=None),
        causes=tuple(_part(bearing, claims, entries, "for", "against") for bearing in thesis.cause),
        **_effect(thesis, paper, claims, entries),
    )


def as_json(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """The content of theses.json."""
    return [
        {
            "id": found.thesis.id,
            "paper": found.paper,
            "locus": found.thesis.locus,
            "sentence": found.thesis.sentence,
            "answer": found.answer,
            "effect": None if found.standing == "undecided" else found.effect,
            "interval": None if found.interval is None else list(found.interval),
            "published_effect": found.published_effect,
            "unit": found.thesis.effect.unit if found.thesis.effect else None,
            "scale": found.scale,
            "seeds": None if found.seeds is None else list(found.seeds),
            "because": found.because,
            "claims": found.thesis.claims,
            "would_change": found.thesis.would_change,
        }
        for found in answers
    ]


def rests_on_training(claim: Claim) -> bool:
    """Whether trained models decide the claim: a comparison or a number that is no time."""
    return claim.kind in ("ordering", "comparable", "number") and not claim.timing


def _part(
    bearing: Bearing,
    claims: Mapping[str, Claim],
    entries: Mapping[str, Mapping[str, Any]],
    if_holds: Side,
    if_fails: Side,
) -> Part:
    entry, claim = entries[bearing.claim], claims[bearing.claim]
    verdict, scale, measured = entry["verdict"], entry["scale"], entry["measured"]
    side: Side = if_holds if verdict in _HOLDS else if_fails if verdict in _FAILS else "open"
    says = bearing.holds if verdict in _HOLDS else (verdict == "opposite" and bearing.reverse) or bearing.fails
    leans: Side = "open"
    why = f"{verdict} at {scale}" if verdict in ("unresolved", "not learned") else verdict
    if side != "open" and rests_on_training(claim) and scale == "quick":
        side, why = "open", "measured at quick only"
    elif side != "open" and claim.exploratory:
        side, leans, why = "open", side, f"found {'so' if verdict in _HOLDS else 'otherwise'}, but asked afterwards"
    elif verdict == "unresolved":
        leans = {-1: if_fails, 0: "open", 1: if_holds}[_lies(measured["interval"], claim.tolerance or 0.0)]
        if leans != "open":
            why += f"; before the correction it speaks {leans} the thesis, p = {shown(measured['p'], 2)}"
    below = claim.decided_at if verdict in ("trend", "opposite") and not at_least(scale, claim.decided_at) else ""
    if side == "open":
        says = f"whether {bearing.holds} ({why})"
    return Part(claim.id, side, verdict, says, scale, entry["source"], entry["anchor"], leans, below)


def _lies(interval: Sequence[float], behind: float) -> int:
    """On which side of minus ``behind`` an interval lies; 0 if it holds that."""
    low, high = interval
    return (low > -behind) - (high < -behind)


def _effect(
    thesis: Thesis, paper: str, claims: Mapping[str, Claim], entries: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """The fields of an Answer that say how large the effect is; a published one also where nothing was decided.

    An effect whose claim speaks against the thesis has the other sign.
    """
    effect = thesis.effect
    if effect is None:
        return {}
    of = claims[effect.claim]
    found: dict[str, Any] = {"published_effect": _published(effect, paper, of), "exploratory": of.exploratory}
    entry = entries[effect.claim]
    measured = entry["measured"]
    if rests_on_training(of) and entry["scale"] == "quick" and entry["verdict"] != "not run":
        return found
    if entry["verdict"] not in (*_HOLDS, *_FAILS):
        found["standing"] = entry["verdict"]
    if effect.form == "value":
        value = measured["mean"] if isinstance(measured, Mapping) else measured
        return found if value is None else found | {"effect": value, "seeds": entry["seeds"]}
    if not isinstance(measured, Mapping) or "interval" not in measured:
        return found
    scale = 100.0 / (math.fsum(measured["worse"]) / len(measured["worse"])) if effect.form == "percent" else 1.0
    if effect.claim in {bearing.claim for bearing in thesis.against}:
        scale = -scale
    low, high = sorted(scale * end for end in measured["interval"])
    found |= {"effect": rounded(scale * measured["difference"]), "seeds": tuple(entry["seeds"])}
    return found | {"interval": (rounded(low), rounded(high)), "controls": _controls(measured)}


def _published(effect: Effect, paper: str, claim: Claim) -> float | None:
    if effect.form == "value" and isinstance(claim.published, int | float):
        return float(claim.published)
    if effect.published is None:
        return None
    table, column = tables.load(paper, effect.published.table), effect.published.column
    better, worse = (table.value(column, **labels) for labels in (effect.published.better, effect.published.worse))
    if not isinstance(better, int | float) or not isinstance(worse, int | float):
        raise ValueError(f"{table.locus}: {column}: {better!r} and {worse!r} must be numbers")
    if effect.form == "percent":
        return float(rounded(100.0 * math.log(worse / better) / math.log(worse)))
    lower = next(found.better == "lower" for found in table.columns if found.name == column)
    return float(rounded(worse - better if lower else better - worse))


def _controls(measured: Mapping[str, Any]) -> str | None:
    """That the matched controls and the sides have learned, and how closely: an interval is only there if they have."""
    controls, floor = measured.get("controls"), measured.get("floor")
    if not controls or not floor:
        return None

    def closest(rows: Iterable[Sequence[float]]) -> str:
        return shown(min(abs(value - floor["value"]) for values in rows for value in values), 2)

    passed = f"{floor['name']}, {shown(floor['value'], 4)}"
    beaten = f"The matched controls ({', '.join(controls)}) beat {passed}, with every seed"
    told = f"{beaten}; the closest by {closest(controls.values())}"
    sides = (
        "" if measured.get("learned") else f", of the two sides by {closest([measured['better'], measured['worse']])}"
    )
    return f"{told}{sides}."
