"""The nouns of a patch stack, as frozen values. Pure: no git, no files, no clock.

Branch names are short (`local`, `topic/no-batch-500`); a ref is a full name (`refs/heads/local`).
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple, NewType

import msgspec

from command.errors import refused, usage

Sha = NewType("Sha", str)
"""A full object id, 40 (or 64) lower-case hex digits."""

TOPIC_TRAILER = "Recut-Topic"
RELEASE_TRAILER = "Recut-Release"
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def sha(text: str) -> Sha:
    """The full object id in `text`; a short or upper-case one is refused."""
    if not _SHA.fullmatch(text):
        raise usage(f"{text!r} is not a full object id")
    return Sha(text)


def is_sha(text: str) -> bool:
    return _SHA.fullmatch(text) is not None


def branch_ref(branch: str) -> str:
    return f"refs/heads/{branch}"


def tag_ref(tag: str) -> str:
    return f"refs/tags/{tag}"


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen value that msgspec writes as JSON and reads back checked."""


class Identity(Value, frozen=True, kw_only=True):
    """Who makes record commits and tags."""

    name: str
    email: str

    def __str__(self) -> str:
        return f"{self.name} <{self.email}>"


class Commit(Value, frozen=True, kw_only=True):
    """A commit as read from the object store. Dates are seconds since 1970; zones as git writes them."""

    sha: Sha
    tree: Sha
    parents: tuple[Sha, ...]
    author: str
    author_date_s: int
    author_zone: str
    committer: str
    committer_date_s: int
    raw: bytes
    """The whole object, so that a replay keeps message bytes and encoding as they are."""

    @property
    def message(self) -> str:
        return self.raw.partition(b"\n\n")[2].decode(errors="replace")

    @property
    def subject(self) -> str:
        return self.message.lstrip("\n").partition("\n")[0].strip()

    def trailer(self, key: str) -> str | None:
        """The last `key: value` of the message's last paragraph."""
        paragraph = self.message.rstrip().rpartition("\n\n")[2]
        found = re.findall(rf"^{re.escape(key)}:[ \t]*(.+?)[ \t]*$", paragraph, re.MULTILINE | re.IGNORECASE)
        return str(found[-1]) if found else None


class CommitKind(Enum):
    """What a commit of `local` is there for."""

    LANDED = "landed"
    PLAIN = "plain"
    RECORD = "record"
    RELEASE = "release"


class PatchClass(Enum):
    """What a re-cut does to one patch."""

    UNTOUCHED = "untouched"
    ADAPTED = "adapted"
    SUPERSEDED = "superseded"
    PARTLY_SUPERSEDED = "partly superseded"
    EMPTY = "empty"
    CONFLICT = "conflict"


class TopicState(Enum):
    OPEN = "open"
    LANDED = "landed"
    SUPERSEDED = "superseded"
    WITHDRAWN = "withdrawn"


class ArchiveTag(Value, frozen=True, kw_only=True):
    """`archive/<label>-<7 hex>`: an annotated tag that pins one tip for good."""

    label: str
    commit: Sha

    @property
    def name(self) -> str:
        return f"archive/{self.label}-{self.commit[:7]}"

    @property
    def ref(self) -> str:
        return tag_ref(self.name)


_ARCHIVE_NAME = re.compile(r"archive/(?P<label>[A-Za-z0-9][A-Za-z0-9._-]*)-(?P<short>[0-9a-f]{7})")


def is_archive_name(name: str) -> bool:
    return _ARCHIVE_NAME.fullmatch(name) is not None and ".." not in name and not name.endswith(".lock")


def parse_archive_name(name: str) -> tuple[str, str]:
    """(label, 7 hex) of an archive tag's name, or a refusal."""
    found = _ARCHIVE_NAME.fullmatch(name)
    if not found or not is_archive_name(name):
        raise refused(f"{name!r} is not an archive tag: the form is archive/<label>-<7 hex>")
    return found["label"], found["short"]


def archive_label(text: str) -> str:
    """`text` (a branch name, say) as a label: slashes and anything unusual become dashes."""
    label = re.sub(r"\.{2,}", ".", re.sub(r"[^A-Za-z0-9._-]+", "-", text)).strip("-.")
    if not label:
        raise usage(f"{text!r} cannot be used as a label")
    return label


class LocalRelease(Value, frozen=True, kw_only=True):
    """`v<base release>-local<NN>`: upstream's release with the local patches on it."""

    base: str
    number: int

    @property
    def name(self) -> str:
        return f"{self.base}-local{self.number:02d}"

    def __lt__(self, other: LocalRelease) -> bool:
        return (version_key(self.base), self.number) < (version_key(other.base), other.number)


class DevelRelease(Value, frozen=True, kw_only=True):
    """`<base release>.<YYYYMMDD>`: upstream at a date, without local patches."""

    base: str
    date: str

    @property
    def name(self) -> str:
        return f"{self.base}.{self.date}"

    def __lt__(self, other: DevelRelease) -> bool:
        return (version_key(self.base), self.date) < (version_key(other.base), other.date)


_VERSION = r"v\d+(?:\.\d+)*(?:[.-]?(?:a|b|rc|alpha|beta|post|pre)\.?\d*)*"
_DATE = r"(?:19|20)\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])"
_LOCAL = re.compile(rf"(?P<base>{_VERSION})-local(?P<number>\d{{2,}})")
_DEVEL = re.compile(rf"(?P<base>{_VERSION})\.(?P<date>{_DATE})")


def parse_release(name: str) -> LocalRelease | DevelRelease:
    """The release that a tag name says, or a refusal. The mixed form (a date and -localNN) is refused."""
    local = _LOCAL.fullmatch(name)
    devel = _DEVEL.fullmatch(local["base"] if local else name)
    if local and devel:
        raise refused(f"{name!r} mixes a devel date with local patches; a release is one or the other")
    if local and int(local["number"]) > 0:
        return LocalRelease(base=local["base"], number=int(local["number"]))
    if devel:
        return DevelRelease(base=devel["base"], date=devel["date"])
    raise refused(f"{name!r} is no release of this fork: v<base>-local<NN> or <base>.<YYYYMMDD>")


def is_upstream_release(tag: str) -> bool:
    """Whether a tag name can be an upstream release: `-local`, `archive/` and dated forms cannot."""
    return bool(re.fullmatch(_VERSION, tag)) and not _DEVEL.fullmatch(tag)


def version_key(tag: str) -> tuple[object, ...]:
    """Sort key of an upstream release tag; git's own order is at the mercy of versionsort.suffix."""
    from packaging.version import InvalidVersion, Version

    try:
        return (1, Version(tag))
    except InvalidVersion:
        return (0, tuple(int(digits) for digits in re.findall(r"\d+", tag)), tag)


class Lease(Value, frozen=True, kw_only=True):
    """What the server must still have for a ref to move; None: it must not exist."""

    ref: str
    expect: Sha | None

    @property
    def option(self) -> str:
        return f"--force-with-lease={self.ref}:{self.expect or ''}"


class Move(Value, frozen=True, kw_only=True):
    """One branch from its old tip, which is its lease, to its new one. None: the branch does not exist."""

    branch: str
    old: Sha | None
    new: Sha

    @property
    def ref(self) -> str:
        return branch_ref(self.branch)

    @property
    def lease(self) -> Lease:
        return Lease(ref=self.ref, expect=self.old)


class FileChange(NamedTuple):
    """One path that a commit changes; modes are six octal digits, 000000 where the file is absent."""

    path: str
    old_mode: str
    new_mode: str
    status: str

    @property
    def is_submodule(self) -> bool:
        return "160000" in (self.old_mode, self.new_mode)


class RemoteRef(NamedTuple):
    """A ref as a server shows it; `peeled` is what an annotated tag points at."""

    object: Sha
    peeled: Sha | None


# What UPSTREAM.md holds. The text form is record.py's; a re-cut makes the next value from the last one.


class Pin(Value, frozen=True, kw_only=True):
    """A dependency the project file fixes, as both files write it."""

    name: str
    requirement: str


class TopicRow(Value, frozen=True, kw_only=True):
    topic: str
    issue: str = ""
    pull_request: str = ""
    old: Sha | None = None
    new: Sha | None = None
    archive_tag: str = ""
    state: TopicState = TopicState.OPEN
    note: str = ""


class CarriedRow(Value, frozen=True, kw_only=True):
    """A commit of `local` below its record, oldest first; `topic` for a landed patch."""

    commit: Sha
    kind: CommitKind
    topic: str = ""
    subject: str = ""


class RecutRow(Value, frozen=True, kw_only=True):
    """One finished re-cut: `date` is YYYY-MM-DD; `local_old` is where local was before."""

    date: str
    base_old: Sha
    base_new: Sha
    local_old: Sha
    archive_tags: tuple[str, ...] = ()


class DropRow(Value, frozen=True, kw_only=True):
    """A patch no longer carried: superseded by `upstream`, or withdrawn (upstream None) for `reason`."""

    patch: Sha
    topic: str = ""
    subject: str = ""
    upstream: Sha | None = None
    pull_request: str = ""
    reason: str = ""


class EvidenceRow(Value, frozen=True, kw_only=True):
    """What was built from which commit; sha256 of the artefact."""

    what: str
    commit: Sha
    sha256: str


class Record(Value, frozen=True, kw_only=True):
    """All the tables of UPSTREAM.md. `describe` and `base_date` (YYYY-MM-DD) speak of `base`."""

    base: Sha
    describe: str = ""
    base_date: str = ""
    pins: tuple[Pin, ...] = ()
    topics: tuple[TopicRow, ...] = ()
    carried: tuple[CarriedRow, ...] = ()
    recuts: tuple[RecutRow, ...] = ()
    archive: tuple[ArchiveTag, ...] = ()
    """Every archive tag on the server when the record was made, and those its run added; by name."""
    drops: tuple[DropRow, ...] = ()
    evidence: tuple[EvidenceRow, ...] = ()
