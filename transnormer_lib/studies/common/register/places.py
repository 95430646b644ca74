"""Find a place in the library by its name: ``models/config.py:ModelConfig.rotary`` gives file, line and source.

Files are parsed, not imported, so that fields of dataclasses have a line too.
"""

import ast
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_LIBRARY = Path(__file__).resolve().parents[3]
_SHOWN = 12  # lines of a definition
_AROUND = 2  # lines before and after a line that is named by its text


@dataclass(frozen=True)
class Place:
    """A file in ``transnormer_lib``, a line of it, and the lines to show, from ``first``."""

    file: str
    line: int
    first: int
    source: tuple[str, ...]

    def __str__(self) -> str:
        return f"transnormer_lib/{self.file}:{self.line}"


def find(name: str, library: Path = _LIBRARY) -> Place:
    """The place called ``name``: ``FILE:QUALIFIED.NAME`` or ``FILE:QUALIFIED.NAME | TEXT``.

    Raises ValueError if the file, the name or the text does not exist.
    """
    where, _, text = name.partition(" | ")
    file, _, qualified = where.partition(":")
    path = library / file
    if not path.is_file():
        raise ValueError(f"place={name!r}: there is no file {file}")
    lines, tree = _parsed(path)
    node: ast.AST = tree
    for part in qualified.split("."):
        node = _member(node, part, name)
    assert isinstance(node, ast.stmt)
    start, end = node.lineno, node.end_lineno or node.lineno
    if not text:
        return Place(file, start, start, lines[start - 1 : min(end, start + _SHOWN - 1)])
    line = next((number for number in range(start, end + 1) if text in lines[number - 1]), None)
    if line is None:
        raise ValueError(f"place={name!r}: {qualified} has no line with this text")
    first = max(line - _AROUND, start)
    return Place(file, line, first, lines[first - 1 : min(line + _AROUND, end)])


@lru_cache
def _parsed(path: Path) -> tuple[tuple[str, ...], ast.Module]:
    source = path.read_text(encoding="utf-8")
    return tuple(source.splitlines()), ast.parse(source)


def _member(node: ast.AST, part: str, name: str) -> ast.stmt:
    # The last definition of a name: earlier ones are its overloads.
    for child in reversed(getattr(node, "body", ())):
        targets = child.targets if isinstance(child, ast.Assign) else [getattr(child, "target", None)]
        named = [target.id for target in targets if isinstance(target, ast.Name)]
        if isinstance(child, ast.ClassDef | ast.FunctionDef):
            named = [child.name]
        if part in named:
            assert isinstance(child, ast.stmt)
            return child
    raise ValueError(f"place={name!r}: there is no {part}")
