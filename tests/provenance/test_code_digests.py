"""A digest changes with the code that something depends on, and with nothing else."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from transnormer_lib.provenance import imports

MODULES = {
    "__init__": "",
    "base": "def double(x):\n    return 2 * x\n",
    "user": "from tiny.base import double\n",
    "lazy": "def f():\n    import tiny.user\n",
    "other": "VALUE = 1\n",
    "sub/__init__": "from tiny import other\n",
    "sub/leaf": "X = 1\n",
    "sub/data": "Y = 1\n",
}


@pytest.fixture
def edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """A package ``tiny`` in place of the project's; returns a function that rewrites one of its modules."""

    def write(module: str, source: str) -> None:
        path = tmp_path / "tiny" / f"{module}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
        imports._graph.cache_clear()

    for module, source in MODULES.items():
        write(module, source)
    (tmp_path / "tiny/sub/data").mkdir()  # a folder of data with the name of a module
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(imports, "PACKAGES", ("tiny",))
    yield write
    imports._graph.cache_clear()


@pytest.mark.parametrize(
    ("start", "reached"),
    [
        ("tiny.base", {"tiny", "tiny.base"}),
        ("tiny.user", {"tiny", "tiny.base", "tiny.user"}),
        ("tiny.lazy", {"tiny", "tiny.base", "tiny.user", "tiny.lazy"}),
        ("tiny.sub.leaf", {"tiny", "tiny.sub", "tiny.sub.leaf", "tiny.other"}),
    ],
    ids=["itself", "import", "import-inside-a-function", "package-around-it"],
)
def test_the_closure_contains_all_modules_that_an_import_runs(start: str, reached: set[str], edit: object) -> None:
    assert set(imports.closure([start])) == reached


def test_an_unknown_module_is_refused_by_name(edit: object) -> None:
    with pytest.raises(ValueError, match=r"module='tiny\.none': not a module of tiny"):
        imports.closure(["tiny.none"])


def test_an_edit_changes_the_digest_of_what_imports_it_and_of_nothing_else(
    edit: Callable[[str, str], None],
) -> None:
    def digest(module: str) -> str:
        return imports.source_digest([module])

    before = {name: digest(name) for name in ("tiny.base", "tiny.user", "tiny.lazy", "tiny.other", "tiny.sub.leaf")}
    edit("base", "def double(x):\n    return x + x\n")
    changed = {name for name, value in before.items() if digest(name) != value}
    assert changed == {"tiny.base", "tiny.user", "tiny.lazy"}


def test_a_module_wins_over_a_data_folder_of_its_name(edit: object, tmp_path: Path) -> None:
    assert imports.path_of("tiny.sub.data") == tmp_path / "tiny/sub/data.py"


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("import tiny.base as b", {"tiny.base"}),
        ("from tiny import base, other", {"tiny", "tiny.base", "tiny.other"}),
        ("from tiny.base import double", {"tiny.base"}),
        ("def f():\n    from tiny.sub import leaf", {"tiny.sub", "tiny.sub.leaf"}),
        ("import numpy, tinyish", set()),
    ],
)
def test_imports_are_found_in_every_form(source: str, named: set[str], edit: object) -> None:
    assert imports.imported_modules(source) == named


def test_the_imports_of_training_are_found() -> None:
    found = imports.closure(["transnormer_lib.training.trainer"])
    assert "transnormer_lib.attention.norm" in found
    assert not [m for m in found if m.startswith(("transnormer_lib.report", "transnormer_lib.paper"))]
