"""Files that are written completely or not at all, JSON that may be damaged, and YAML that a person wrote."""

import json
import re
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from reprlib import repr as shortened
from typing import Any
from uuid import uuid4

from transnormer_lib.exhausted import writing


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path, renamed to ``path`` when the block ends and removed if it raises.

    The temporary name is unique, so two processes may write the same file at once; the later one wins. Raises
    :class:`~transnormer_lib.exhausted.DiskFull` if there is no space.
    """
    partial = path.with_name(f".{path.name}.{uuid4().hex[:12]}")
    try:
        with writing(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield partial
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path``, completely or not at all."""
    with replacing(path) as partial:
        partial.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    """Write ``content`` to ``path`` in UTF-8, completely or not at all."""
    write_bytes(path, content.encode("utf-8"))


def parse_json(text: str | bytes) -> Any:
    """The values of a JSON text. Raises ValueError for anything else, also for what nests too deeply for Python."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("not valid JSON: nested too deeply") from None


def read_object(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None if the file is missing or holds anything else."""
    try:
        found = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def read_yaml(path: Path) -> Any:
    """The content of a YAML file: plain values alone, whatever its tags.

    Raises ValueError, which names the file, for what is no UTF-8, no YAML, no plain value (a date, a set, bytes),
    nested too deeply, gives a key twice, or repeats parts by aliases to more than a hundred thousand values; OSError
    where the file cannot be read.
    """
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        if _may_be_deep(text) or ("&" in text and "*" in text):
            _check_structure(text)
        return yaml.load(text, Loader=_loader())
    except UnicodeDecodeError as error:
        reason = f"not UTF-8: {error.reason} at byte {error.start}"
    except yaml.YAMLError as error:
        reason = f"not valid YAML: {' '.join(str(error).split())}".replace(' in "<unicode string>", line', ", line")
    raise ValueError(f"{path.name}: {reason}")


_DEEPEST = 100  # mappings and lists within each other; the parser has a stack to lose
_LARGEST = 100_000  # values, where aliases repeat some: ten short lines can stand for billions


def _may_be_deep(text: str) -> bool:
    """Whether a text could nest deeper than is allowed; brackets or indentation, or neither, show that at a glance."""
    return text.count("[") + text.count("{") > _DEEPEST or bool(
        re.search(rf"^[ ?-]{{{_DEEPEST},}}", text, re.MULTILINE)
    )


def _check_structure(text: str) -> None:
    """Raise YAMLError where the text nests too deeply, or aliases make it too large.

    The events of the parser come one by one, without recursion.
    """
    import yaml

    sizes: dict[str, int] = {}  # by anchor: how many values it stands for
    open_ones: list[tuple[str | None, int]] = [(None, 0)]  # each with its anchor and its size so far
    for event in yaml.parse(text, Loader=_loader()):
        line = event.start_mark.line + 1 if event.start_mark else "?"
        if isinstance(event, yaml.CollectionStartEvent):
            open_ones.append((event.anchor, 1))
            if len(open_ones) > _DEEPEST + 1:
                raise yaml.YAMLError(f"nested deeper than {_DEEPEST}, line {line}")
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, size = open_ones.pop()
        elif isinstance(event, yaml.ScalarEvent):
            anchor, size = event.anchor, 1
        elif isinstance(event, yaml.AliasEvent):
            anchor, size = None, sizes.get(str(event.anchor), 1)
        else:
            continue
        if anchor is not None:
            sizes[anchor] = size
        around, before = open_ones[-1]
        open_ones[-1] = (around, before + size)
        if before + size > _LARGEST and sizes:
            raise yaml.YAMLError(f"aliases repeat more than {_LARGEST:,} values, line {line}")


_TAG = "tag:yaml.org,2002:"
# What YAML has beyond plain values, and what to write instead.
_NOT_PLAIN = {
    f"{_TAG}timestamp": "a date must be in quotes",
    f"{_TAG}binary": "bytes must be text",
    f"{_TAG}set": "a set must be a list",
    f"{_TAG}omap": "pairs must be a mapping",
    f"{_TAG}pairs": "pairs must be a mapping",
}


@cache
def _loader() -> Any:
    """PyYAML's safe loader with plain values alone, which refuses equal keys instead of taking the last in silence.

    The C parser is about ten times faster; it is absent from builds of PyYAML without libyaml.
    """
    import yaml

    def refusal(problem: str, node: Any) -> yaml.YAMLError:
        return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        def construct_object(self, node: Any, deep: bool = False) -> Any:
            if rule := _NOT_PLAIN.get(node.tag):
                raise refusal(rule, node)
            try:
                return super().construct_object(node, deep)
            except (AttributeError, LookupError, TypeError, ValueError):  # !!int x, !!bool x, 5,000 digits
                raise refusal(f"{shortened(node.value)} is no {node.tag.removeprefix(_TAG)}", node) from None

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            names = set()
            for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
                if key.tag == f"{_TAG}merge":
                    continue
                name = self.construct_object(key, deep=True)
                if not isinstance(name, Hashable):
                    raise refusal("a key must be no list and no mapping", key)
                if name in names:
                    raise refusal(f"{key.value!r} is given twice", key)
                names.add(name)
                try:
                    self.construct_object(value, deep)
                except yaml.constructor.ConstructorError as error:
                    error.problem = f"{key.value}: {error.problem}"
                    raise
            return super().construct_mapping(node, deep)

    return Loader
