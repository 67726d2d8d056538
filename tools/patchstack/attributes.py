"""In-memory merges that know a commit's own .gitattributes (merge=union, binary), and nobody else's.

Git reads attributes from a work tree only. This makes one that holds nothing but the attribute files of one
commit, so that a merge in memory comes out as it would in a checkout of that commit.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from .git import Git
from .stack import Sha

NAME = ".gitattributes"


@contextmanager
def attributes_of(git: Git, commit: Sha) -> Iterator[Git]:
    """`git`, but with the attributes of `commit`, for the length of a `with` block."""
    files = _attribute_files(git, commit)
    if not files:
        yield git
        return
    with tempfile.TemporaryDirectory(prefix="recut-attributes-") as name:
        for path in files:
            content = git.file(commit, path)
            if content is not None:
                target = Path(name, path)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
        yield git.with_work_tree(Path(name))


def _attribute_files(git: Git, commit: Sha) -> list[str]:
    """Paths of the attribute files in a commit; a symbolic link is none, as git has it."""
    found = []
    for row in git.run("ls-tree", "-r", "-z", commit).out.split(b"\0"):
        kind, _, path = row.partition(b"\t")
        if path.rpartition(b"/")[2] == NAME.encode() and kind.startswith(b"100"):
            found.append(os.fsdecode(path))
    return [path for path in found if ".." not in PurePosixPath(path).parts]
