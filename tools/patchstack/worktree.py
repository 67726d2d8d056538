"""A scratch worktree: a place to run a test or resolve a conflict that is not the user's checkout."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .git import Git
from .stack import Sha


def add_worktree(git: Git, path: Path, commit: Sha) -> None:
    """Check `commit` out at `path`, detached; an older scratch worktree there is removed first."""
    remove_worktree(git, path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not sealed (at=): the new worktree must get an index of its own.
    git.run(
        "worktree", "add", "--quiet", "--detach", "--end-of-options", str(path), commit, at=git.common_dir
    )  # fmt: skip


def remove_worktree(git: Git, path: Path) -> None:
    """Remove it and git's note of it, no other's. Safe to repeat, also after half of it is gone."""
    git.run("worktree", "remove", "--force", "--force", str(path), at=git.common_dir, ok=range(256))
    if path.exists():
        shutil.rmtree(path)


@contextmanager
def scratch_worktree(git: Git, path: Path, commit: Sha) -> Iterator[Path]:
    """`commit` checked out at `path` for the length of a `with` block."""
    add_worktree(git, path, commit)
    try:
        yield path
    finally:
        remove_worktree(git, path)
