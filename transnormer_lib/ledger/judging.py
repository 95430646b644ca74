"""The ledger: every claim judged on what the executed notebooks of one preset measured.

Reads ``reports/<preset>/NN_name.ipynb`` and ``records/NN_name.json``, which says how the last run ended, and writes
``claims.json``: one object per claim, in the order of the claims' files. Only the last run of a notebook counts; if it
failed, the measurements before the failure count (its partial copy is in ``failed/``). Every other claim is
``not run``, with the reason. Where this scale may not decide a claim, did not measure it, or left it unresolved, as
times are that were measured in haste, evidence that is kept of a larger one (``ledger.kept``) stands instead: its
``source`` is ``kept`` and its ``scale`` the larger one.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from transnormer_lib import sums
from transnormer_lib.files import parse_json, read_object, write_text
from transnormer_lib.ledger import seals
from transnormer_lib.ledger.claims import Claim, by_id
from transnormer_lib.ledger.families import settle
from transnormer_lib.ledger.kept import Kept, judged_otherwise
from transnormer_lib.ledger.measurements import MIME
from transnormer_lib.ledger.verdicts import VERDICTS, Judgement, at_least, judge, marked
from transnormer_lib.project import UserMistake

_JUDGED = {"id", "notebook", "locus", "verdict", "scale", "measured", "reason", "seeds", "source", "anchor"}
NEVER_RUN = "the notebook has not been run at this preset"


class LedgerError(ValueError):
    """The measurements of an executed notebook cannot be judged; the message says why."""


@dataclass(frozen=True)
class Run:
    """The last run of one notebook, according to its record."""

    notebook: str
    status: str  # ok, failed, interrupted, no data, not run
    error: str | None  # one line unless ok
    executed: Path | None  # the executed notebook, or the part before the failure
    record: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Ledger:
    """The claims as in claims.json, how each was judged, and which notebooks could not be judged."""

    claims: list[dict[str, Any]]
    judgements: dict[str, Judgement]  # by claim: on what this scale measured
    best: dict[str, Judgement]  # by claim: the same, or on what was kept of a larger scale
    problems: dict[str, str]  # by notebook


def last_run(report_dir: Path, notebook: str) -> Run:
    """The last run of ``notebook`` in ``report_dir``; failed where its record or its notebook is not what it left."""
    path = report_dir / "records" / f"{notebook}.json"
    if not path.exists():
        return Run(notebook, "not run", NEVER_RUN, None)
    record = read_object(path)
    if record is None or not {"status", "error", "provenance", "preset", "notebook"} <= record.keys():
        return Run(notebook, "failed", "its record cannot be read", None)
    if not sums.is_whole(record):
        return Run(notebook, "failed", "its record is not what its run left; run the notebook again", None)
    if (record["preset"], record["notebook"]) != (report_dir.name, notebook):
        of = f"{record['notebook']} at preset {record['preset']!r}"
        return Run(notebook, "failed", f"its record is that of {of}", None)
    status, error = record["status"], record["error"]
    path = (report_dir if status == "ok" else report_dir / "failed") / f"{notebook}.ipynb"
    executed, problem = read_notebook(path), None
    if executed is None:
        problem = f"its executed notebook is {'damaged' if path.exists() else 'missing'}"
    elif seals.displayed(executed) != record.get("displayed"):
        problem = "its executed notebook is not what its run left; run the notebook again"
    if problem is None:
        return Run(notebook, status, error, path, record)
    if status == "ok":
        status, error = "failed", problem
    return Run(notebook, status, error, None, record)


def read_notebook(path: Path) -> dict[str, Any] | None:
    """The JSON of a notebook, executed or not; None if the file is missing or is no notebook."""
    found = read_object(path) or {}
    cells = found.get("cells")
    return found if isinstance(cells, list) and all(map(_is_cell, cells)) else None


def _is_cell(cell: Any) -> bool:
    """Whether a cell has what is read of it: a type, a text in lines or whole, and a list of tags if any."""
    if not isinstance(cell, dict) or not {"cell_type", "source"} <= cell.keys():
        return False
    text, metadata = cell["source"], cell.get("metadata", {})
    lines = all(isinstance(line, str) for line in (text if isinstance(text, list) else [text]))
    return lines and isinstance(metadata, dict) and isinstance(metadata.get("tags", []), list)


def measurements(executed: Path) -> list[dict[str, Any]]:
    """The measurements in an executed notebook, in order. Raises LedgerError if it cannot be read."""
    notebook = read_notebook(executed)
    if notebook is None:
        raise LedgerError(f"{executed.name} is not a notebook")
    outputs = [output.get("data", {}) for cell in notebook["cells"] for output in cell.get("outputs", ())]
    lists = [data[MIME] for data in outputs if MIME in data]
    if not all(isinstance(found, list) for found in lists):
        raise LedgerError(f"{executed.name}: an output's measurements are not a list; run the notebook again")
    return [measurement for found in lists for measurement in found]


def judge_claims(
    report_dir: Path, scale: str, claims: Sequence[Claim], notebooks: Sequence[str], above: Sequence[Kept] = ()
) -> Ledger:
    """Judge ``claims`` on the last runs in ``report_dir``; ``notebooks`` are those that have a page, ``above`` is what
    was kept of larger scales, smallest first.

    A notebook whose measurements cannot be judged (unknown claim, measured twice, another scale) is named in
    ``problems`` and its claims are ``not run``; the others are judged all the same.
    """
    judged: dict[str, Judgement] = {}
    problems: dict[str, str] = {}
    known = by_id(claims)
    runs: dict[str, Run] = {}
    for notebook in sorted({*notebooks, *(claim.notebook for claim in claims)}):
        runs[notebook] = run = last_run(report_dir, notebook)
        if run.executed is None:
            continue
        try:
            judged |= _judge_notebook(notebook, scale, known, measurements(run.executed))
        except LedgerError as problem:
            problems[notebook] = str(problem)
    for claim in claims:
        if claim.id not in judged:
            reason = _why_not_run(runs[claim.notebook], problems.get(claim.notebook))
            judged[claim.id] = Judgement("not run", reason=reason)
    settled = settle(claims, judged)
    judged = {claim.id: marked(claim, settled[claim.id]) for claim in claims}
    larger = {entry["id"]: entry for kept in above for entry in kept.claims if entry["verdict"] != "not run"}
    best, entries = dict(judged), []
    for claim in claims:
        found, source = scale, "run"
        decided = at_least(scale, claim.decided_at) and judged[claim.id].verdict not in ("not run", "unresolved")
        if claim.id in larger and not decided:
            entry = larger[claim.id]
            if otherwise := judged_otherwise(claim, entry):
                reason = f"what was kept at {entry['scale']} does not count: {otherwise}"
                best[claim.id] = marked(claim, replace(judged[claim.id], reason=reason))
            else:
                best[claim.id], found, source = marked(claim, _kept(entry)), entry["scale"], "kept"
        page = claim.notebook if claim.notebook in notebooks else "ledger"
        entries.append(_entry(claim, best[claim.id], found, source, page))
    return Ledger(entries, judged, best, problems)


def _kept(entry: Mapping[str, Any]) -> Judgement:
    measured, seeds = entry["measured"], entry["seeds"]
    interval = measured.get("interval") if isinstance(measured, Mapping) else None
    return Judgement(
        entry["verdict"],
        measured,
        None if seeds is None else tuple(seeds),
        entry.get("reason"),
        None if interval is None else (interval[0], interval[1]),
    )


def _judge_notebook(
    notebook: str, scale: str, claims: Mapping[str, Claim], found: Iterable[Mapping[str, Any]]
) -> dict[str, Judgement]:
    judged: dict[str, Judgement] = {}
    for measurement in found:
        name = measurement.get("claim")
        claim = claims.get(str(name))
        if claim is None:
            raise LedgerError(f"it measured {name!r}, which is no claim; claims are in studies/<study>/claims.yaml")
        if claim.notebook != notebook:
            raise LedgerError(f"it measured claim {name!r}, which belongs to {claim.notebook}")
        if claim.id in judged:
            raise LedgerError(f"it measured claim {name!r} twice")
        if measurement.get("scale") != scale:
            raise LedgerError(f"it measured claim {name!r} at {measurement.get('scale')!r}, this report is {scale!r}")
        try:
            judged[claim.id] = judge(claim, measurement, scale)
        except (ValueError, KeyError, TypeError) as fault:
            raise LedgerError(f"its measurement of {name!r} cannot be judged: {fault!r}") from None
    return judged


def _why_not_run(run: Run, problem: str | None) -> str:
    if problem:
        return f"the notebook's measurements cannot be judged: {problem}"
    if run.status == "ok":
        return "the notebook ran and did not measure it"
    if run.status in ("not run", "no data"):
        return str(run.error)
    return f"notebook {run.status}: {run.error}"


def _entry(claim: Claim, judgement: Judgement, scale: str, source: str, page: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "id": claim.id,
        "paper": claim.paper,
        "locus": claim.locus,
        "statement": claim.statement,
        "kind": claim.kind,
        "published": claim.published,
        "measured": judgement.measured,
        "tolerance": claim.tolerance,
        "decided_at": claim.decided_at,
        "scale": scale,
        "verdict": judgement.verdict,
        "reason": judgement.reason,
        "seeds": None if judgement.seeds is None else list(judgement.seeds),
        "notebook": claim.notebook,
        "anchor": f"{page}.html#claim-{claim.id}",
        "source": source,
    }
    if claim.timing:
        entry["timing"] = True
    return entry


def counts(claims: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many claims have each verdict, in the report's order, zeros included."""
    found = Counter(claim["verdict"] for claim in claims)
    return {verdict: found[verdict] for verdict in VERDICTS}


def read_judged(path: Path) -> list[dict[str, Any]]:
    """The entries of a claims.json, edited or not. Raises :class:`UserMistake` for a file that is none."""
    try:
        entries = parse_json(path.read_text(encoding="utf-8"))
        if not isinstance(entries, list) or not all(
            isinstance(entry, dict) and entry.keys() >= _JUDGED and entry["verdict"] in VERDICTS for entry in entries
        ):
            raise ValueError("must be a list of judged claims")
    except (ValueError, RecursionError, OSError) as fault:
        reason = " ".join(str(fault).split())
        raise UserMistake(f"{path.parent.name}/{path.name}: {reason}; make the report again") from None
    return entries


def write_json_list(path: Path, entries: Sequence[Mapping[str, Any]]) -> None:
    """Write claims.json or theses.json, a line an entry, with its digest, unless it is unchanged."""
    lines = [json.dumps(entry, ensure_ascii=False, allow_nan=False) for entry in entries]
    sums.write(path, "[\n" + ",\n".join(lines) + "\n]\n" if lines else "[]\n")


def read_json_list(path: Path) -> list[dict[str, Any]]:
    """The claims that :func:`write_json_list` wrote. Raises UserMistake for a file that is missing, edited or none."""
    if not path.exists():
        raise UserMistake(f"preset={path.parent.name!r}: has no report yet; run: make report PRESET={path.parent.name}")
    if damage := sums.damage(path):
        where = f"reports/{path.parent.name}"
        raise UserMistake(f"{where}: {damage}; write it again: transnormer report --preset {path.parent.name}")
    return read_judged(path)


def write_if_changed(path: Path, text: str) -> bool:
    """Write ``text`` atomically unless the file holds it already; returns whether it was written."""
    if path.exists() and path.read_bytes() == text.encode():
        return False
    write_text(path, text)
    return True
