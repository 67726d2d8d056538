"""What a plan needs to know, as values, and what follows from them about commits and topics.

Pure: gather.py fills them in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .settings import Settings
from .stack import (
    RELEASE_TRAILER,
    TOPIC_TRAILER,
    Commit,
    CommitKind,
    FileChange,
    Identity,
    Record,
    RemoteRef,
    Sha,
    TopicState,
    Value,
)


class BranchFacts(Value, frozen=True, kw_only=True):
    """A branch on the server: its tip, the upstream commit it is cut from, its own commits, oldest first."""

    branch: str
    tip: Sha
    base: Sha | None
    """None: no history in common with upstream."""
    commits: tuple[Commit, ...]
    changes: Mapping[Sha, tuple[FileChange, ...]]

    def files(self) -> set[str]:
        return {change.path for changes in self.changes.values() for change in changes}


class Facts(Value, frozen=True, kw_only=True):
    """Everything read once, so that a plan is a function of it."""

    settings: Settings
    identity: Identity
    upstream_url: str
    push_url: str
    upstream_head: Sha
    releases: dict[str, Sha]
    """Upstream's release tags -> commit."""
    new_base: Sha
    new_base_from_upstream: bool
    heads: dict[str, RemoteRef]
    """Branches on the fork's server by full ref."""
    tags: dict[str, RemoteRef]
    """Tags on the fork's server by full ref."""
    local: BranchFacts
    topics: tuple[BranchFacts, ...]
    record_text: str | None
    record: Record | None
    record_error: str
    own_heads: dict[str, Sha]
    """refs/heads/ of this clone."""
    own_tags: dict[str, Sha]
    """refs/tags/ of this clone, as object ids."""
    own_unpushed: dict[str, int]
    """Branch -> commits that this clone's branch has and the server's has not."""
    old_release: str
    new_release: str
    new_describe: str
    """The new base as `git describe` would say it, from upstream's release tags alone."""
    new_base_date_s: int
    has_replaced_objects: bool
    mirror_can_follow: bool


class Servers(Value, frozen=True, kw_only=True):
    """What both servers show now."""

    upstream_url: str
    push_url: str
    upstream_head: Sha
    releases: dict[str, Sha]
    release_refs: dict[str, Sha]
    heads: dict[str, RemoteRef]
    tags: dict[str, RemoteRef]


def first_parents(graph: Mapping[Sha, Sequence[Sha]], tip: Sha) -> tuple[Sha | None, list[Sha]]:
    """(the first commit that is not in `graph`, those that are, newest first), along first parents.

    None: the history begins inside `graph`.
    """
    found: list[Sha] = []
    commit: Sha | None = tip
    while commit is not None and commit in graph:
        found.append(commit)
        commit = next(iter(graph[commit]), None)
    return commit, found


def landed_topic(commit: Commit) -> str | None:
    """The topic a commit of local came from, as its trailer says."""
    return commit.trailer(TOPIC_TRAILER)


def commit_kind(commit: Commit, files: Iterable[str], record_file: str) -> CommitKind:
    """What a commit of local is there for."""
    if commit.trailer(RELEASE_TRAILER):
        return CommitKind.RELEASE
    if set(files) == {record_file}:
        return CommitKind.RECORD
    return CommitKind.LANDED if landed_topic(commit) else CommitKind.PLAIN


def local_kinds(facts: Facts) -> dict[Sha, CommitKind]:
    local, record_file = facts.local, facts.settings.record.file
    return {
        commit.sha: commit_kind(commit, (c.path for c in local.changes[commit.sha]), record_file)
        for commit in local.commits
    }


def topic_states(facts: Facts) -> dict[str, TopicState]:
    """Branch -> state, of the topics on the server. A closed one whose branch moved since is open again."""
    fork = facts.settings.fork
    landed = {landed_topic(commit) for commit in facts.local.commits} - {None}
    rows = {row.topic: row for row in facts.record.topics} if facts.record else {}
    states = {}
    for topic in facts.topics:
        name = fork.topic_name(topic.branch)
        row = rows.get(name)
        closed = row is not None and row.state is not TopicState.OPEN and topic.tip in (row.old, row.new)
        if name in landed:
            states[topic.branch] = TopicState.LANDED
        elif row is not None and closed:
            states[topic.branch] = row.state
        else:
            states[topic.branch] = TopicState.OPEN
    return states
