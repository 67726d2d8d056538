"""The checkout's git, through the one place that starts it."""

from __future__ import annotations

import os
from pathlib import Path

from patchstack.git import open_git


def git(root: Path, *arguments: str) -> str:
    """Standard output of git in `root`. Errors: StateError with git's own words."""
    return open_git(root, os.environ).run(*arguments, at=root).out.decode()
