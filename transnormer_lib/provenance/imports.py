"""The modules of this project that a module depends on, and digests of their code.

grimp builds the import graph from the sources, without importing them, and includes imports inside functions. A module
also depends on the packages that contain it, because importing it runs their ``__init__``.
"""

import ast
import hashlib
from collections.abc import Iterable
from functools import lru_cache
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import Any

PACKAGES = ("transnormer_lib", "transnormer_kernels")


@lru_cache
def _graph() -> Any:
    import grimp

    return grimp.build_graph(*PACKAGES, cache_dir=None)


def closure(start: Iterable[str]) -> list[str]:
    """``start``, all modules that it imports directly or indirectly, and the packages that contain these; sorted.

    Raises ValueError for an unknown module.
    """
    graph = _graph()
    found: set[str] = set()
    todo = list(start)
    while todo:
        module = todo.pop()
        if module in found:
            continue
        if module not in graph.modules:
            raise ValueError(f"module={module!r}: not a module of {' or '.join(PACKAGES)}")
        found.add(module)
        packages = accumulate(module.split("."), "{}.{}".format)
        todo += [*graph.find_modules_directly_imported_by(module), *packages]
    return sorted(found)


def imported_modules(source: str) -> set[str]:
    """The project's modules that Python source names in its import statements."""
    named = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            # In `from package import name`, name may be a module or an attribute of the package.
            named |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return named & _graph().modules


def path_of(module: str) -> Path:
    """The module's source file, found without importing the packages above it."""
    top, *rest = module.split(".")
    spec = find_spec(top)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"module={module!r}: {top} is not installed")
    path = Path(spec.submodule_search_locations[0], *rest)
    # A module wins over a folder of data with the same name.
    inside = path / "__init__.py"
    return inside if inside.exists() else path.with_suffix(".py")


def source_digest(start: Iterable[str]) -> str:
    """Digest of the exact sources of ``closure(start)``."""
    return _digest((module, path_of(module).read_bytes()) for module in closure(start))


def _digest(parts: Iterable[tuple[str, bytes]]) -> str:
    digest = hashlib.sha256()
    for name, content in parts:
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:16]
