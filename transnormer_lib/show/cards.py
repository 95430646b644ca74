"""How a claim looks: the verdict's badge, the card that a measurement displays, and its one line of text."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any

from transnormer_lib.ledger.claims import Claim
from transnormer_lib.ledger.values import shown
from transnormer_lib.ledger.verdicts import FAILURES, SUCCESSES, Judgement
from transnormer_lib.show.formulas import text_with_math

# A sign beside the word and a border style in the style sheet: colour is never the only difference.
_SIGNS = {
    "verified": "✓",
    "reproduced": "✓",
    "refuted": "✗",
    "not reproduced": "✗",
    "trend": "↗",
    "no trend": "→",
    "undecided": "?",
    "not run": "○",
}
PAPERS = {
    "transnormer": "The Devil in Linear Transformer",
    "linear-transformers": "Transformers are RNNs",
    "gau": "GAU-based model",
}
_STYLES = Path(__file__).parent / "templates" / "outputs.css"


@lru_cache(maxsize=1)
def output_styles() -> str:
    """The style element that outputs carry, so that they look right in JupyterLab; a page holds it once."""
    return f'<style class="tn-outputs">{_STYLES.read_text(encoding="utf-8").strip()}</style>'


def tone(verdict: str) -> str:
    """The verdict's class of colour: good, bad, or open."""
    return "good" if verdict in SUCCESSES else "bad" if verdict in FAILURES else "open"


def badge(verdict: str) -> str:
    """The verdict as a small mark with sign and word."""
    sign = _SIGNS[verdict]
    mark = f'<span aria-hidden="true">{sign}</span>'
    return f'<span class="tn-verdict tn-{tone(verdict)}">{mark} {escape(verdict)}</span>'


def claim_line(claim: Claim, judgement: Judgement) -> str:
    """The claim in one line of text, for consoles."""
    parts = [f"{claim.locus} ({claim.id}): {judgement.verdict}"]
    parts += [f"{label} {value}" for label, value in _values(claim, judgement)]
    if judgement.reason:
        parts.append(judgement.reason)
    return "; ".join(parts)


def claim_card(claim: Claim, judgement: Judgement, *, standalone: bool) -> str:
    """The claim, the published value, ours and the verdict; ``standalone`` adds the style sheet."""
    rows = "".join(
        f"<div><dt>{escape(label)}</dt><dd>{escape(value)}</dd></div>" for label, value in _values(claim, judgement)
    )
    reason = f'<p class="tn-reason">{escape(_sentence(judgement.reason))}</p>' if judgement.reason else ""
    attributes = f'class="tn-claim tn-{tone(judgement.verdict)}" id="claim-{claim.id}"'
    return (
        f'<section {attributes} aria-label="Claim {claim.id}">'
        f"{output_styles() if standalone else ''}"
        f'<p class="tn-head">{badge(judgement.verdict)} <span class="tn-locus">{escape(claim.locus)}</span> '
        f'<code class="tn-id">{claim.id}</code></p>'
        f'<p class="tn-statement">{text_with_math(claim.statement)}</p>'
        f'<dl class="tn-values">{rows}</dl>{reason}{_evidence(judgement)}</section>'
    )


def not_run_list(members: Sequence[tuple[Claim, Judgement]]) -> str:
    """Claims that were not run as one card, folded: by reason, a line each. Dozens of cards would bury the others."""
    reasons: dict[str, str] = {}
    for claim, judgement in members:
        line = (
            f'<li id="claim-{claim.id}"><span class="tn-locus">{escape(claim.locus)}</span> '
            f"{text_with_math(claim.statement)} Published: {escape(published_text(claim))}. "
            f'<code class="tn-id">{claim.id}</code></li>'
        )
        reason = judgement.reason or "no reason is given"
        reasons[reason] = reasons.get(reason, "") + line
    body = "".join(
        f'<p class="tn-reason">{escape(_sentence(reason))}</p><ul>{lines}</ul>' for reason, lines in reasons.items()
    )
    summary = f'{badge("not run")} <span class="tn-locus">{len(members)} claims</span>'
    return f'<section class="tn-claim tn-open"><details><summary>{summary}</summary>{body}</details></section>'


def published_text(claim: Claim) -> str:
    """The published value, with the tolerance where the claim has one."""
    text = shown(claim.published, digits=8)
    return text if claim.tolerance is None else f"{text} ± {shown(claim.tolerance)}"


def measured_text(claim: Claim, judgement: Judgement) -> str:
    """What was measured, short enough for a table's cell."""
    ours = judgement.measured
    if ours is None:
        return shown(None)
    if claim.kind == "theorem":
        return "holds" if ours["holds"] else "does not hold"
    if claim.kind == "ordering":
        means = f"{_mean(ours['better'])} against {_mean(ours['worse'])}"
        if judgement.interval is None:
            return means
        low, high = judgement.interval
        return f"{means}; ahead by {shown(low)} to {shown(high)}"
    return shown(ours)


def tried_text(claim: Claim, judgement: Judgement) -> str | None:
    """What was tried on a claim that failed: how far was searched, over how many seeds."""
    if judgement.verdict not in FAILURES:
        return None
    if claim.kind == "theorem" and isinstance(judgement.measured, Mapping):
        points = judgement.measured["searched"]
        return f"tried: {shown(points)} point{'' if points == 1 else 's'}"
    return f"tried: {len(judgement.seeds)} seeds" if judgement.seeds else None


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _values(claim: Claim, judgement: Judgement) -> list[tuple[str, str]]:
    ours = judgement.measured
    return [("published", published_text(claim)), *([] if ours is None else _ours(claim, judgement, ours))]


def _ours(claim: Claim, judgement: Judgement, ours: Any) -> list[tuple[str, str]]:
    seeds = judgement.seeds or ()
    if claim.kind == "theorem":
        rows = [
            ("ours", "holds" if ours["holds"] else "does not hold"),
            ("points searched", shown(ours["searched"])),
        ]
        return rows + ([("margin", shown(ours["margin"]))] if "margin" in ours else [])
    if claim.kind == "ordering":
        rows = [(side, _spread(ours[side])) for side in ("better", "worse")]
        if judgement.interval:
            low, high = judgement.interval
            ahead = f"{shown(ours['difference'])}, 95% in [{shown(low)}, {shown(high)}], {len(seeds)} seeds"
            rows.append(("ahead by", ahead))
        if "floor" in ours:
            rows.append((f"to beat: {ours['floor']['name']}", shown(ours["floor"]["value"])))
        return rows
    text = shown(ours)
    return [
        (
            "ours",
            f"{text} (mean of {len(seeds)} seeds)" if claim.kind == "number" and len(seeds) > 1 else text,
        )
    ]


def _spread(values: list[Any]) -> str:
    numbers = [float(value) for value in values]
    return f"{_mean(values)} ({shown(min(numbers))} to {shown(max(numbers))})"


def _mean(values: list[Any]) -> str:
    numbers = [float(value) for value in values]
    return shown(sum(numbers) / len(numbers))


def _evidence(judgement: Judgement) -> str:
    if not isinstance(judgement.measured, Mapping):
        return ""
    for key, label in (("counter_example", "Counter-example"), ("tightest", "Tightest point found")):
        if judgement.measured.get(key) is not None:
            found = escape(shown(judgement.measured[key]))
            return f"<details><summary>{label}</summary><p>{found}</p></details>"
    return ""
