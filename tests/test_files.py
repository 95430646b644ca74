"""A file appears whole or not at all."""

from pathlib import Path

import pytest

from transnormer_lib.files import read_yaml, replacing, write_text


def test_what_is_written_is_there_and_nothing_else(tmp_path: Path) -> None:
    write_text(tmp_path / "folder" / "a.txt", "φ\n")
    assert (tmp_path / "folder" / "a.txt").read_bytes() == "φ\n".encode()
    assert [p.name for p in (tmp_path / "folder").iterdir()] == ["a.txt"]


@pytest.mark.parametrize("fault", [KeyboardInterrupt, OSError], ids=lambda f: f.__name__)
def test_an_interruption_leaves_the_old_content_and_no_remains(fault: type[BaseException], tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def interrupted() -> None:
        with replacing(path) as partial:
            partial.write_text("half of the new")
            raise fault

    with pytest.raises(fault):
        interrupted()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_two_writers_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with replacing(path) as first, replacing(path) as second:
        assert first != second
        first.write_text("first")
        second.write_text("second")
    assert path.read_text() in ("first", "second")


# Each line twice as large as the one before.
BOMB = b"".join(b"a%d: &a%d [*a%d, *a%d]\n" % (n, n, n - 1, n - 1) for n in range(1, 60))


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"a: \xff", "not UTF-8: invalid start byte at byte 3"),
        (b"a: 1\nb: {c: 2, c: 3}\n", "'c' is given twice, line 2"),
        (b"[" * 200_000 + b"]" * 200_000, "nested deeper than 100, line 1"),
        (b"- " * 200_000, "nested deeper than 100, line 1"),
        (b"a0: &a0 [x, x]\n" + BOMB, "aliases repeat more than 100,000 values, line 15"),
        (b"a: [1", "line 1"),
        (b"a: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
        (b"x: 1\na: !!int", "a: '' is no int, line 2"),
        (b"a: {b: !!int x}", "b: 'x' is no int, line 1"),
        (b"a: !!float x", "a: 'x' is no float, line 1"),
        (b"a: !!bool x", "a: 'x' is no bool, line 1"),
        (b"a: !!map [1]", "expected a mapping node"),
        (b"a: !!map x", "expected a mapping node"),
        (b"a: " + b"9" * 5000, "999' is no int, line 1"),
        (b"a: 2020-01-01", "a: a date must be in quotes, line 1"),
        (b"a: 2020-13-45", "a: a date must be in quotes, line 1"),
        (b"a: [1, 2020-01-01 10:00:00]", "a date must be in quotes, line 1"),
        (b"2020-01-01: 1", "a date must be in quotes, line 1"),
        (b"a: !!timestamp x", "a: a date must be in quotes, line 1"),
        (b"a: !!binary aGVsbG8=", "a: bytes must be text, line 1"),
        (b"a: !!set {x}", "a: a set must be a list, line 1"),
        (b"a: !!omap [b: 1]", "a: pairs must be a mapping, line 1"),
        (b"1: a\n0x1: b\n", "'0x1' is given twice, line 2"),
        (b"a:\n  yes: 1\n  true: 2\n", "'true' is given twice, line 3"),
        (b"a: 1\n'a': 2\n", "'a' is given twice, line 2"),
    ],
    ids=lambda value: value.decode("utf-8", "replace")[:30] if isinstance(value, bytes) else "",
)
def test_yaml_that_is_none_or_means_two_things_is_refused_by_name(content: bytes, rule: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"mine\.yaml: not ") as refused:
        read_yaml(path)
    assert rule in str(refused.value)
    assert "\n" not in str(refused.value)


def test_yaml_is_read_as_plain_values(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("a: &one {b: 1.0e-3}\nc: {<<: *one, d: [é, null]}\n", encoding="utf-8")
    assert read_yaml(path) == {"a": {"b": 1e-3}, "c": {"b": 1e-3, "d": ["é", None]}}
