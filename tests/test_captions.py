"""The caption of a table with results ends with a finding that is computed: which row is best, or a sentence."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
SOURCES = [
    *sorted(CHECKOUT.glob("notebooks/*.ipynb")),
    *sorted(CHECKOUT.glob("transnormer_lib/studies/**/*.py")),
]
# What makes a sentence of numbers: of studies/common/findings.py, of the registers, and of single studies.
FINDINGS = {
    "beaten",
    "confirmed",
    "counted",
    "differing",
    "ends",
    "extremes",
    "farthest",
    "in_words",
    "leads_in_words",
    "over_base",
    "overtaking",
    "quicker",
    "ranks_in_words",
    "same_best",
}
# Tables that show no result, by how their captions begin, and what they show.
EXEMPT = {
    "The plan": "plan",
    "The mechanisms: cost, forms, and the parameters": "settings",
    "Where each mechanism is defined": "settings",
    "The compared models": "settings",
    "What a relative standard deviation of gradients can mean": "settings",
    "Repairs to the pseudocode of Appendix F": "settings",
    "TransNormer's published decoder and encoder": "settings",
    "The tasks of this run": "settings",
    "How each task is trained": "settings",
    "One configuration: what each row is made of": "settings",
    "How each row's learning rate was chosen": "settings",
    "Kept from the preset {found.preset}": "settings",
    "Kept verdicts on the orderings": "counted",  # how many there are of each, joined without a sentence of its own
    "Loss in {unit} by width": "figure",  # the figure beside it says how the leads change with the width
    "Text ": "sample",
    "How the places of one batch are drawn": "sample",
    "Passage ": "sample",
    "The first validation examples of each task": "sample",
    "The same tree step by step": "sample",
    "What the best run (": "sample",
    "Three sequences of held-out reviews": "sample",
    "Held-out passages with one word masked": "sample",
}


def trees(path: Path) -> Iterator[ast.Module]:
    """A module, or every cell of a notebook."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield ast.parse(text)
        return
    for cell in json.loads(text)["cells"]:
        if cell["cell_type"] == "code":
            yield ast.parse("".join(cell["source"]))


def tables(path: Path) -> Iterator[tuple[str, bool]]:
    """How the caption of every table begins, and whether it ends with a finding."""
    for tree in trees(path):
        values: dict[str, list[ast.expr]] = {}  # what the cell gives each name
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign | ast.AugAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for name in (name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)):
                    values.setdefault(name.id, []).append(node.value)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _name(node.func) == "show_table":
                given = {keyword.arg: keyword.value for keyword in node.keywords}
                caption = given["caption"]
                parts = values.get(caption.id, [caption]) if isinstance(caption, ast.Name) else [caption]
                parts += [value for part in parts for name in _names(part) for value in values.get(name, [])]
                yield _beginning(parts[0]), bool(given.keys() & {"lowest", "highest"}) or any(map(_computed, parts))


def _computed(part: ast.expr) -> bool:
    """Whether it calls what makes a finding, or writes the result of a calculation."""
    written = [node.value for node in ast.walk(part) if isinstance(node, ast.FormattedValue)]
    if any(isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div) for value in written):
        return True
    return any(isinstance(node, ast.Call) and _name(node.func) in FINDINGS for node in ast.walk(part))


def _names(part: ast.expr) -> list[str]:
    """The names that the text of a caption writes as they are."""
    written = [node.value for node in ast.walk(part) if isinstance(node, ast.FormattedValue)]
    return [value.id for value in written if isinstance(value, ast.Name)]


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _beginning(part: Any) -> str:
    text = ast.unparse(part)
    return re.sub(r"^[(f]*['\"]", "", text)[:80]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_a_table_with_results_says_what_it_shows(path: Path) -> None:
    silent = [begins for begins, finding in tables(path) if not finding and not begins.startswith(tuple(EXEMPT))]
    assert silent == []


def test_every_exemption_is_of_a_table_that_says_nothing() -> None:
    silent = [begins for path in SOURCES for begins, finding in tables(path) if not finding]
    assert [begins for begins in EXEMPT if not any(one.startswith(begins) for one in silent)] == []


@pytest.mark.parametrize(
    ("caption", "finding"),
    [
        ("'Losses of all rows.'", False),
        ("f'Losses at width {shown(dim)}, rounded: {round(mean(x), 2)}; {joined(rows)}.'", False),
        ("f'Losses of {\", \".join(x.items())}.'", False),
        ("'Losses. ' + findings.ends(losses, what='Loss')", True),
        ("f'Keys take {longest / head:,.0f} times fewer.'", True),
    ],
)
def test_a_caption_without_a_sentence_of_numbers_is_seen(caption: str, finding: bool, tmp_path: Path) -> None:
    path = tmp_path / "some.py"
    path.write_text(f"show_table(lines, caption={caption})\n")
    assert [found for _, found in tables(path)] == [finding]
