"""Drafts that outlive a failure, and folders in use; tests/unit/gguf/test_folder.py has whole-or-nothing writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlxcel.errors import ModelError, StateError
from mlxcel.folder import drafts_in, folder_in_use, is_in_use, new_folder, remove_folder


def leave_half(target: Path, key: str, error: type[BaseException] = OSError) -> None:
    with pytest.raises(error), new_folder(target, resume_key=key) as draft:
        (draft / "half").write_text("half")
        raise error("on cue")


@pytest.mark.parametrize("error", [OSError, StateError, KeyboardInterrupt])
def test_with_a_key_the_next_one_finds_what_a_failure_left(tmp_path: Path, error: type[BaseException]) -> None:
    leave_half(tmp_path / "new", "abc", error)
    assert list(drafts_in(tmp_path)) == [tmp_path / "new"]
    with new_folder(tmp_path / "new", resume_key="abc") as draft:
        assert (draft / "half").read_text() == "half"
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    assert not is_in_use(tmp_path / "new")


def test_what_is_left_under_another_key_or_was_no_use_is_swept_away(tmp_path: Path) -> None:
    leave_half(tmp_path / "new", "abc")
    leave_half(tmp_path / "new-er", "abc")
    with new_folder(tmp_path / "new", resume_key="def") as draft:
        assert list(draft.iterdir()) == []
    assert (tmp_path / ".new-er.draft-abc" / "half").exists()
    leave_half(tmp_path / "other", "abc", ModelError)
    assert list(drafts_in(tmp_path)) == [tmp_path / "new-er"]


@pytest.mark.parametrize("key", ["abc", "def", None])
def test_a_draft_that_is_being_written_is_left_alone(tmp_path: Path, key: str | None) -> None:
    with new_folder(tmp_path / "new", resume_key="abc") as draft:
        (draft / "half").write_text("half")
        with (
            pytest.raises(StateError, match="Another process is writing"),
            new_folder(tmp_path / "new", resume_key=key),
        ):
            pass
        with pytest.raises(StateError, match="Another process is writing"):
            remove_folder(tmp_path / "new")
        assert is_in_use(draft)
    assert (tmp_path / "new" / "half").read_text() == "half"
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_a_folder_is_removed_once_nobody_uses_it(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").write_text("kept")
    with folder_in_use(folder), folder_in_use(folder):
        assert is_in_use(folder)
        with pytest.raises(StateError, match="in use"):
            remove_folder(folder)
        assert (folder / "file").read_text() == "kept"
    remove_folder(folder)
    assert list(tmp_path.iterdir()) == []
    remove_folder(folder)
    with pytest.raises(StateError, match="being removed"), folder_in_use(folder):
        pass
