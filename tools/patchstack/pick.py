"""Replays single commits in memory: one three-way merge and one new commit object each, no worktree.

The new commit keeps the author, the message bytes, their encoding and the committer's name; its committer
date is the author date, so the same inputs give the same id whoever runs it. Signatures are dropped: they
would be false. A commit that already sits where it should keeps its id.
"""

from __future__ import annotations

import os
import re

from command.errors import BugError

from .git import Git
from .stack import TOPIC_TRAILER, Commit, Identity, Sha, Value, sha


class Spot(Value, frozen=True, kw_only=True):
    """A place to put a commit: an existing commit and its tree."""

    commit: Sha
    tree: Sha


class Picked(Value, frozen=True, kw_only=True):
    """The merge of one patch onto a spot. `conflicts`: paths in conflict, which hold markers in `tree`."""

    tree: Sha
    conflicts: tuple[str, ...] = ()


def merge_patch(git: Git, patch: Commit, onto: Spot, *, parent_tree: Sha) -> Picked:
    """What `patch` would make of the tree at `onto`; the same tree as `git cherry-pick` makes."""
    if onto.tree == parent_tree:
        return Picked(tree=patch.tree)
    # merge-tree of git 2.39 takes no merge base: a commit with the new tree on the patch's own parent has it.
    # It is as young as the patch: with an older date, finding that base would walk the whole history.
    nobody = f"- <-> {max(patch.committer_date_s, 0)} +0000"
    raw = f"tree {onto.tree}\nparent {patch.parents[0]}\nauthor {nobody}\ncommitter {nobody}\n\n"
    return merge_commits(git, git.write_commit(raw.encode()), patch.sha)


def merge_commits(git: Git, ours: Sha, theirs: Sha) -> Picked:
    """The three-way merge of two commits on their merge base, in memory."""
    result = git.run("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs, ok=(0, 1))
    tree, *paths = os.fsdecode(result.out).split("\0")
    if not re.fullmatch(r"[0-9a-f]{40,64}", tree.strip()):
        raise BugError(f"git merge-tree answered without a tree: {result.err}")
    return Picked(tree=sha(tree.strip()), conflicts=tuple(dict.fromkeys(path for path in paths if path)))


def put_commit(git: Git, patch: Commit, onto: Spot, tree: Sha, *, topic: str = "") -> Spot:
    """Write `patch` with `tree` on top of `onto`; with `topic`, its message says which topic landed."""
    if patch.parents[:1] == (onto.commit,) and patch.tree == tree and not topic:
        return Spot(commit=patch.sha, tree=tree)
    message = _message(patch)
    raw = rewritten(patch, tree, onto.commit, add_trailer(message, topic) if topic else message)
    return Spot(commit=git.write_commit(raw), tree=tree)


def _message(patch: Commit) -> bytes:
    return patch.raw.partition(b"\n\n")[2]


def rewritten(patch: Commit, tree: Sha, parent: Sha, message: bytes) -> bytes:
    """The bytes of the new commit object."""
    headers = patch.raw.partition(b"\n\n")[0].split(b"\n")
    author = next(line for line in headers if line.startswith(b"author "))
    encoding = [line for line in headers if line.startswith(b"encoding ")]
    date = f"{patch.author_date_s} {patch.author_zone}".encode()
    committer = b"committer " + patch.committer.encode(errors="surrogateescape") + b" " + date
    lines = [f"tree {tree}".encode(), f"parent {parent}".encode(), author, committer, *encoding]
    return b"\n".join(lines) + b"\n\n" + message


_TRAILER_LINE = re.compile(rb"[A-Za-z][A-Za-z0-9-]*: \S.*")


def add_trailer(message: bytes, topic: str) -> bytes:
    """`message` with the trailer that says which topic landed, joined to trailers it already ends in."""
    body = message.rstrip(b"\n")
    head, _, last = body.rpartition(b"\n\n")
    ends_in_trailers = bool(head) and all(_TRAILER_LINE.fullmatch(line) for line in last.split(b"\n"))
    return body + (b"\n" if ends_in_trailers else b"\n\n") + f"{TOPIC_TRAILER}: {topic}\n".encode()


def own_commit(git: Git, tree: Sha, parent: Sha, identity: Identity, *, date_s: int, message: str) -> Spot:
    """A commit that this tool itself makes (a record, a release), at a date that the plan fixes."""
    ident = f"{identity} {date_s} +0000"
    raw = f"tree {tree}\nparent {parent}\nauthor {ident}\ncommitter {ident}\n\n{message}"
    return Spot(commit=git.write_commit(raw.encode()), tree=tree)
