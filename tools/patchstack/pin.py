"""Archive tags: made in this clone, pushed under the lease that they must not exist, read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from command.errors import refused

from .git import Git
from .remote import MOVED_NOTHING, push, push_error, read_refs
from .stack import ArchiveTag, Commit, Identity, Lease, Sha


def own_annotated_tags(git: Git) -> dict[str, Sha | None]:
    """Full ref -> the commit of each annotated archive tag of this clone; None for a lightweight one."""
    rows = git.lines("for-each-ref", "--format=%(refname) %(objecttype) %(*objectname)", "refs/tags/archive/")
    found: dict[str, Sha | None] = {}
    for row in rows:
        ref, kind, *peeled = row.split(" ")
        found[ref] = Sha(peeled[0]) if kind == "tag" and peeled else None
    return found


def make_tags(
    git: Git, tags: Sequence[ArchiveTag], identity: Identity, *, message: str
) -> list[tuple[ArchiveTag, Sha]]:
    """The annotated tags in this clone, made where they are missing; each with its tag object.

    The tagger's date is the archived commit's, so a repetition makes the same object.
    Errors: refused where a name is taken by something else.
    """
    here = own_annotated_tags(git)
    values = git.refs("refs/tags/archive/")
    commits = {commit.sha: commit for commit in git.commits([tag.commit for tag in tags])}
    wrong = [tag for tag in tags if tag.ref in here and here[tag.ref] != tag.commit]
    if wrong:
        raise refused(
            [f"{tag.name} in this clone is not an annotated tag of {tag.commit[:12]}" for tag in wrong],
            *(f"git tag -d {tag.name}" for tag in wrong),
            state=MOVED_NOTHING,
        )
    new = {
        tag.ref: write_tag(git, tag.name, commits[tag.commit], identity, message) for tag in tags if tag.ref not in here
    }
    put_tags(git, new)
    return [(tag, new.get(tag.ref) or values[tag.ref]) for tag in tags]


def write_tag(git: Git, name: str, commit: Commit, identity: Identity, message: str) -> Sha:
    """The tag object, dated as its commit is, so that a repetition makes the same one."""
    tagger = f"{identity} {commit.committer_date_s} +0000"
    content = f"object {commit.sha}\ntype commit\ntag {name}\ntagger {tagger}\n\n{message}"
    return git.write_object("tag", content.encode())


def put_tags(git: Git, tags: Mapping[str, Sha]) -> None:
    """New tags in this clone, all or none; those that are here as they should be are left alone.

    Errors: refused where a name is taken by something else.
    """
    found = git.refs(*tags) if tags else {}
    taken = [ref[len("refs/tags/") :] for ref, value in tags.items() if found.get(ref, value) != value]
    absent: dict[str, tuple[Sha | None, Sha | None]] = {
        ref: (None, value) for ref, value in tags.items() if ref not in found
    }
    if taken or not git.update_refs(absent, reason="recut: pin"):
        raise refused(
            [f"the tag {name} is in this clone already, as something else" for name in taken]
            or "git could not write the tags into this clone",
            *(f"git tag -d {name}" for name in taken),
            state=MOVED_NOTHING,
        )


def push_tags(git: Git, url: str, tags: Sequence[tuple[ArchiveTag, Sha]]) -> None:
    """Push the tags that the server has not, each under the lease that it must not exist."""
    theirs = read_refs(git, url, *(tag.ref for tag, _ in tags))
    absent = []
    for tag, value in tags:
        found = theirs.get(tag.ref)
        if found is None:
            absent.append((value, tag.ref))
        elif found.peeled != tag.commit:
            raise refused(
                f"{tag.name} on the server is not an annotated tag of {tag.commit[:12]}",
                "rename or remove that tag on the server, then: tools/recut publish",
                state=MOVED_NOTHING,
            )
    if not absent:
        return
    result = push(git, url, absent, [Lease(ref=ref, expect=None) for _, ref in absent])
    if result.code:
        raise push_error(result, url, "the archive tags")


def require_pinned(git: Git, url: str, tags: Sequence[ArchiveTag]) -> None:
    """Read the tags back from the server: each annotated, each peeling to its commit. Errors: refused."""
    theirs = read_refs(git, url, *(tag.ref for tag in tags))
    wrong = [tag for tag in tags if (found := theirs.get(tag.ref)) is None or found.peeled != tag.commit]
    if wrong:
        raise refused(
            [f"{tag.name} is not on the server as an annotated tag of {tag.commit[:12]}" for tag in wrong],
            "tools/recut publish   (repeats the push)",
            state=MOVED_NOTHING,
        )
