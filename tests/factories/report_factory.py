"""A small report as the guard leaves it: executed notebooks and records, made without running a kernel."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import nbformat
from project_factory import make_project

from transnormer_lib import sums
from transnormer_lib.files import read_object
from transnormer_lib.ledger.claims import Claim
from transnormer_lib.ledger.measurements import Measurements
from transnormer_lib.ledger.seals import displayed
from transnormer_lib.project import Project
from transnormer_lib.report.pipeline import plan
from transnormer_lib.show.claims import bundle

THEORY, TABLE, ABSENT = "01_theory", "02_table", "03_absent"
HOSTILE = "<script>alert('x')</script><img src=http://evil.example/x.png>"
INTRO = (
    "The first paragraph of {name}, with $\\phi(x) \\leq 1$.\n\n## Section *one*\n\nText and $$a = \\frac{{b}}{{c}}$$"
)


def claim(name: str, kind: str, notebook: str, **fields: Any) -> Claim:
    values: dict[str, Any] = {
        "id": name,
        "paper": "transnormer",
        "locus": "Equation 9",
        "statement": "For $n$ keys the bound $1/4$ holds.",
        "kind": kind,
        "published": 4.98 if kind == "number" else None,
        "tolerance": 0.05 if kind == "number" else None,
        "decided_at": "quick",
        "notebook": notebook,
    }
    return Claim(**{**values, **fields})


CLAIMS = (
    claim("bound-holds", "theorem", THEORY, published="1/4"),
    claim("bound-breaks", "theorem", THEORY, locus="Equation 59", statement=f"Breaks {HOSTILE}"),
    claim("structure", "property", THEORY, locus="Equation 10"),
    claim("unmeasured", "theorem", THEORY),
    claim("perplexity", "number", TABLE, locus="Table 1", decided_at="paper"),
    claim("ahead", "ordering", TABLE, locus="Table 4"),
    claim("speed", "ordering", TABLE, locus="Table 7", timing=True),
    claim("elsewhere", "number", ABSENT, paper="gau", locus="Table 5"),
)

Record = Callable[[Measurements], Any]
MEASURED: dict[str, list[Record]] = {
    THEORY: [
        lambda m: m.theorem("bound-holds", holds=True, margin=0.1, searched=5000, tightest={"n": 2}),
        lambda m: m.theorem("bound-breaks", holds=False, margin=-0.5, searched=9, counter_example={"q": [1.5]}),
        lambda m: m.property("structure", value=[1, 2], expected=[1, 2]),
    ],
    TABLE: [
        lambda m: m.number("perplexity", value=[5.1, 5.3], seeds=[0, 1]),
        lambda m: m.ordering("ahead", better=[3, 3.1, 3, 3.2, 3], worse=[4, 4, 4.1, 4.2, 4], seeds=range(5), floor=4.5),
        lambda m: m.not_run("speed", "needs a GPU"),
    ],
}


def executed_notebook(name: str, records: Sequence[Record], extra: Sequence[Any] = ()) -> nbformat.NotebookNode:
    """The notebook ``name`` with one code cell per measurement, and ``extra`` outputs in a last cell."""
    notebook = source_notebook(name, len(records))
    measurements = Measurements(name, "quick", CLAIMS)
    codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, cell in enumerate(codes, start=1):
        cell.execution_count = number
    for cell, record in zip(codes[1:], records, strict=True):
        data = bundle([record(measurements)])
        cell.outputs.append(nbformat.v4.new_output("display_data", data=data))
    if extra:
        last = nbformat.v4.new_code_cell("show()", execution_count=len(codes) + 1, outputs=list(extra), id="extra")
        notebook.cells.append(last)
    return notebook


def source_notebook(name: str, measurements: int) -> nbformat.NotebookNode:
    cells = [
        nbformat.v4.new_markdown_cell(f"# Title of {name}: $\\phi$\n\n{INTRO.format(name=name)}", id="title"),
        nbformat.v4.new_code_cell('scale: str = "quick"', id="parameters", metadata={"tags": ["parameters"]}),
        nbformat.v4.new_markdown_cell("## Section *one*\n\n### A part with $x_i$\n\nMore.", id="more"),
    ]
    cells += [nbformat.v4.new_code_cell(f"claims.record({i})", id=f"measure-{i}") for i in range(measurements)]
    return nbformat.v4.new_notebook(cells=cells, metadata={"language_info": {"name": "python"}})


def record_json(name: str, status: str = "ok", error: str | None = None) -> dict[str, Any]:
    return {
        "notebook": name,
        "status": status,
        "error": error,
        "preset": "quick",
        "parameters": {"scale": "quick", "steps": 300, "seeds": [0, 1]},
        "digest": "0123456789abcdef",
        "provenance": {
            "commit": "1234567890abcdef1234",
            "dirty": True,
            "versions": {"python": "3.11.2", "torch": "2.13.0"},
            "device": "A processor, 2 cores",
            "seeds": [0, 1],
            "data": {"wikipedia": "sha256:00ff"},
            "started": "2026-01-02T03:04:05+00:00",
            "wall_seconds": 12.5,
            "peak_memory_bytes": 512_000_000,
            "command": f"make report PRESET=quick ONLY={name[:2]}",
        },
    }


def write_record(report_dir: Path, name: str, status: str = "ok", error: str | None = None, **changes: Any) -> None:
    """The record of the executed notebook that is there, as the guard seals it."""
    path = report_dir / "records" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    executed = read_object((report_dir if status == "ok" else report_dir / "failed") / f"{name}.ipynb")
    own = {"displayed": displayed(executed) if executed else None}
    project = Project(report_dir.parents[1])
    if project.notebook_path(name).exists():
        own["digest"] = plan(project, report_dir.name, [name])[0].digest
    fields = record_json(name, status, error) | own | changes
    path.write_text(json.dumps(sums.sealed(fields)))


def write_kept(root: Path, name: str, content: Mapping[str, Any] | str, preset: str = "night") -> Path:
    """A kept file, and its digest as ``transnormer claims --keep`` enters it."""
    path = root / "reports" / "kept" / preset / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    sums.enter(path)
    return path


def make_report(root: Path, extra: Sequence[Any] = ()) -> Path:
    """A project with two notebooks that ran at ``quick`` and one that did not; returns ``reports/quick``."""
    make_project(root, {})
    report_dir = root / "reports" / "quick"
    report_dir.mkdir(parents=True)
    (root / "notebooks").mkdir()
    for name, records in MEASURED.items():
        nbformat.write(source_notebook(name, len(records)), root / "notebooks" / f"{name}.ipynb")
        nbformat.write(executed_notebook(name, records, extra), report_dir / f"{name}.ipynb")
        write_record(report_dir, name)
    nbformat.write(source_notebook(ABSENT, 1), root / "notebooks" / f"{ABSENT}.ipynb")
    return report_dir


def fail(report_dir: Path, name: str, line: str, measured: int = 1, status: str = "failed") -> None:
    """Let the last run of ``name`` fail after ``measured`` measurements, as the guard leaves it."""
    (report_dir / "failed").mkdir(exist_ok=True)
    traceback = nbformat.v4.new_output(
        "error", ename="ValueError", evalue=line, traceback=[f"\x1b[31mValueError\x1b[0m: {line} {HOSTILE}"]
    )
    partial = executed_notebook(name, MEASURED[name][:measured], [traceback])
    nbformat.write(partial, report_dir / "failed" / f"{name}.ipynb")
    write_record(report_dir, name, status, line)
