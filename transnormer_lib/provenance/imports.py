"""What a piece of code depends on inside this project, and digests over it.

The import graph is grimp's: it reads the sources, imports nothing, and sees imports inside functions too. A
module also depends on the packages it lies in, since importing it runs their ``__init__``.
"""

import ast
import hashlib
from collections.abc import Iterable
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PACKAGES = ("transnormer_lib", "transnormer_kernels")


@lru_cache
def _graph() -> Any:
    import grimp

    return grimp.build_graph(*PACKAGES, cache_dir=None)


def modules() -> frozenset[str]:
    """Every module and package of the project."""
    return frozenset(_graph().modules)


def _ancestors(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def closure(start: Iterable[str], without: Iterable[str] = ()) -> list[str]:
    """``start``, all that it imports directly or indirectly, and the packages around both; sorted.

    ``without`` names modules that are left out, with what is reached through them alone.
    """
    graph, without = _graph(), frozenset(without)
    found, todo = set(), list(start)
    while todo:
        module = todo.pop()
        if module in found or module in without:
            continue
        if module not in graph.modules:
            raise ValueError(f"module={module!r}: not a module of {' or '.join(PACKAGES)}")
        found.add(module)
        todo += [*graph.find_modules_directly_imported_by(module), *_ancestors(module)]
    return sorted(found)


def imported_modules(source: str) -> set[str]:
    """The project's modules that a piece of Python source names in its import statements."""
    known, named = modules(), set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            # `from package import name`: name may be a module or something inside the package.
            named |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return named & known


def path_of(module: str) -> Path:
    """The module's source file, found without importing the packages above it."""
    top, *rest = module.split(".")
    spec = find_spec(top)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"module={module!r}: {top} is not installed")
    path = Path(spec.submodule_search_locations[0], *rest)
    # A module may share its name with a folder of data, and then wins over it.
    inside = path / "__init__.py"
    return inside if inside.exists() else path.with_suffix(".py")


def source_digest(start: Iterable[str]) -> str:
    """Digest of the sources, to the letter, of everything in ``closure(start)``."""
    return _digest((module, path_of(module).read_bytes()) for module in closure(start))


def code_digest(*start: str, without: Iterable[str] = ()) -> str:
    """Like :func:`source_digest`, but blind to comments, docstrings and layout.

    For what is expensive to make again: a clarified sentence must not discard hours of training. ``without`` as in
    :func:`closure`.
    """
    return _digest((module, _bare(path_of(module).read_text()).encode()) for module in closure(start, without))


def _bare(source: str) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def _digest(parts: Iterable[tuple[str, bytes]]) -> str:
    digest = hashlib.sha256()
    for name, content in parts:
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:16]
