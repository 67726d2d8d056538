"""The evidence files that recut.toml names, and the commits that they name. It judges none of them."""

from __future__ import annotations

import os
import re

from .git import Git
from .settings import Settings
from .stack import Sha

_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{40}(?:[0-9a-f]{24})?(?![0-9a-f])")


def ids_in(text: str) -> list[Sha]:
    """Every full object id in a text, in order."""
    return [Sha(found) for found in _ID.findall(text)]


def ids_at(git: Git, settings: Settings, commit: Sha) -> list[Sha]:
    """The ids in the evidence files of a commit's tree, each once."""
    if not settings.evidence.files:
        return []
    globs = [f":(top,glob){pattern}" for pattern in settings.evidence.files]
    result = git.run("grep", "-h", "-o", "-I", "-E", "[0-9a-f]{40,}", commit, "--", *globs, ok=(0, 1))
    return list(dict.fromkeys(ids_in(os.fsdecode(result.out))))


def ids_in_checkout(git: Git, settings: Settings) -> list[Sha]:
    """The ids in the evidence files of the user's checkout, committed or not."""
    found: dict[Sha, None] = {}
    for pattern in settings.evidence.files if git.top else ():
        # Before Python 3.13 a last ** matches folders only.
        pattern += "/*" if pattern.endswith("**") else ""
        assert git.top
        for path in sorted(git.top.glob(pattern)):
            if path.is_file():
                found |= dict.fromkeys(ids_in(path.read_text(encoding="utf-8", errors="replace")))
    return list(found)
