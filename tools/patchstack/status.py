"""Where the stack stands, from this clone alone: no server is asked, so it answers at once.

What the servers have now is for `drift`, `plan` and `verify`; the class of each patch is the last plan's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from command.errors import ToolError, refused

from . import record
from .facts import first_parents, landed_topic
from .gather import base_release, describe
from .git import Git
from .journal import Runs, ways_on
from .plan import Plan
from .scan import reflog_tips
from .settings import Settings
from .stack import Commit, FileChange, LocalRelease, Record, Sha, TopicState, Value, parse_release

SCHEMA = "recut.status/1"


class TopicStatus(Value, frozen=True, kw_only=True):
    """One topic branch. `touched`: its files that upstream changed; `classes`: as the last plan had them."""

    topic: str
    tip: Sha
    state: TopicState
    n_ahead: int
    touched: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()


class RunStatus(Value, frozen=True, kw_only=True):
    """The run in progress and the commands that are open now."""

    id: str
    kind: str
    phase: str
    worktree: str = ""
    next: tuple[str, ...] = ()


class Status(Value, frozen=True, kw_only=True):
    """The stack as this clone sees it."""

    base: Sha
    describe: str
    base_release: str
    local: Sha
    n_carried: int
    upstream: Sha
    n_behind: int
    topics: tuple[TopicStatus, ...]
    unpinned: tuple[Sha, ...]
    next_release: str
    run: RunStatus | None


def read_status(git: Git, settings: Settings, runs: Runs) -> Status:
    """Errors: refused where a remote is missing or was never fetched, with all that is missing."""
    upstream, local, tips = _tips(git, settings)
    recorded = _record(git, settings, local)
    known = [upstream, *([recorded.base] if recorded and not git.missing([recorded.base]) else [])]
    own = git.graph([local, *tips.values()], without=known)
    local_base, local_own = first_parents(own, local)
    base = local_base
    if base is None:
        raise refused(f"{settings.fork.local} and upstream have no history in common")
    every = list(own)
    commits = dict(zip(every, git.commits(every), strict=True))
    changes = git.changes(every)
    n_behind = int(git.text("rev-list", "--count", f"{base}..{upstream}"))
    # A tracking branch that was not fetched since the last re-cut is older than the base: no drift is known.
    drifted = {change.path for change in git.tree_changes(base, upstream)} if n_behind else set()
    described, release = _described(git, settings, base, recorded)
    landed = {landed_topic(commits[commit]) for commit in local_own} - {None}
    run = runs.current()
    return Status(
        base=base,
        describe=described,
        base_release=release,
        local=local,
        n_carried=sum(_is_carried(commits[c], changes[c], settings) for c in local_own),
        upstream=upstream,
        n_behind=n_behind,
        topics=_topics(settings, tips, own, changes, drifted, landed, _last_plan(runs), recorded),
        unpinned=tuple(unpinned_here(git, settings)),
        next_release=next_local_release(release, git.refs("refs/tags/")) if release else "",
        run=RunStatus(
            id=run.id,
            kind=run.plan.kind,
            phase=run.phase,
            worktree=str(run.worktree) if run.stopped else "",
            next=tuple(ways_on(run)),
        )
        if run
        else None,
    )


def _last_plan(runs: Runs) -> Plan | None:
    """The last plan; one that cannot be read is no reason for status to say nothing."""
    try:
        return runs.last_plan()
    except ToolError:
        return None


def _tips(git: Git, settings: Settings) -> tuple[Sha, Sha, dict[str, Sha]]:
    """(upstream, local, topic branch -> tip) as last fetched, or of this clone where it has it alone."""
    fork, upstream = settings.fork, settings.upstream
    reasons, steps = [], []
    remotes = git.remotes()
    for name in (upstream.remote, fork.remote):
        if name not in remotes:
            reasons.append(f"there is no remote {name!r}")
            steps.append(f"git remote add {name} URL && git fetch {name}")
    tracking = f"refs/remotes/{upstream.remote}/{upstream.branch}"
    seen = git.refs(tracking, f"refs/remotes/{fork.remote}/", "refs/heads/")
    if tracking not in seen and upstream.remote in remotes:
        reasons.append(f"upstream's branch {upstream.branch!r} was never fetched")
        steps.append(f"git fetch --tags {upstream.remote}")
    theirs = {
        ref.removeprefix(f"refs/remotes/{fork.remote}/"): value
        for ref, value in seen.items()
        if ref.startswith(f"refs/remotes/{fork.remote}/")
    }
    ours = {ref[len("refs/heads/") :]: value for ref, value in seen.items() if ref.startswith("refs/heads/")}
    branches = ours | theirs
    if fork.local not in branches:
        reasons.append(f"there is no branch {fork.local!r}")
        steps.append(f"git fetch {fork.remote}")
    if reasons:
        raise refused(reasons, *steps)
    topics = {name: tip for name, tip in sorted(branches.items()) if name.startswith(fork.topics)}
    return seen[tracking], branches[fork.local], topics


def _is_carried(commit: Commit, changes: Sequence[FileChange], settings: Settings) -> bool:
    from .facts import commit_kind

    kind = commit_kind(commit, (change.path for change in changes), settings.record.file)
    return kind.value in ("landed", "plain")


def _topics(
    settings: Settings,
    tips: Mapping[str, Sha],
    own: Mapping[Sha, tuple[Sha, ...]],
    changes: Mapping[Sha, Sequence[FileChange]],
    drifted: set[str],
    landed: set[str | None],
    last: Plan | None,
    rows: Record | None,
) -> tuple[TopicStatus, ...]:
    classes = {b.old: tuple(p.fate.value for p in b.patches) for b in last.branches} if last else {}
    found = []
    for branch, tip in tips.items():
        name = settings.fork.topic_name(branch)
        _, commits = first_parents(own, tip)
        files = {change.path for commit in commits for change in changes[commit]}
        row = next((row for row in rows.topics if row.topic == name), None) if rows else None
        state = TopicState.OPEN
        if name in landed:
            state = TopicState.LANDED
        elif row and row.state is not TopicState.OPEN and tip in (row.old, row.new):
            state = row.state
        found.append(
            TopicStatus(
                topic=name,
                tip=tip,
                state=state,
                n_ahead=len(commits),
                touched=tuple(sorted(files & drifted)),
                classes=classes.get(tip, ()),
            )
        )
    return tuple(found)


def _described(git: Git, settings: Settings, base: Sha, recorded: Record | None) -> tuple[str, str]:
    """(describe, release) of the base: as the record has it, for a clone may lack upstream's newest tags."""
    if recorded and recorded.base == base and recorded.describe:
        release = re.sub(r"-\d+-g[0-9a-f]+$", "", recorded.describe)
        return recorded.describe, release if settings.upstream.is_release(release) else ""
    releases = own_releases(git, settings)
    release = base_release(git, releases, base)
    return describe(git, releases, release, base), release


def _record(git: Git, settings: Settings, local: Sha) -> Record | None:
    content = git.file(local, settings.record.file)
    try:
        return record.parse(content.decode(errors="surrogateescape")) if content is not None else None
    except ToolError:
        return None


def own_releases(git: Git, settings: Settings) -> dict[str, Sha]:
    """Upstream's release tags as far as this clone has them -> commit."""
    rows = git.lines("for-each-ref", "--format=%(refname) %(objectname) %(*objectname)", "refs/tags/")
    found = {}
    for row in rows:
        ref, value, *peeled = row.split(" ")
        if settings.upstream.is_release(ref[len("refs/tags/") :]):
            found[ref[len("refs/tags/") :]] = Sha(peeled[0] if peeled and peeled[0] else value)
    return found


def next_local_release(base: str, tags: Mapping[str, object]) -> str:
    """`v<base>-local<NN>` with the number after the highest among `tags` (full refs)."""
    numbers = [0]
    for ref in tags:
        try:
            release = parse_release(ref.removeprefix("refs/tags/"))
        except ToolError:
            continue
        if isinstance(release, LocalRelease) and release.base == base:
            numbers.append(release.number)
    return LocalRelease(base=base, number=max(numbers) + 1).name


def unpinned_here(git: Git, settings: Settings) -> list[Sha]:
    """Tips that were on the server once, as the reflogs say, and that no ref of this clone reaches now."""
    tips = list(reflog_tips(git, settings))
    if not tips:
        return []
    names = "".join(f"{tip}\n" for tip in tips)
    lost = set(git.lines("rev-list", "--stdin", "--not", "--all", stdin=names.encode()))
    return [tip for tip in tips if tip in lost]
