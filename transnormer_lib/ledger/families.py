"""What a claim's verdict owes to others: orderings of one table are judged together, a misprint by its correction.

A *family* is the orderings and comparisons of one paper's table, figure or section (``Claim.locus``) that one notebook
measures. Of twenty true equalities one would look like a difference by chance, so within a family a difference counts
only if it is significant after Holm's correction. The primary claim of a study's plan is no exception.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from transnormer_lib.analysis.seeds import CONFIDENCE, holm
from transnormer_lib.ledger.claims import Claim
from transnormer_lib.ledger.values import rounded, shown
from transnormer_lib.ledger.verdicts import SUCCESSES, Judgement, visible

_SIGNIFICANT = 1.0 - CONFIDENCE


@dataclass(frozen=True)
class Multiplicity:
    """How many orderings were judged, in how many families, and how many false ones that can be expected to give."""

    orderings: int
    families: int

    @property
    def expected_false(self) -> float:
        """At most: each family gives a false difference with a probability of 5% if all its differences are zero."""
        return self.families * _SIGNIFICANT


def settle(claims: Sequence[Claim], judged: Mapping[str, Judgement]) -> dict[str, Judgement]:
    """The judgements after Holm's correction within families, and with misprints whose correction fails undone."""
    settled = dict(judged)
    for members in _families(claims, judged).values():
        adjusted = holm([float(judged[name].measured["p"]) for name in members])
        for name, p in zip(members, adjusted, strict=True):
            settled[name] = _corrected(judged[name], p, len(members))
    for claim in claims:
        if claim.corrected is not None and claim.id in judged and judged[claim.id].verdict == "misprint":
            correction = judged.get(claim.corrected)
            if correction is None or correction.verdict not in SUCCESSES:
                reason = f"its correction, {claim.corrected}, does not hold here"
                settled[claim.id] = Judgement("not run", judged[claim.id].measured, reason=reason)
    return settled


def multiplicity(claims: Sequence[Claim], judged: Mapping[str, Judgement]) -> Multiplicity:
    """The orderings and comparisons whose differences were judged."""
    families = _families(claims, judged)
    return Multiplicity(sum(map(len, families.values())), len(families))


def _families(claims: Sequence[Claim], judged: Mapping[str, Judgement]) -> dict[tuple[str, ...], list[str]]:
    found: dict[tuple[str, ...], list[str]] = {}
    for claim in claims:
        judgement = judged.get(claim.id)
        if judgement is not None and isinstance(judgement.measured, Mapping) and "p" in judgement.measured:
            found.setdefault((claim.paper, claim.notebook, claim.locus), []).append(claim.id)
    return found


def _corrected(judgement: Judgement, p: float, members: int) -> Judgement:
    measured = judgement.measured | {"p_holm": rounded(p), "family": members}
    if p < _SIGNIFICANT or judgement.verdict in ("unresolved", "not reproduced"):
        return replace(judgement, measured=measured)
    reason = f"p = {shown(measured['p'], 2)}, but {shown(p, 2)} among {members} orderings of this part (Holm)"
    return replace(judgement, verdict="unresolved", measured=measured, reason=f"{reason}; {visible(measured)}")
