"""Talking to a server: what refs it has, fetching objects, pushing with leases.

Everything goes by URL and full object ids: no tracking ref is read or written, no refspec of the user's
configuration applies. Reads use the push URL, for that is where the leases must hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from command.errors import Outcome, StateError, refused

from .git import Git
from .stack import Lease, RemoteRef, Sha, sha


def fetch_url(git: Git, remote: str) -> str:
    """Errors: refused where the remote is missing."""
    return _urls(git, remote)[0]


def push_url(git: Git, remote: str) -> str:
    """The one URL that pushes to `remote` go to. Errors: refused where there is none or several."""
    urls = _urls(git, remote, "--push")
    if len(urls) > 1:
        raise refused(
            f"remote {remote!r} has {len(urls)} push URLs; a move cannot be atomic over several servers",
            f"git remote set-url --push {remote} URL",
        )
    return urls[0]


def without_credentials(url: str) -> str:
    """`url` as it may be written down: without a name and password before the host."""
    return re.sub(r"^([a-z][a-z0-9+.-]*://)[^/@]*@", r"\1", url)


def _urls(git: Git, remote: str, *options: str) -> list[str]:
    result = git.run("remote", "get-url", "--all", *options, "--", remote, ok=(0, 2, 128))
    urls = [line for line in result.out.decode(errors="surrogateescape").split("\n") if line]
    if result.code or not urls:
        raise refused(f"there is no remote {remote!r}", f"git remote add {remote} URL")
    return urls


def read_refs(git: Git, url: str, *patterns: str) -> dict[str, RemoteRef]:
    """Full ref name -> what the server has now, for refs matching the patterns (refs/heads/topic/*, say)."""
    # A pattern that names one tag leaves out the line of what it points at, unless that is asked for too.
    peeled = [f"{name}^{{}}" for name in patterns if name.startswith("refs/tags/") and "*" not in name]
    result = git.run("ls-remote", "--end-of-options", url, *patterns, *peeled)
    found: dict[str, RemoteRef] = {}
    for row in result.out.decode(errors="surrogateescape").split("\n"):
        value, _, name = row.partition("\t")
        if name.endswith("^{}"):
            name = name[:-3]
            found[name] = RemoteRef(found[name].object, sha(value))
        elif name:
            found[name] = RemoteRef(sha(value), None)
    return found


def fetch_objects(git: Git, url: str, wanted: Iterable[tuple[str, Sha]]) -> None:
    """Bring the commits that are not here; `wanted` pairs a ref on the server with what it points at.

    Changes: only the object store; no ref, no FETCH_HEAD.
    Errors: remote-moved where a ref no longer has that commit.
    """
    pairs = list(wanted)
    absent = set(git.missing(commit for _, commit in pairs))
    if not absent:
        return
    names = sorted({ref for ref, commit in pairs if commit in absent})
    git.run(
        "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-gc", "--refmap=",
        "--end-of-options", url, *names,
    )  # fmt: skip
    still = git.missing(absent)
    if still:
        raise StateError(
            Outcome.REMOTE_MOVED,
            [f"{without_credentials(url)} no longer shows {commit}: somebody pushed just now" for commit in still],
            next_steps=["run the same command again"],
        )


def fetch_commit(git: Git, url: str, commit: Sha) -> bool:
    """Bring one commit by its id, which a server may refuse. False: it could not be had."""
    if not git.missing([commit]):
        return True
    git.run(
        "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-gc", "--refmap=",
        "--end-of-options", url, commit, ok=range(256),
    )  # fmt: skip
    return not git.missing([commit])


class PushRow(tuple[str, str, str]):
    """(flag, destination ref, what the server said) of one line of `git push --porcelain`."""

    __slots__ = ()

    @property
    def is_rejected(self) -> bool:
        return self[0] == "!"

    @property
    def ref(self) -> str:
        return self[1]

    @property
    def said(self) -> str:
        return self[2]


class PushResult:
    """The end of one push: `code` 0 is done; `rows` has one line per ref; `err` is git's own text."""

    def __init__(self, code: int, rows: Sequence[PushRow], err: str) -> None:
        self.code = code
        self.rows = tuple(rows)
        self.err = err

    @property
    def rejected(self) -> list[PushRow]:
        return [row for row in self.rows if row.is_rejected]


def push(git: Git, url: str, sources: Sequence[tuple[Sha, str]], leases: Sequence[Lease]) -> PushResult:
    """Push object ids to full refs in one atomic push, each with its own lease where `leases` names it.

    A ref without a lease moves only by fast-forward. Never forced: neither `--force` nor a plus sign,
    which would defeat a lease.
    """
    result = git.run(
        "push", "--atomic", "--porcelain", "--no-follow-tags", "--no-verify", "--no-signed",
        *(lease.option for lease in leases), "--end-of-options", url,
        *(f"{value}:{ref}" for value, ref in sources),
        ok=range(256),
    )  # fmt: skip
    rows = []
    for line in result.out.decode(errors="replace").split("\n"):
        fields = line.split("\t")
        if len(fields) >= 3 and len(fields[0]) == 1:
            rows.append(PushRow((fields[0], fields[1].rpartition(":")[2], fields[2])))
    return PushResult(result.code, rows, result.err)


def lease_lost(reasons: Sequence[str]) -> StateError:
    return StateError(
        Outcome.REMOTE_MOVED,
        [*reasons, "somebody pushed there meanwhile; their commits are untouched"],
        state=MOVED_NOTHING,
        next_steps=["tools/recut abort", "tools/recut plan --onto REF   (it will take in what they pushed)"],
    )


def push_error(result: PushResult, url: str, what: str) -> StateError:
    """The error that a push which moved nothing comes to."""
    said = [f"{row.ref}: {row.said}" for row in result.rejected]
    if any("stale info" in row.said or "already exists" in row.said for row in result.rejected):
        return lease_lost([row for row in said if "atomic push failed" not in row])
    if "does not support --atomic" in result.err:
        return refused(
            f"{url} cannot push atomically, and one ref at a time could leave the stack half moved",
            "publish to a server that supports atomic pushes",
            state=MOVED_NOTHING,
        )
    return StateError(
        Outcome.GIT_FAILED,
        [f"the server declined {what}", *said, *result.err.splitlines()],
        state=MOVED_NOTHING,
        next_steps=["ask for the right to push there, then: tools/recut continue", "tools/recut abort"],
    )


MOVED_NOTHING = "No branch has moved, on the server or here. Archive tags are only ever added."
