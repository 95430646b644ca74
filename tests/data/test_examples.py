"""Ragged labelled sequences and their files."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from time import sleep

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transnormer_lib.data import cache, examples
from transnormer_lib.data.examples import (
    Examples,
    Passages,
    from_groups,
    from_rows,
    from_sequences,
    narrowest,
    stored,
)

ragged = st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=20), min_size=1, max_size=12)


def examples_of(lists: list[list[int]], vocab_size: int = 301) -> Examples:
    return from_sequences([np.array(items) for items in lists], range(len(lists)), vocab_size)


def equal(one: Examples, other: Examples) -> bool:
    ours, theirs = examples._arrays(one), examples._arrays(other)
    same = all(np.array_equal(ours[name], theirs[name]) and ours[name].dtype == theirs[name].dtype for name in ours)
    texts = [of.passages and of.passages.texts for of in (one, other)]
    return ours.keys() == theirs.keys() and same and texts[0] == texts[1]


@given(lists=ragged)
def test_every_sequence_comes_back_as_it_was(lists: list[list[int]]) -> None:
    examples = examples_of(lists)
    assert [examples.sequence(i).tolist() for i in range(len(examples))] == lists
    assert examples.lengths.tolist() == [len(items) for items in lists]
    assert not examples.pairs


@given(lists=ragged)
def test_a_pair_is_two_neighbouring_sequences(lists: list[list[int]]) -> None:
    examples = from_sequences([np.array(items) for items in [*lists, *lists]], range(len(lists)), 301)
    assert examples.pairs
    assert len(examples) == len(lists)


@given(groups=st.lists(ragged, min_size=1, max_size=5))
def test_a_group_is_its_own_number_of_neighbouring_sequences(groups: list[list[list[int]]]) -> None:
    made = from_groups([[np.array(s) for s in group] for group in groups], np.arange(len(groups)), 301)
    order = np.arange(len(groups))[::-1]
    assert (len(made), made.pairs) == (len(groups), False)
    assert made.sizes.tolist() == [len(group) for group in groups]
    back = [made.sequence(i).tolist() for i in made.sequences_of(order)]
    assert back == [sequence for group in reversed(groups) for sequence in group]


@given(n=st.integers(1, 5), length=st.integers(1, 9))
def test_rows_of_an_array_are_sequences(n: int, length: int) -> None:
    rows = np.arange(n * length).reshape(n, length) % 257
    examples = from_rows(rows, np.arange(n), 257)
    assert np.array_equal(np.stack([examples.sequence(i) for i in range(n)]), rows)


@pytest.mark.parametrize(
    ("vocab_size", "dtype"), [(256, "uint8"), (257, "uint16"), (65_536, "uint16"), (65_537, "uint32")]
)
def test_tokens_are_as_narrow_as_the_vocabulary_allows(vocab_size: int, dtype: str) -> None:
    assert narrowest(vocab_size).name == dtype


def test_the_arrays_cannot_be_written_to() -> None:
    with pytest.raises(ValueError, match="read-only"):
        examples_of([[1, 2]]).tokens[0] = 3


@pytest.mark.parametrize(
    ("offsets", "labels", "message"),
    [
        ([0, 2, 3], [0, 1, 2], "offsets: mark 2 sequences for 3 labels"),
        ([0, 2], [], "offsets: mark 1 sequences for 0 labels"),
        ([0, 2], [0], "offsets: must run from 0 to the 3 tokens"),
        ([0, 0, 3], [0, 1], "offsets: sequence 0 of example 0 has no token"),
        ([0, 2, 3, 3, 3], [0, 1], "offsets: sequence 2 of example 1 has no token"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(offsets: list[int], labels: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Examples(np.arange(3, dtype=np.uint8), np.array(offsets), np.array(labels, np.int64))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([0, 1], "groups: must run from 0 to the 2 sequences, for 2 labels"),
        ([0, 1, 3], "groups: must run from 0 to the 2 sequences, for 2 labels"),
        ([0, 2, 2], "groups: example 1 has no sequence"),
    ],
    ids=["few", "beyond", "empty"],
)
def test_groups_that_do_not_fit_are_refused(groups: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Examples(np.arange(3, dtype=np.uint8), np.array([0, 2, 3]), np.array([0, 0]), np.array(groups))


def test_passages_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="passages: must have a place and a mark for each of 3 tokens, and 1 texts"):
        Examples(
            np.arange(3, dtype=np.uint8), np.array([0, 3]), np.zeros(1, np.int64), np.array([0, 1]),
            Passages(np.arange(2, dtype=np.int32), np.zeros(3, np.uint8), (("?", "甲", "甲"),)),
        )  # fmt: skip


def spans(first: int) -> Examples:
    """Two questions about two passages, of which the first has two windows."""
    made = from_groups([[np.array([first, 1]), np.array([2])], [np.array([3, 300])]], np.array([1, 0]), 301)
    texts = (("?", "甲乙", "乙"), ("？", "丙", "丙", "甲"))
    passages = Passages(np.array([-1, 0, 1, -1, 0], np.int32), np.array([0, 0, 3, 0, 3], np.uint8), texts)
    return Examples(made.tokens, made.offsets, made.labels, made.groups, passages)


class TestStored:
    @pytest.fixture(autouse=True)
    def own_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TRANSNORMER_CACHE", str(tmp_path))

    PARTS = ([[1, 2, 3], [4]], [[5, 300]], [[6], [7, 8]])

    def parts(self) -> Iterator[Examples]:
        return (examples_of(lists) for lists in self.PARTS)

    def never(self) -> Iterator[Examples]:
        raise AssertionError("made a second time")

    def test_the_parts_come_back_as_one(self) -> None:
        examples, _ = stored("x", "1", self.parts)
        assert [examples.sequence(i).tolist() for i in range(5)] == [items for part in self.PARTS for items in part]
        assert examples.labels.tolist() == [0, 1, 0, 0, 1]

    def test_they_are_made_once(self) -> None:
        first, digest = stored("x", "1", self.parts)
        again, same = stored("x", "1", self.never)
        assert equal(first, again)
        assert digest == same

    def test_how_they_were_cut_into_parts_does_not_matter(self) -> None:
        whole = from_sequences([np.array(s) for p in self.PARTS for s in p], [0, 1, 0, 0, 1], 301)
        assert stored("x", "1", self.parts)[1] == stored("x", "2", lambda: [whole])[1]

    def test_other_content_has_another_digest(self) -> None:
        digests = {stored("x", str(n), lambda n=n: [examples_of([[1, 2], [n]])])[1] for n in range(4)}
        digests.add(stored("x", "cut", lambda: [examples_of([[1], [2, 0]])])[1])
        assert len(digests) == 5

    @pytest.mark.parametrize("name", ["tokens.bin", "offsets.npy", "labels.npy", "content.json"])
    @pytest.mark.parametrize(
        "harm",
        [
            Path.unlink,
            lambda p: p.write_bytes(p.read_bytes()[:-1]),
            lambda p: p.write_bytes(p.read_bytes()[:-1] + b"\7"),
        ],
        ids=["gone", "truncated", "changed"],
    )
    def test_a_harmed_file_is_made_again(self, name: str, harm: Callable[[Path], object]) -> None:
        first, digest = stored("x", "1", self.parts)
        (path,) = cache.cache_dir().rglob(name)
        kept = from_sequences([first.sequence(i).copy() for i in range(5)], first.labels.copy(), 301)
        harm(path)
        again, same = stored("x", "1", self.parts)
        assert equal(kept, again)
        assert digest == same

    @pytest.mark.parametrize("name", ["groups.npy", "places.npy", "marks.npy", "texts.json"])
    def test_spans_come_back_in_parts_and_a_harmed_file_of_theirs_is_made_again(self, name: str) -> None:
        def parts() -> Iterator[Examples]:
            return iter([spans(5), spans(6)])

        first, digest = stored("x", "1", parts)
        assert [first.sequence(i).tolist() for i in first.sequences_of(np.array([2]))] == [[6, 1], [2]]
        assert first.labels.tolist() == [1, 0] * 2
        assert equal(first, examples.joined([spans(5), spans(6)]))
        assert equal(first, stored("x", "1", self.never)[0])
        (path,) = cache.cache_dir().rglob(name)
        path.write_bytes(path.read_bytes()[:-1])
        again, same = stored("x", "1", parts)
        assert equal(first, again)
        assert digest == same

    def test_other_texts_of_spans_have_another_digest(self) -> None:
        one = spans(5)
        assert one.passages is not None
        texts = (("?", "甲乙", "甲"), one.passages.texts[1])
        other = Examples(
            one.tokens, one.offsets, one.labels, one.groups, Passages(one.passages.places, one.passages.marks, texts)
        )
        assert stored("x", "1", lambda: [one])[1] != stored("x", "2", lambda: [other])[1]

    def test_what_is_interrupted_leaves_nothing_that_counts(self) -> None:
        def interrupted() -> Iterator[Examples]:
            yield examples_of([[1]])
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            stored("x", "1", interrupted)
        left = [path for path in cache.cache_dir().rglob("*") if path.is_file()]
        assert all(path.suffix == ".lock" for path in left)
        assert len(stored("x", "1", self.parts)[0]) == 5

    def test_without_a_folder_to_write_to_they_stay_in_memory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        there, digest = stored("x", "1", self.parts)
        (tmp_path / "file").write_text("no folder")
        monkeypatch.setenv("TRANSNORMER_CACHE", str(tmp_path / "file" / "cache"))
        here, same = stored("x", "1", self.parts)
        assert equal(there, here)
        assert digest == same

    def test_what_making_raises_passes_through_and_nothing_is_made_twice(self) -> None:
        calls = []

        def broken() -> Iterator[Examples]:
            calls.append(1)
            yield examples_of([[1]])
            raise OSError("cannot read the source")

        with pytest.raises(OSError, match="cannot read the source"):
            stored("x", "1", broken)
        assert len(calls) == 1

    @pytest.mark.parametrize("part", [0, 1, 2])
    def test_a_disk_that_is_full_costs_no_part(self, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
        there, digest = stored("x", "1", self.parts)
        append, calls, made = examples._append, [], []

        def full(path: Path, tokens: np.ndarray) -> None:
            calls.append(1)
            if len(calls) > part:
                raise OSError("no space left")
            append(path, tokens)

        def parts() -> Iterator[Examples]:
            made.append(1)
            return self.parts()

        monkeypatch.setattr(examples, "_append", full)
        here, same = stored("x", "2", parts)
        assert equal(there, here)
        assert digest == same
        assert len(made) == 1

    def test_a_disk_that_is_full_at_the_end_costs_nothing_either(self, monkeypatch: pytest.MonkeyPatch) -> None:
        there, digest = stored("x", "1", self.parts)

        def full(*_: object) -> None:
            raise OSError("no space left")

        monkeypatch.setattr(examples, "write_text", full)
        here, same = stored("x", "2", self.parts)
        assert equal(there, here)
        assert digest == same

    def test_a_second_one_waits_for_the_first_one_s_files(self) -> None:
        begun, waiting = Event(), Event()

        def slow() -> Iterator[Examples]:
            begun.set()
            assert waiting.wait(30)
            sleep(0.2)  # the second one asks for the lock meanwhile; had it none, it would make them
            return self.parts()

        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(stored, "x", "1", slow)
            assert begun.wait(30)
            second = pool.submit(stored, "x", "1", self.never)
            waiting.set()
            assert equal(first.result()[0], second.result()[0])

    def test_what_a_killed_process_left_is_removed(self) -> None:
        first, _ = stored("x", "1", self.parts)
        (about,) = cache.cache_dir().rglob("content.json")
        left = about.with_name(".tokens.bin.0123456789ab")
        left.write_bytes(b"half of it")
        about.unlink()
        assert equal(stored("x", "1", self.parts)[0], first)
        assert not left.exists()
