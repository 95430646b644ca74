"""The cache saves time and decides nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transnormer_lib.data import cache

CONTENT = bytes(range(256)) * 40


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRANSNORMER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Computation:
    """Gives CONTENT and counts how often it was asked to."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> bytes:
        self.calls += 1
        return CONTENT


def test_a_value_is_computed_once(folder: Path) -> None:
    compute = Computation()
    assert [cache.cached("x", "1", compute) for _ in range(3)] == [CONTENT] * 3
    assert compute.calls == 1
    assert len(list(folder.iterdir())) == 1


def test_another_digest_is_another_value(folder: Path) -> None:
    assert cache.cached("x", "1", lambda: b"one") == b"one"
    assert cache.cached("x", "2", lambda: b"two") == b"two"


def test_the_key_depends_on_every_part_and_on_where_parts_end() -> None:
    keys = {cache.key(*parts) for parts in [("a", "b"), ("b", "a"), ("ab",), ("a", "b", ""), ("a", 1), ("a", "1")]}
    assert len(keys) == 6


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError], ids=["interrupt", "disk-full"])
def test_a_write_that_fails_leaves_nothing_behind(
    error: type[BaseException], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        if error is KeyboardInterrupt:
            with pytest.raises(KeyboardInterrupt):
                cache.cached("x", "1", Computation())
        else:
            assert cache.cached("x", "1", Computation()) == CONTENT
    assert list(folder.iterdir()) == []
    compute = Computation()
    assert cache.cached("x", "1", compute) == CONTENT
    assert compute.calls == 1


def test_a_process_killed_while_writing_leaves_no_broken_value(folder: Path) -> None:
    script = (
        "import os; from transnormer_lib.data import cache\n"
        "os.replace = lambda *paths: os._exit(9)\n"
        "cache.cached('x', '1', lambda: b'never finished')\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 9
    assert cache.cached("x", "1", Computation()) == CONTENT


@given(data=st.data())
def test_a_damaged_file_is_computed_again(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("damaged")
        patch.setenv("TRANSNORMER_CACHE", str(folder))
        cache.cached("x", "1", Computation())
        (path,) = folder.iterdir()
        stored = bytearray(path.read_bytes())
        place = data.draw(st.integers(0, len(stored) - 1), label="place")
        if data.draw(st.booleans(), label="cut short"):
            del stored[place:]
        else:
            stored[place] ^= 1
        path.write_bytes(stored)
        compute = Computation()
        assert cache.cached("x", "1", compute) == CONTENT
        assert compute.calls == 1


def test_a_folder_that_cannot_be_made_costs_only_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TRANSNORMER_CACHE", str(tmp_path / "file" / "cache"))
    compute = Computation()
    assert [cache.cached("x", "1", compute) for _ in range(2)] == [CONTENT] * 2
    assert compute.calls == 2


def test_processes_that_compute_the_same_value_at_once_all_get_it(folder: Path) -> None:
    script = (
        "import sys; from transnormer_lib.data import cache\n"
        "sys.stdin.readline()\n"
        "for i in range(50):\n"
        "    assert cache.cached('x', str(i), lambda: bytes([i]) * 100_000) == bytes([i]) * 100_000\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) for _ in range(3)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate()
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(list(folder.iterdir())) == 50
