"""How claims look: a card for one, a table for several, one line of text for a console."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from transnormer_lib.ledger.claims import Claim
from transnormer_lib.ledger.judging import counts
from transnormer_lib.ledger.values import shown
from transnormer_lib.ledger.verdicts import FAILURES, Judgement
from transnormer_lib.show.templating import output_styles, render

Member = tuple[Claim, Judgement]

_PAIRED = ("ordering", "comparable")  # kinds judged on differences paired by seed
_FEW = 2  # rows that a page does not fold where one of them failed
_FOLDED = 4  # claims not run for one reason: from this many on they are one row


def claims_html(members: Sequence[Member], *, standalone: bool, code: str | None = None) -> Markup:
    """What one cell measured: a card for one claim, a table for several.

    ``standalone`` adds the style sheet; otherwise it is for a page, which folds a table, unless it is short and a claim
    in it failed. ``code`` is the anchor of the code that measured them, for a page.
    """
    views = [view(claim, judgement) for claim, judgement in members]
    reasons: dict[str, list[dict[str, Any]]] = {}
    for one in views:
        if one["verdict"] == "not run":
            reasons.setdefault(one["reason"], []).append(one)
    not_run = {reason: claims for reason, claims in reasons.items() if len(claims) >= _FOLDED}
    rows = [one for one in views if one["verdict"] != "not run" or one["reason"] not in not_run]
    few = len(rows) + len(not_run) <= _FEW and any(one["verdict"] in FAILURES for one in views)
    return render(
        "show/templates/claims.html.j2",
        styles=output_styles() if standalone else "",
        code=code,
        card=views[0] if len(views) == 1 else None,
        rows=rows,
        not_run=list(not_run.items()),
        folded=None if standalone or few or len(views) == 1 else counts(views),
    )


def view(claim: Claim, judgement: Judgement) -> dict[str, Any]:
    """A judged claim as texts for the templates. ``statement`` may hold ``$math$``."""
    return {
        "id": claim.id,
        "locus": claim.locus,
        "statement": claim.statement,
        "verdict": judgement.verdict,
        "published": published_text(claim),
        "ours": _short(claim, judgement),
        "values": _values(claim, judgement),
        "reason": _sentence(judgement.reason) if judgement.reason else None,
        "evidence": _evidence(judgement),
    }


def claim_line(claim: Claim, judgement: Judgement) -> str:
    """The claim in one line of text, for consoles."""
    values = [f"{label} {value}" for label, value in _values(claim, judgement)]
    reason = [judgement.reason] if judgement.reason else []
    return "; ".join([f"{claim.locus} ({claim.id}): {judgement.verdict}", *values, *reason])


def published_text(claim: Claim) -> str:
    """The published value, with the tolerance where the claim has one."""
    text = shown(claim.published, digits=8)
    return text if claim.tolerance is None else f"{text} ± {shown(claim.tolerance)}"


def tried_text(claim: Claim, judgement: Judgement) -> str | None:
    """How far a claim that failed was searched, or over how many seeds it was measured."""
    if judgement.verdict not in FAILURES:
        return None
    if claim.kind == "theorem" and isinstance(judgement.measured, Mapping):
        points = judgement.measured["searched"]
        return f"tried: {shown(points)} point{'' if points == 1 else 's'}"
    return f"tried: {_repetitions(claim, judgement)}" if judgement.seeds else None


def _repetitions(claim: Claim, judgement: Judgement) -> str:
    """Over how many seeds, or rounds of a measurement, the claim was measured."""
    return f"{len(judgement.seeds or ())} {'rounds' if claim.rounds else 'seeds'}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _short(claim: Claim, judgement: Judgement) -> str:
    """What was measured, short enough for a table's cell."""
    ours = judgement.measured
    if ours is None:
        return shown(None)
    if claim.kind == "theorem":
        return "holds" if ours["holds"] else "does not hold"
    if claim.kind == "misprint":
        return "holds as printed" if ours["holds"] else "fails as printed"
    if claim.kind in _PAIRED:
        means = f"{_mean(ours['better'], 4)} against {_mean(ours['worse'], 4)}"
        if judgement.interval is None:
            return means
        return f"{means}; {_lead(*judgement.interval)}"
    if claim.kind == "number":
        return _number(ours)
    return shown(ours)


def _number(ours: Any) -> str:
    """A mean, with the range over seeds where there are several; of a table's cells, each."""
    if not isinstance(ours, Mapping):
        return shown(ours)
    if ours.keys() == {"mean", "range"}:
        low, high = ours["range"]
        return f"{shown(ours['mean'])} ({shown(low)} to {shown(high)})"
    return "; ".join(f"{cell} {_number(value)}" for cell, value in ours.items())


def _lead(low: float, high: float) -> str:
    """The interval of a difference in words; positive is ahead."""
    if low >= 0:
        return f"ahead by {shown(low, 3)} to {shown(high, 3)}"
    if high <= 0:
        return f"behind by {shown(-high, 3)} to {shown(-low, 3)}"
    return f"from {shown(-low, 3)} behind to {shown(high, 3)} ahead"


def _values(claim: Claim, judgement: Judgement) -> list[tuple[str, str]]:
    """Published value and measured ones, each with its label."""
    ours, seeds = judgement.measured, judgement.seeds or ()
    rows = [("published", published_text(claim))]
    if ours is None:
        return rows
    if claim.kind == "misprint":
        return [*rows, ("ours", _short(claim, judgement)), ("corrected by", str(claim.corrected))]
    if claim.kind == "theorem":
        rows += [("ours", _short(claim, judgement)), ("points searched", shown(ours["searched"]))]
        return rows + ([("margin", shown(ours["margin"]))] if "margin" in ours else [])
    if claim.kind in _PAIRED:
        for side in ("better", "worse"):
            numbers = [float(value) for value in ours[side]]
            rows.append((side, f"{_mean(numbers)} ({shown(min(numbers))} to {shown(max(numbers))})"))
        if judgement.interval:
            low, high = judgement.interval
            lead = (
                f"{shown(ours['difference'])}, 95% in [{shown(low)}, {shown(high)}], {_repetitions(claim, judgement)}"
            )
            rows.append(("lead", lead))
            p = f"{shown(ours['p'], 2)}"
            if ours.get("family", 1) > 1:
                p += f"; {shown(ours['p_holm'], 2)} among {ours['family']} orderings (Holm)"
            rows.append(("p", p))
            rows.append(("smallest visible effect", shown(ours["visible"], 3)))
        if "floor" in ours:
            rows.append((f"to beat: {ours['floor']['name']}", shown(ours["floor"]["value"])))
        return rows
    mean = f", {_repetitions(claim, judgement)}" if claim.kind == "number" and len(seeds) > 1 else ""
    return [*rows, ("ours", _short(claim, judgement) + mean)]


def _mean(values: Sequence[Any], digits: int = 5) -> str:
    return shown(sum(float(value) for value in values) / len(values), digits)


def _evidence(judgement: Judgement) -> tuple[str, str] | None:
    if isinstance(judgement.measured, Mapping):
        for key, label in (("counter_example", "Counter-example"), ("tightest", "Tightest point found")):
            if judgement.measured.get(key) is not None:
                return label, shown(judgement.measured[key])
    return None
