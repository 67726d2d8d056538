"""Finds tips that no ref on the server reaches any more: in reflogs, journals, evidence files, the record.

Only tips that were on the server once, or that the record or evidence names, count: a commit that never left
this clone is nobody else's business and is not pushed.
"""

from __future__ import annotations

from collections.abc import Iterator

from command.errors import ToolError

from . import plan as planned
from . import record
from .evidence import ids_at, ids_in_checkout
from .gather import read_servers
from .git import Git
from .journal import Runs, final_moves
from .plan import Plan
from .remote import fetch_commit, fetch_objects, without_credentials
from .settings import Settings
from .stack import ArchiveTag, Identity, Sha, Value, archive_label, branch_ref

SCHEMA = "recut.archive/1"


class Tip(Value, frozen=True, kw_only=True):
    """A commit that should be pinned: the label for its tag, and where it was found."""

    commit: Sha
    label: str
    source: str


class Scan(Value, frozen=True, kw_only=True):
    """`unpinned`: to be archived; `lost`: named somewhere, but neither here nor to be had from the server."""

    unpinned: tuple[Tip, ...]
    lost: tuple[Tip, ...]
    n_seen: int

    @property
    def tags(self) -> tuple[ArchiveTag, ...]:
        return tuple(ArchiveTag(label=tip.label, commit=tip.commit) for tip in self.unpinned)


def scan(git: Git, settings: Settings, runs: Runs) -> Scan:
    """Look everywhere. Changes: only the object store, where missing commits are fetched."""
    servers = read_servers(git, settings)
    heads = {ref: value.object for ref, value in servers.heads.items()}
    tags = {ref: value.peeled or value.object for ref, value in servers.tags.items()}
    fetch_objects(git, servers.push_url, (heads | tags).items())
    fetch_objects(git, servers.upstream_url, [(branch_ref(settings.upstream.branch), servers.upstream_head)])
    local = heads.get(branch_ref(settings.fork.local))
    found: dict[Sha, Tip] = {}
    for tip in _candidates(git, settings, runs, local):
        found.setdefault(tip.commit, tip)
    lost = tuple(tip for tip in found.values() if not fetch_commit(git, servers.push_url, tip.commit))
    here = [commit for commit, tip in found.items() if tip not in lost]
    reached = [*heads.values(), *tags.values(), servers.upstream_head]
    reached += [c for c in servers.releases.values() if not git.missing([c])]
    names = "".join(f"{name}\n" for name in (*here, *(f"^{tip}" for tip in dict.fromkeys(reached))))
    outside = set(git.lines("rev-list", "--stdin", stdin=names.encode())) if here else set()
    unpinned = [commit for commit in here if commit in outside]
    if len(unpinned) > 1:
        tops = set(git.lines("merge-base", "--independent", *unpinned))
        unpinned = [commit for commit in unpinned if commit in tops]
    return Scan(
        unpinned=tuple(found[commit] for commit in unpinned),
        lost=tuple(tip for tip in lost if tip.source != "evidence files"),
        n_seen=len(found),
    )


def reflog_tips(git: Git, settings: Settings) -> dict[Sha, str]:
    """Commit -> branch, of everything the fork's tracking branches have shown, newest first."""
    fork = settings.fork
    prefix = f"refs/remotes/{fork.remote}/"
    refs = git.refs(prefix + fork.local, prefix + fork.topics)
    if not refs:
        return {}
    rows = git.lines("log", "--walk-reflogs", "--format=%H %gD", *refs, "--")
    found: dict[Sha, str] = {}
    for row in rows:
        commit, _, selector = row.partition(" ")
        found.setdefault(Sha(commit), selector.rpartition("@")[0].removeprefix(prefix))
    return found


def _candidates(git: Git, settings: Settings, runs: Runs, local: Sha | None) -> Iterator[Tip]:
    for commit, branch in reflog_tips(git, settings).items():
        yield Tip(commit=commit, label=archive_label(branch), source=f"reflog of {branch}")
    for run in runs.all():
        for move in final_moves(run) if run.has_done("ready") and run.has_begun("move") else []:
            for tip in (move.old, move.new):
                if tip:
                    yield Tip(commit=tip, label=archive_label(move.branch), source=f"run {run.id}")
    if local:
        yield from _recorded(git, settings, local)
    for commit in (*ids_in_checkout(git, settings), *(ids_at(git, settings, local) if local else ())):
        yield Tip(commit=commit, label="evidence", source="evidence files")


def _recorded(git: Git, settings: Settings, local: Sha) -> Iterator[Tip]:
    content = git.file(local, settings.record.file)
    if content is None:
        return
    try:
        value = record.parse(content.decode(errors="surrogateescape"))
    except ToolError:
        return
    for topic in value.topics:
        label = archive_label(settings.fork.topic_branch(topic.topic))
        for commit in (topic.old, topic.new):
            if commit:
                yield Tip(commit=commit, label=label, source=f"record: topic {topic.topic}")
    for recut in value.recuts:
        label = f"{archive_label(settings.fork.local)}-pre-recut"
        yield Tip(commit=recut.local_old, label=label, source=f"record: re-cut of {recut.date}")
    for row in value.evidence:
        yield Tip(commit=row.commit, label="evidence", source=f"record: evidence {row.what}")


def plan_archive(settings: Settings, push_url: str, identity: Identity, tags: tuple[ArchiveTag, ...]) -> Plan:
    """A run that only pins."""
    return planned.with_id(
        Plan(
            kind="archive",
            push_url=without_credentials(push_url),
            remote=settings.fork.remote,
            identity=identity,
            branches=(),
            archive=tags,
        )
    )
