"""The examples in docstrings work, and the public names have a docstring that the API reference can show."""

import doctest
import importlib
import inspect
from pathlib import Path

import pytest

import transnormer_lib

PUBLIC = ("transnormer_lib.attention", "transnormer_lib.models", "transnormer_lib.training", "transnormer_kernels")
WITH_EXAMPLES = (
    "transnormer_lib.attention.registry",
    "transnormer_lib.models.generation",
    "transnormer_lib.progress",
)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_of_a_module_work(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted > 0
    assert found.failed == 0


def test_no_module_has_examples_that_are_not_tried() -> None:
    root = Path(transnormer_lib.__path__[0])
    found = {path for path in root.rglob("*.py") if "    >>> " in path.read_text()}
    assert {".".join(path.relative_to(root.parent).with_suffix("").parts) for path in found} == set(WITH_EXAMPLES)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_of_a_package_has_a_docstring(name: str) -> None:
    package = importlib.import_module(name)
    own = {
        called: value
        for called, value in vars(package).items()
        if not called.startswith("_") and (inspect.isfunction(value) or inspect.isclass(value))
    }
    ours = {called: value for called, value in own.items() if value.__module__.startswith("transnormer")}
    assert [called for called, value in ours.items() if not inspect.getdoc(value)] == []
