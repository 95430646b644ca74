"""Git is asked which commit gave a file its content; where it does not know, the answer is None."""

from pathlib import Path

import pytest
from history_factory import commit, git

from transnormer_lib.provenance.history import Commit, commit_of, held

FILE = "studies/one/plan.yaml"


def test_the_commit_is_that_of_the_last_change_of_this_file(tmp_path: Path) -> None:
    commit(tmp_path, {FILE: "a"}, 20)
    second = commit(tmp_path, {FILE: "b"}, 21)
    commit(tmp_path, {"another": "c"}, 22)
    assert commit_of(tmp_path / FILE) == Commit(second, "2026-11-21T12:00:00+00:00")


def test_a_file_that_is_moved_keeps_its_commit(tmp_path: Path) -> None:
    first = commit(tmp_path, {FILE: "a"}, 20)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / FILE).rename(tmp_path / "elsewhere" / "plan.yaml")
    commit(tmp_path, {}, 21)
    found = commit_of(tmp_path / "elsewhere" / "plan.yaml")
    assert found is not None
    assert found.name == first
    assert held(first, tmp_path / "elsewhere" / "plan.yaml") is True


@pytest.mark.parametrize("staged", [False, True], ids=["edited", "edited and staged"])
def test_content_that_is_not_committed_has_no_commit(tmp_path: Path, staged: bool) -> None:
    first = commit(tmp_path, {FILE: "a"})
    (tmp_path / FILE).write_text("b")
    if staged:
        git(tmp_path, "add", FILE)
    assert commit_of(tmp_path / FILE) is None
    assert held(first, tmp_path / FILE) is False


def test_outside_a_checkout_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (tmp_path / "plan.yaml").write_text("a")
    assert commit_of(tmp_path / "plan.yaml") is None
    assert held("0" * 40, tmp_path / "plan.yaml") is None


def test_without_git_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = commit(tmp_path, {FILE: "a"})
    monkeypatch.setenv("PATH", "")
    assert commit_of(tmp_path / FILE) is None
    assert held(first, tmp_path / FILE) is None


def test_a_history_that_is_cut_off_knows_only_what_changed_in_it(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    commit(whole, {"old/plan.yaml": "a"}, 20)
    commit(whole, {"other": "b"}, 21)
    newest = commit(whole, {FILE: "c"}, 22)
    git(tmp_path, "clone", "--quiet", "--depth", "2", whole.as_uri(), str(cut))
    found = commit_of(cut / FILE)
    assert found is not None
    assert found.name == newest
    assert commit_of(cut / "old" / "plan.yaml") is None


def test_a_commit_held_what_was_committed_by_then(tmp_path: Path) -> None:
    before = commit(tmp_path, {"another": "x"}, 20)
    with_it = commit(tmp_path, {FILE: "a"}, 21)
    after = commit(tmp_path, {"another": "y"}, 22)
    assert [held(name, tmp_path / FILE) for name in (before, with_it, after)] == [False, True, True]
    assert held("0" * 40, tmp_path / FILE) is None
