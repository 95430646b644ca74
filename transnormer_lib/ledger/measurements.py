"""What a notebook measures: one measurement per claim, checked when it is recorded.

``show.claims`` displays what was recorded. The executed notebook then carries each cell's measurements under ``MIME``,
a list, where the ledger (``judging``) reads them.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transnormer_lib.checks import check_choice, check_distinct, nearest
from transnormer_lib.choices import SCALES
from transnormer_lib.ledger.claims import Claim, by_id, load
from transnormer_lib.ledger.values import plain
from transnormer_lib.ledger.verdicts import ON_REAL_DATA, Judgement, judge

MIME = "application/vnd.transnormer.measurement+json"


@dataclass(frozen=True)
class Recorded:
    """One measurement with its claim and its verdict."""

    claim: Claim
    measurement: dict[str, Any]
    judgement: Judgement

    @property
    def verdict(self) -> str:
        return self.judgement.verdict

    def _ipython_display_(self) -> None:
        """Show nothing where it is a cell's last expression: ``show.claims`` shows it when the cell ends."""


class Measurements:
    """Records the measurements of one notebook at one scale.

    ``notebook`` is the notebook's name (``01_gradient_theory``), ``scale`` that of the preset. A claim is recorded
    once; running the same cell again, or making a new ``Measurements``, replaces the record. All methods raise
    ValueError naming the claim, the value and the rule.
    """

    def __init__(self, notebook: str, scale: str, claims: Iterable[Claim] | None = None) -> None:
        check_choice("scale", scale, SCALES)
        self._claims = by_id(load() if claims is None else claims)
        notebooks = sorted({claim.notebook for claim in self._claims.values()})
        if notebook not in notebooks:
            raise ValueError(f"notebook={notebook!r}: no claim belongs to it{nearest(notebook, notebooks)}")
        self.notebook = notebook
        self.scale = scale
        self._recorded: dict[str, tuple[int, str] | None] = {}

    def theorem(
        self,
        claim: str,
        *,
        holds: bool,
        searched: int,
        margin: float | None = None,
        tightest: Any = None,
        counter_example: Any = None,
    ) -> Recorded:
        """Whether a statement survived the search for a counter-example.

        ``searched`` is the number of points tried, ``tightest`` the one where the statement came closest to failing,
        ``margin`` the distance left there. ``counter_example`` is the point that breaks the statement, by default
        ``tightest``; one of the two is required if ``holds`` is false.
        """
        self._expect(claim, "theorem")
        holds = bool(holds)
        if int(searched) < 1:
            raise ValueError(f"claim={claim!r}: searched={searched!r}: must count at least one point")
        margin = plain(margin, "margin")
        if holds and margin is not None and not (isinstance(margin, int | float) and margin > -1e-6):
            raise ValueError(f"claim={claim!r}: margin={margin!r}: must be finite and not negative where holds is true")
        if not holds and counter_example is None and tightest is None:
            raise ValueError(f"claim={claim!r}: holds=False: needs the counter_example that was found")
        fields: dict[str, Any] = {"holds": holds, "searched": int(searched), "margin": margin}
        fields["tightest"] = plain(tightest, "tightest")
        broken_by = tightest if counter_example is None else counter_example
        fields["counter_example"] = None if holds else plain(broken_by, "counter_example")
        return self._record(claim, "theorem", fields)

    def property(self, claim: str, *, value: Any, expected: Any) -> Recorded:
        """Whether ``value`` equals ``expected``, or differs by at most the claim's tolerance where it has one.

        Floats are compared as recorded, to six significant digits; if more matter, compare them yourself and pass the
        outcome.
        """
        return self._exact(claim, "property", value, expected)

    def printed(self, claim: str, *, value: Any, expected: Any) -> Recorded:
        """Whether what is printed in one place, ``value``, agrees with what is printed in another, ``expected``.

        Compared as :meth:`property`.
        """
        return self._exact(claim, "print", value, expected)

    def _exact(self, claim: str, kind: str, value: Any, expected: Any) -> Recorded:
        self._expect(claim, kind)
        fields = {"value": plain(value, "value"), "expected": plain(expected, "expected")}
        return self._record(claim, kind, fields)

    def misprint(self, claim: str, *, holds: bool, counter_example: Any) -> Recorded:
        """Whether the statement holds as printed, and where it does not; its correction is measured by itself.

        ``counter_example`` is required if ``holds`` is false.
        """
        self._expect(claim, "misprint")
        if not holds and counter_example is None:
            raise ValueError(f"claim={claim!r}: counter_example=None: a misprint needs the point at which it fails")
        fields = {"holds": bool(holds), "counter_example": plain(counter_example, "counter_example")}
        return self._record(claim, "misprint", fields)

    def number(
        self,
        claim: str,
        *,
        value: float | Sequence[float] | Mapping[str, Sequence[float]],
        seeds: Sequence[int] | None = None,
        notes: Sequence[str] = (),
    ) -> Recorded:
        """A number to compare with the published one: one value, or one per seed, whose mean is judged.

        Where the claim publishes several cells of a table, ``value`` has one sequence for each, by their names.
        ``notes`` say how the data differ from the published ones; with any, scales on real data do not judge it.
        """
        self._expect(claim, "number")
        if notes and self.scale in ON_REAL_DATA:
            return self.not_run(claim, f"measured on other data than the published ones: {'; '.join(notes)}")
        if isinstance(value, Mapping):
            cells = {name: _numbers(claim, f"value[{name!r}]", of) for name, of in value.items()}
            if seeds is not None:
                _check_lengths(claim, seeds, cells)
            return self._record(claim, "number", {"values": cells, "seeds": _seeds(claim, seeds)})
        values = _numbers(claim, "value", value if _is_sequence(value) else [value])
        if seeds is not None and _is_sequence(value):
            _check_lengths(claim, seeds, {"value": values})
        return self._record(claim, "number", {"values": values, "seeds": _seeds(claim, seeds)})

    def ordering(
        self,
        claim: str,
        *,
        better: Sequence[float],
        worse: Sequence[float],
        seeds: Sequence[int],
        higher_is_better: bool = False,
        floor: float | None = None,
        floor_name: str = "the floor",
        controls: Mapping[str, Sequence[float]] | None = None,
        learned: Mapping[str, Sequence[float]] | None = None,
        notes: Sequence[str] = (),
    ) -> Recorded:
        """Whether ``better``, the side that the claim favours, is ahead of ``worse``, paired by seed; of a
        ``comparable`` claim, whether it is no further behind than the claim's tolerance.

        Lower values are better (loss, perplexity, bits per byte) unless ``higher_is_better``. With a ``floor``, like
        the bits per byte of a bigram model, every value of both sides must beat it, and of ``controls``, the matched
        controls by name. Where the sides are no losses, ``learned`` has those of the rows behind them, and they must
        beat the floor instead. ``notes`` say how the data differ from the published ones; scales on real data do not
        judge an ordering on a sample of them.
        """
        kind = self._expect(claim, "ordering", "comparable")
        samples = [note for note in notes if note.startswith("sample")]
        if samples and self.scale in ON_REAL_DATA:
            return self.not_run(claim, f"measured on a part of the published data: {'; '.join(samples)}")
        sides = {"better": _numbers(claim, "better", better), "worse": _numbers(claim, "worse", worse)}
        _check_lengths(claim, seeds, sides)
        fields: dict[str, Any] = {**sides, "seeds": _seeds(claim, seeds), "higher_is_better": bool(higher_is_better)}
        if floor is not None:
            fields["floor"] = {"name": floor_name, "value": _numbers(claim, "floor", [floor])[0]}
            if isinstance(fields["floor"]["value"], str):
                raise ValueError(f"claim={claim!r}: floor={floor!r}: must be finite")
        if controls:
            fields["controls"] = {name: _numbers(claim, name, values) for name, values in controls.items()}
        if learned:
            fields["learned"] = {name: _numbers(claim, name, values) for name, values in learned.items()}
        return self._record(claim, kind, fields)

    def not_run(self, claim: str, reason: str) -> Recorded:
        """The claim was not measured; ``reason`` says why: no data, no GPU, too large for this scale."""
        self._expect(claim)
        if not reason.strip():
            raise ValueError(f"claim={claim!r}: reason={reason!r}: must say why it was not run")
        return self._record(claim, "not run", {"reason": " ".join(reason.split())})

    def _expect(self, claim: str, *kinds: str) -> str:
        """The kind of a claim of this notebook, which must be one of ``kinds`` (default: any) and not yet recorded."""
        known = self._claims.get(claim)
        if known is None:
            mine = [c.id for c in self._claims.values() if c.notebook == self.notebook]
            raise ValueError(f"claim={claim!r}: no such claim{nearest(claim, mine)}")
        if known.notebook != self.notebook:
            raise ValueError(f"claim={claim!r}: belongs to notebook {known.notebook}, not to {self.notebook}")
        if kinds and known.kind not in kinds:
            raise ValueError(f"claim={claim!r}: is of kind {known.kind!r}, measured as {kinds[0]!r}")
        if claim in self._recorded and not _runs_again(self._recorded[claim], _running_cell()):
            raise ValueError(f"claim={claim!r}: already recorded; a claim is measured once per run of the notebook")
        return known.kind

    def _record(self, claim: str, kind: str, fields: Mapping[str, Any]) -> Recorded:
        measurement = {"claim": claim, "notebook": self.notebook, "scale": self.scale, "kind": kind, **fields}
        known = self._claims[claim]
        recorded = Recorded(known, measurement, judge(known, measurement, self.scale))
        self._recorded[claim] = _running_cell()
        return recorded


def ipython_shell() -> Any:
    """The running IPython shell, or None outside a notebook. Asks IPython only where it is already loaded."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


def _running_cell() -> tuple[int, str] | None:
    """Number and source of the running cell; None outside IPython."""
    shell = ipython_shell()
    history = [] if shell is None else shell.user_ns.get("In", [])
    return (len(history), str(history[-1]).strip()) if history else None


def _runs_again(recorded: tuple[int, str] | None, running: tuple[int, str] | None) -> bool:
    """Whether the recording cell is being run again; otherwise the notebook measures a claim twice."""
    return recorded is not None and running is not None and recorded[0] < running[0] and recorded[1] == running[1]


def _is_sequence(value: Any) -> bool:
    if hasattr(value, "ndim"):  # arrays and tensors; those of no dimension are numbers
        return bool(value.ndim > 0)
    return hasattr(value, "__len__") and not isinstance(value, str | Mapping)


def _numbers(claim: str, name: str, values: Any) -> list[Any]:
    numbers = plain(list(values), name)
    if not numbers:
        raise ValueError(f"claim={claim!r}: {name}=[]: must hold at least one number")
    for number in numbers:
        if isinstance(number, bool) or not (isinstance(number, int | float) or number in ("inf", "-inf")):
            raise ValueError(f"claim={claim!r}: {name}={number!r}: must be a number")
    return numbers


def _seeds(claim: str, seeds: Sequence[int] | None) -> list[int] | None:
    if seeds is None:
        return None
    plain_seeds = plain(list(seeds), "seeds")
    if not all(isinstance(seed, int) and not isinstance(seed, bool) for seed in plain_seeds):
        raise ValueError(f"claim={claim!r}: seeds={plain_seeds!r}: must be integers")
    check_distinct(f"claim={claim!r}: seeds", plain_seeds)
    return plain_seeds


def _check_lengths(claim: str, seeds: Sequence[int], sides: Mapping[str, Sequence[Any]]) -> None:
    for name, values in sides.items():
        if len(values) != len(seeds):
            raise ValueError(f"claim={claim!r}: {name} holds {len(values)} values for {len(seeds)} seeds")
