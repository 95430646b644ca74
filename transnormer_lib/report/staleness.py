"""When is an executed notebook stale? When its digest changes.

The digest covers the notebook's code cells, its resolved parameters, every project module that the code imports,
directly or not, with the YAML files and templates of those modules, the committed results that the notebook shows, and
which optional packages of its study are installed.
It leaves out prose, which is copied into the executed notebook (:func:`refresh_markdown`), and claims, which the
ledger judges again each time.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from transnormer_lib import studies
from transnormer_lib.ledger import claims, kept
from transnormer_lib.project import Project, UserMistake
from transnormer_lib.provenance.imports import closure, imported_modules, path_of, source_digest
from transnormer_lib.report.parameters import source_of
from transnormer_lib.sums import sha256


def code_cells(notebook: dict[str, Any]) -> list[str]:
    """The source of each code cell, as it is."""
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _without_magics(source: str) -> str:
    """The source with IPython's magics as comments, so that it parses as Python."""
    return "\n".join("#" + line if line[:1] in "%!" else line for line in source.splitlines())


def _owned_files(module: str) -> Iterable[Path]:
    """The data of a module: ``tables.py`` owns ``tables.yaml`` and every YAML in a folder ``tables`` beside or below.

    A package owns its templates and the other YAML files in it, except the claims.
    """
    path = path_of(module)
    if path.name != "__init__.py":
        files = path.parent.rglob("*.yaml")
        return [file for file in files if path.stem in (file.stem, *file.relative_to(path.parent).parts[:-1])]
    files = path.parent.glob("*.yaml")
    own = [file for file in files if file.name != claims.FILE and not file.with_suffix(".py").exists()]
    return [*own, *path.parent.glob("templates/*.j2")]


def digest(project: Project, notebook: str, parameters: dict[str, Any]) -> str:
    """Digest of what the notebook's results depend on, except the machine and the installed versions.

    Raises :class:`UserMistake` for a file that is no notebook and a code cell that is not Python.
    """
    cells = code_cells(source_of(project, notebook))
    start: set[str] = set()
    for number, cell in enumerate(cells, start=1):
        try:
            start |= imported_modules(_without_magics(cell))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            # A lone surrogate and thousands of brackets are in no line, nor is a null byte.
            line, why = getattr(error, "lineno", None), getattr(error, "msg", str(error))
            where = f"code cell {number}" + (f", line {line}" if line else "")
            raise UserMistake(f"{notebook}: {where}: {' '.join(why.split())}") from None
    modules = set(closure(start))
    data: dict[str, Any] = {  # by path: papers have tables of the same name
        f"{module}/{file.relative_to(path_of(module).parent).as_posix()}": sha256(file)
        for module in modules
        for file in _owned_files(module)
    }
    # Committed results that the notebook shows: those of larger scales, and the files that its study reads.
    if kept.__name__ in modules and "scale" in parameters:
        data |= {f"kept/{found.preset}": vars(found) for found in kept.larger(parameters["scale"], notebook, project)}
    data |= {f"package {name}": found for name, found in studies.optional(notebook).items()}
    for pattern in studies.reads(notebook):
        data |= {file.relative_to(project.root).as_posix(): sha256(file) for file in project.root.glob(pattern)}
    content = {"cells": cells, "parameters": parameters, "modules": source_digest(start), "data": data}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _tags(cell: dict[str, Any]) -> list[str]:
    return cell.get("metadata", {}).get("tags", [])


def refresh_markdown(source: dict[str, Any], executed: dict[str, Any]) -> bool:
    """Copy the prose of ``source`` into ``executed``; True if anything changed.

    Code cells keep their outputs. If the code differs nothing happens: the notebook must run again.
    """
    injected: list[dict[str, Any]] = []
    own: list[dict[str, Any]] = []
    for cell in executed["cells"]:
        (injected if "injected-parameters" in _tags(cell) else own).append(cell)
    if code_cells(source) != code_cells({"cells": own}):
        return False
    ran = iter([cell for cell in own if cell["cell_type"] == "code"])
    cells: list[dict[str, Any]] = []
    for cell in source["cells"]:
        cells.append(next(ran) if cell["cell_type"] == "code" else cell)
        if "parameters" in _tags(cell):
            cells += injected

    def text(cells: list[dict[str, Any]]) -> list[tuple[str, str]]:
        return [(cell["cell_type"], "".join(cell["source"])) for cell in cells]

    if text(cells) == text(executed["cells"]):
        return False
    executed["cells"] = cells
    return True
