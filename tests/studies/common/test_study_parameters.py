"""A study's parameters are read by name and checked."""

from dataclasses import dataclass
from typing import Annotated

import pytest

from transnormer_lib.studies.common import parameters
from transnormer_lib.studies.common.parameters import Prefix


@dataclass(frozen=True)
class Inner:
    steps: int


@dataclass(frozen=True)
class Outer:
    seeds: tuple[int, ...]
    base: Annotated[Inner, Prefix("base_")]


def test_fields_are_read_by_name_and_others_ignored() -> None:
    assert parameters.names(Outer) == ["seeds", "base_steps"]
    values = {"seeds": [1, 2], "base_steps": 3, "steps": 4, "other": object()}
    assert parameters.read(Outer, values) == Outer(seeds=(1, 2), base=Inner(steps=3))


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"base_steps": 3}, "seeds: must be given"),
        ({"seeds": [1]}, "base_steps: must be given"),
        ({"seeds": ["1"], "base_steps": 3}, "seeds"),
        ({"seeds": [1], "base_steps": 3.5}, "base_steps=3.5"),
    ],
)
def test_a_missing_or_wrong_value_is_refused_by_its_variable_s_name(values: dict[str, object], fault: str) -> None:
    with pytest.raises(ValueError, match=f"^{fault}"):
        parameters.read(Outer, values)
