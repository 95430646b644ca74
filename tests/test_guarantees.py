"""docs/guarantees.md promises nothing without a test: each promise names tests, and they exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
PROMISES = re.findall(r"(?ms)^- (.+?)(?=^- |^#|\n\n|\Z)", TEXT)
LINK = re.compile(r"\[[^\]]+\]\(\.\./(tests/[\w/]+\.py)#(\w+)\)")


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: re.sub(r"\W+", "-", promise)[:60])
def test_each_promise_names_its_tests_and_they_exist(promise: str) -> None:
    links = LINK.findall(promise)
    assert links, "a promise without a test"
    for file, name in links:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, f"{file}: {name}"


def test_the_page_has_promises() -> None:
    assert len(PROMISES) > 20
