"""Git is asked which commit first said what a file says; where it does not know, the answer is None."""

from pathlib import Path

import pytest
from history_factory import commit, git

from transnormer_lib.provenance.history import Commit, came_after, commit_of

FILE = "studies/one/plan.yaml"


def since(path: Path) -> Commit | None:
    """The commit that first had the first line of a file as it is."""
    now = path.read_text().splitlines()[0]
    return commit_of(path, same=lambda text: text.splitlines()[0] == now)


def test_the_commit_is_that_of_the_last_change_of_this_file(tmp_path: Path) -> None:
    commit(tmp_path, {FILE: "a"}, 20)
    second = commit(tmp_path, {FILE: "b"}, 21)
    commit(tmp_path, {"another": "c"}, 22)
    assert since(tmp_path / FILE) == Commit(second, "2026-11-21T12:00:00+00:00")


def test_what_is_added_leaves_the_commit(tmp_path: Path) -> None:
    commit(tmp_path, {FILE: "a"}, 20)
    second = commit(tmp_path, {FILE: "b"}, 21)
    commit(tmp_path, {FILE: "b\nmore"}, 22)
    assert since(tmp_path / FILE) == Commit(second, "2026-11-21T12:00:00+00:00")


def test_what_was_changed_for_a_while_counts_from_when_it_was_first_said(tmp_path: Path) -> None:
    first = commit(tmp_path, {FILE: "a"}, 20)
    commit(tmp_path, {FILE: "b"}, 21)
    commit(tmp_path, {FILE: "a"}, 22)
    assert since(tmp_path / FILE) == Commit(first, "2026-11-20T12:00:00+00:00")


def test_a_file_that_is_moved_keeps_its_commit(tmp_path: Path) -> None:
    first = commit(tmp_path, {FILE: "a"}, 20)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / FILE).rename(tmp_path / "elsewhere" / "plan.yaml")
    commit(tmp_path, {}, 21)
    found = since(tmp_path / "elsewhere" / "plan.yaml")
    assert found is not None
    assert found.name == first


@pytest.mark.parametrize("staged", [False, True], ids=["edited", "edited and staged"])
def test_content_that_is_not_committed_has_no_commit(tmp_path: Path, staged: bool) -> None:
    commit(tmp_path, {FILE: "a"})
    (tmp_path / FILE).write_text("b")
    if staged:
        git(tmp_path, "add", FILE)
    assert since(tmp_path / FILE) is None


def test_outside_a_checkout_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (tmp_path / "plan.yaml").write_text("a")
    assert since(tmp_path / "plan.yaml") is None
    assert came_after(tmp_path, "0" * 40, "1" * 40) is None


def test_without_git_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = commit(tmp_path, {FILE: "a"})
    monkeypatch.setenv("PATH", "")
    assert since(tmp_path / FILE) is None
    assert came_after(tmp_path, first, first) is None


def test_a_history_that_is_cut_off_knows_only_what_changed_in_it(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    commit(whole, {"old/plan.yaml": "a"}, 20)
    commit(whole, {"other": "b"}, 21)
    newest = commit(whole, {FILE: "c"}, 22)
    git(tmp_path, "clone", "--quiet", "--depth", "2", whole.as_uri(), str(cut))
    found = since(cut / FILE)
    assert found is not None
    assert found.name == newest
    assert since(cut / "old" / "plan.yaml") is None


def test_a_commit_came_after_itself_and_what_it_was_made_from(tmp_path: Path) -> None:
    first = commit(tmp_path, {"another": "x"}, 20)
    second = commit(tmp_path, {FILE: "a"}, 21)
    third = commit(tmp_path, {"another": "y"}, 22)
    assert [came_after(tmp_path, name, second) for name in (first, second, third)] == [False, True, True]
    assert came_after(tmp_path, "0" * 40, second) is None


def test_a_file_in_a_folder_of_any_name_has_its_commit(tmp_path: Path) -> None:
    folder = "my commit 1 of ünï"
    made = commit(tmp_path, {f"{folder}/plan.yaml": "a: 1"})
    found = commit_of(tmp_path / folder / "plan.yaml", lambda text: text == "a: 1")
    assert found is not None
    assert found.name == made
