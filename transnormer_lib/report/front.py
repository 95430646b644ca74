"""The front page's answers: a paper's theses as sentences and as rows of a forest plot."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transnormer_lib.ledger.claims import Claim
from transnormer_lib.ledger.kept import Kept
from transnormer_lib.ledger.theses import ANSWERS, Answer
from transnormer_lib.ledger.values import shown
from transnormer_lib.papers.catalogue import papers

_AXIS_UNIT = "percent of the loss"  # effects in it share one axis
_TONES = {"supported": "good", "contradicted": "bad", "mixed": "open", "cannot tell": "open"}
_SIGNS = {"supported": "✓", "contradicted": "✗", "mixed": "±", "cannot tell": "?"}
_MARGIN = 0.06  # of the plot's width, on both sides


@dataclass(frozen=True)
class Axis:
    """The common axis of a paper's effects, in percent of the loss; places are in percent of the plot's width."""

    low: float
    high: float

    def place(self, value: float) -> float:
        """Where a value lies."""
        share = (value - self.low) / (self.high - self.low)
        return round(100.0 * (_MARGIN + (1.0 - 2.0 * _MARGIN) * share), 2)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Place and text of about five round values."""
        step = next(step for step in (1, 2, 5, 10, 20, 50) if (self.high - self.low) / step <= 6)
        first = int(self.low // step) * step
        values = [first + step * number for number in range(12)]
        return [(self.place(v), shown(v)) for v in values if self.low <= v <= self.high]


def sections(answers: Sequence[Answer], kept: Sequence[Kept], claims: Mapping[str, Claim]) -> list[dict[str, Any]]:
    """Per paper with theses: its title, the answer in three sentences, and the rows of its plot."""
    found = []
    for paper in papers().values():
        own = [answer for answer in answers if answer.paper == paper.id]
        if own:
            axis = _axis(own)
            rows = [_row(answer, axis, kept, claims) for answer in own]
            found.append({"paper": paper, "sentences": sentences(own), "rows": rows, "axis": axis})
    return found


def sentences(answers: Sequence[Answer]) -> list[str]:
    """The answer to a paper as a whole: how its theses stand, which they are, and how large the effects."""
    printed, own = [[found for found in answers if found.beyond is beyond] for beyond in (False, True)]
    beside = f" Of {_count(own, 'question')} beside it, {_standing(own)}." if own else ""
    first = (f"Of its {_count(printed, 'thesis', 'theses')} {_standing(printed)}." if printed else "") + beside
    named, asked = _named(printed), _named(own)
    told = [*named, *(["Our own questions.", *asked] if asked else [])]
    effects = [text for found in answers if found.thesis.headline and (text := _headline(found))]
    last = (
        f"With 95% intervals, {'; '.join(effects)}." if effects else "No effect on models that have learned is settled."
    )
    return [first, " ".join(told) or "None has been decided.", last]


def _named(answers: Sequence[Answer]) -> list[str]:
    """Which have each answer, a sentence for each that some have: ``Holds in part: the lead; local attention.``"""
    words = {"contradicted": "Does not hold", "mixed": "Holds in part", "supported": "Holds"}
    named = {word: [found.thesis.short for found in answers if found.answer == word] for word in words}
    return [f"{text}: {'; '.join(named[word])}." for word, text in words.items() if named[word]]


def _standing(answers: Sequence[Answer]) -> str:
    """``1 is contradicted, 2 are mixed and 3 cannot be told yet``."""
    by_word = {word: sum(found.answer == word for found in answers) for word in ANSWERS}
    unknown = by_word.pop("cannot tell")
    counts = [f"{number} {word}" for word, number in by_word.items() if number]
    return _listed([*counts, *([f"{unknown} cannot be told yet"] if unknown else [])])


def _count(answers: Sequence[Answer], one: str, more: str = "") -> str:
    return f"{len(answers)} {one if len(answers) == 1 else more or one + 's'}"


def lines(answers: Sequence[Answer]) -> list[str]:
    """The answers for a terminal, paper by paper, one line each."""
    width = max((len(found.answer) for found in answers), default=0)
    told = []
    for paper in papers().values():
        own = [f"  {found.answer:{width}}  {found.thesis.sentence}" for found in answers if found.paper == paper.id]
        told += [f"{paper.title}:", *own] if own else []
    return told


def served(answers: Sequence[Answer], notebook: str, claims: Mapping[str, Claim]) -> list[dict[str, Any]]:
    """The theses that a notebook's claims bear on, for its page."""
    return [
        {"sentence": found.thesis.sentence, "href": f"index.html#thesis-{found.thesis.id}"} | _badge(found)
        for found in answers
        if any(claims[name].notebook == notebook for name in found.thesis.claims)
    ]


def _badge(found: Answer) -> dict[str, str]:
    return {"answer": found.answer, "tone": _TONES[found.answer], "sign": _SIGNS[found.answer]}


def _row(found: Answer, axis: Axis | None, kept: Sequence[Kept], claims: Mapping[str, Claim]) -> dict[str, Any]:
    thesis = found.thesis
    origins = {claims[part.claim].notebook for part in found.parts if part.source == "kept" and part.side != "open"}
    return _badge(found) | {
        "id": thesis.id,
        "locus": thesis.locus,
        "sentence": thesis.sentence,
        "because": found.because,
        "would_change": thesis.would_change,
        "objection": thesis.objection,
        "reply": thesis.reply,
        "not_run": sum(part.verdict == "not run" for part in found.parts),
        "effect": effect_text(found),
        "unsized": "no one number" if thesis.effect is None else found.standing or "measured at quick only",
        "published": published_text(found),
        "plot": _plot(found, axis),
        "parts": [part for side in ("for", "against", "open") for part in found.parts if part.side == side],
        "short": thesis.short,
        "causes": found.causes,
        "scale": found.scale,
        "seeds": len(found.seeds) if found.seeds and found.interval else None,
        "kept": [one.origin(claims) for one in kept if one.notebook in origins],
        "trends": found.trends,
        "controls": found.controls,
    }


def effect_text(found: Answer) -> str | None:
    """The effect with its unit, its 95% interval, and whether that is all one can say; None where none was measured."""
    if found.effect is None or found.thesis.effect is None:
        return None
    size = _sized(found.effect, found.interval or (), found.thesis.effect.unit)
    size = f"{size} {found.thesis.effect.over}".rstrip()
    return ", ".join(
        [size, *([found.standing] if found.standing else []), *(["exploratory"] if found.exploratory else [])]
    )


def published_text(found: Answer) -> str | None:
    """The effect in print with its unit and, where that is another contrast, what it compares; None without one."""
    effect = found.thesis.effect
    if found.published_effect is None or effect is None:
        return None
    of = effect.published.of if effect.published else ""
    return f"{_sized(found.published_effect, (), effect.unit)} {of}".rstrip()


def _sized(effect: float, interval: Sequence[float], unit: str) -> str:
    """``0.31% (0.10 to 0.50)``: as many decimals for all as the largest needs for two significant digits."""
    largest = max(map(abs, (effect, *interval)))
    decimals = next((number for number in (1, 2, 3) if largest >= 10.0 ** (1 - number)), 4)
    if not interval and decimals > 2:  # 0.06, not 0.060: nothing beside it has more
        decimals = max(2, len(f"{effect:.{decimals}f}".rstrip("0").partition(".")[2]))
    rounded = (round(value, decimals) + 0.0 for value in (effect, *interval))  # no minus before a zero
    size, *ends = (f"{value:.{decimals}f}".replace("-", "−") for value in rounded)
    return (f"{size}%" if unit == _AXIS_UNIT else f"{size} {unit}") + (f" ({' to '.join(ends)})" if ends else "")


def _headline(found: Answer) -> str | None:
    """``local attention in the early layers lowers the loss by 11.7% (10.9 to 12.5)``."""
    if found.standing or found.effect is None or found.interval is None or found.thesis.effect is None:
        return None
    (low, high), unit, over = found.interval, found.thesis.effect.unit, found.thesis.effect.over
    if low <= 0 <= high:
        size = _sized(found.effect, found.interval, unit)
        return f"{found.thesis.short}: {size} {over}".rstrip() + ", an interval around zero"
    sign = 1.0 if found.effect >= 0 else -1.0
    size = _sized(sign * found.effect, sorted(sign * end for end in found.interval), unit)
    if _on_axis(found):
        return f"{found.thesis.short} {'lowers' if sign > 0 else 'raises'} the loss by {size} {over}".rstrip()
    return f"{found.thesis.short}: {size} {over}".rstrip() + f" {'for' if sign > 0 else 'against'} it"


def _on_axis(found: Answer) -> bool:
    return found.thesis.effect is not None and found.thesis.effect.unit == _AXIS_UNIT


def _axis(answers: Sequence[Answer]) -> Axis | None:
    """The axis that holds every effect in percent of the loss, or None where there is none."""
    values = []
    for found in answers:
        if _on_axis(found):
            values += [value for value in (found.effect, found.published_effect) if value is not None]
            values += found.interval or ()
    return Axis(min(0.0, *values), max(1.0, *values)) if values else None


def _plot(found: Answer, axis: Axis | None) -> dict[str, float | None] | None:
    """Places of the row's marks, or None where the row has nothing on the common axis."""
    if axis is None or not _on_axis(found) or (found.effect is None and found.published_effect is None):
        return None
    low, high = found.interval or (None, None)
    values = {"zero": 0.0, "low": low, "effect": found.effect, "high": high, "published": found.published_effect}
    return {name: None if value is None else axis.place(value) for name, value in values.items()}


def _listed(parts: Sequence[str]) -> str:
    """``1 is a, 2 are b and 3 are c``."""
    words = [f"{part.split()[0]} {'is' if part.startswith('1 ') else 'are'} {part.split(' ', 1)[1]}" for part in parts]
    words = [word.replace(" are cannot be", " cannot be").replace(" is cannot be", " cannot be") for word in words]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
