"""What the totals of ``make chaos`` count: each kind by its full name, and a death only where a process was ended."""

import re
from pathlib import Path

import pytest
from chaos_trials import DEATHS, FALSIFIED, GENERATED, TOTALS, totals
from deaths import died

FOLDER = Path(__file__).parent
# What tests call their kinds; a part that is filled in may be anything.
NAMED = re.findall(r'tried\(\s*f?"([^"]+)"', "".join(path.read_text() for path in FOLDER.glob("test_*.py")))
PATTERNS = [re.sub(r"\\\{.*?\\\}", ".*", re.escape(name)) for name in NAMED]


@pytest.mark.parametrize(
    "kind",
    [
        "an input that a coverage-guided fuzzer found",
        "a wrong variable of the environment",
        "a run that diverges, from its step to the page",
        "a mechanism that is compiled",
        "weights that are no numbers",
        "full disk under a store",
        "full disk under the cache",
    ],
)
def test_what_is_no_death_and_no_generated_case_counts_for_neither(kind: str) -> None:
    assert any(re.fullmatch(pattern, kind) for pattern in PATTERNS)
    assert set(totals({kind: 100_000}).values()) == {0}


def test_a_kind_counts_for_one_total() -> None:
    assert totals({"JSON": 3, "training ended by kill": 2, "falsified table": 1}) == {
        "deaths": 2, "generated cases": 3, "falsifications": 1}  # fmt: skip
    assert sum(len(kinds) for _, kinds in TOTALS.values()) == len(DEATHS | GENERATED | FALSIFIED)


@pytest.mark.parametrize("kind", sorted(GENERATED | FALSIFIED))
def test_every_kind_that_counts_is_one_that_a_test_tries(kind: str) -> None:
    assert any(re.fullmatch(pattern, kind) for pattern in PATTERNS)


@pytest.mark.parametrize(
    ("manner", "code", "ended"),
    [
        ("kill", -9, True), ("kill", 0, False), ("kill", 1, False), ("term", -15, True), ("term", 143, True),
        ("term", 130, True), ("term", 0, False), ("interrupt", 130, True), ("interrupt", 0, False),
        ("interrupt", 1, False), ("memory", 1, True), ("memory", -6, True), ("memory", 0, False), ("disk", 1, False),
    ],
)  # fmt: skip
def test_a_death_counts_only_where_the_child_was_ended(manner: str, code: int, ended: bool) -> None:
    assert died(manner, code) is ended  # type: ignore[arg-type]
