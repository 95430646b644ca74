"""Read this package's YAML files into strictly typed, immutable records; errors name the file and field."""

from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from transnormer_lib.files import read_yaml

R = TypeVar("R", bound="Record")
PACKAGE = Path(__file__).parent


class Record(BaseModel):
    """A record that refuses unknown fields, wrong types and later changes."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def read_list(path: Path) -> list[Any]:
    """The entries of a YAML file that holds a list; [] for an empty file."""
    try:
        content = read_yaml(path)
    except ValueError as fault:
        raise ValueError(f"{path.parent.name}/{fault}") from None
    if content is None:
        return []
    if not isinstance(content, list):
        raise ValueError(f"{path.parent.name}/{path.name}: must hold a list of entries, found {type(content).__name__}")
    return content


def build(record: type[R], fields: Any, where: str) -> R:
    """``record(**fields)``. Raises ValueError ``WHERE: FIELD=VALUE: RULE`` for the first few errors."""
    if not isinstance(fields, dict):
        raise ValueError(f"{where}: must be a mapping of fields, found {fields!r}")
    try:
        return record(**fields)
    except ValidationError as error:
        raise ValueError(f"{where}: {_faults(error)}") from None
    except TypeError as error:  # a key that is not a string
        raise ValueError(f"{where}: {error}") from None


def _faults(error: ValidationError) -> str:
    lines = []
    for fault in error.errors()[:3]:
        name = ".".join(str(part) for part in fault["loc"])
        rule = fault["msg"].removeprefix("Value error, ")
        value = "" if fault["type"] in ("missing", "value_error") else f"={fault['input']!r}"
        lines.append(f"{name}{value}: {rule}" if name else rule)
    return "; ".join(dict.fromkeys(lines))
