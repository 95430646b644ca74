"""A file appears whole or not at all."""

from pathlib import Path

import pytest

from transnormer_lib.files import replacing, write_text


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
