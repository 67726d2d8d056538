"""The commit on top of local that holds the record of a run."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from . import record
from .facts import commit_kind, landed_topic
from .git import Git
from .pick import Spot, own_commit
from .pins import pins_at
from .plan import BranchPlan, Plan
from .recording import land_record, recut_record
from .settings import Settings
from .stack import CarriedRow, CommitKind, Record, Sha


def next_record(git: Git, settings: Settings, plan: Plan, branches: Sequence[BranchPlan], *, below: Sha) -> Record:
    """The record after the run, local last; `below` is the commit whose project file has the pins."""
    local = branches[-1]
    if plan.kind == "land":
        value = land_record(plan, settings, local, _carried_below(git, plan, local))
    else:
        value = recut_record(plan, settings, branches)
    pinned = {tag.name: tag for tag in (*plan.archive_before, *plan.archive)}
    return msgspec.structs.replace(
        value,
        pins=pins_at(git, settings.pins, below),
        archive=tuple(pinned[name] for name in sorted(pinned)),
    )


def put_record(git: Git, settings: Settings, plan: Plan, branches: Sequence[BranchPlan]) -> Spot:
    """The record commit on top of local's replayed commits; `branches` are all resolved, local last."""
    local = branches[-1]
    assert local.new
    (below,) = git.commits([local.new])
    value = next_record(git, settings, plan, branches, below=below.sha)
    content = record.render(value, record_text(git, plan.record_file, local.old))
    tree = git.with_file(below.tree, plan.record_file, content.encode(errors="surrogateescape"))
    landed = plan.kind == "land"
    title = f"Record that {plan.topic} has landed" if landed else f"Record the re-cut onto {plan.describe}"
    return own_commit(
        git,
        tree,
        below.sha,
        plan.identity,
        date_s=max(plan.base_date_s, below.committer_date_s),
        message=_record_message(title, plan, local),
    )


def record_text(git: Git, path: str, commit: Sha) -> str:
    content = git.file(commit, path)
    return content.decode(errors="surrogateescape") if content is not None else ""


def _record_message(title: str, plan: Plan, local: BranchPlan) -> str:
    left_out = [f"  {row.kind.value} {row.commit[:12]} {row.subject}" for row in local.replaced]
    body = [f"{local.branch} was {local.old}.", f"Base: {plan.new_base} ({plan.describe})."]
    if left_out:
        body += ["Left out, to be made anew:", *left_out]
    return "\n".join([title, "", *body, ""])


def _carried_below(git: Git, plan: Plan, local: BranchPlan) -> list[CarriedRow]:
    """What local carries already, without records and releases."""
    assert plan.old_base
    own = git.range(plan.old_base, local.old)
    changes = git.changes(own)
    rows = []
    for commit in git.commits(own):
        kind = commit_kind(commit, (c.path for c in changes[commit.sha]), plan.record_file)
        if kind in (CommitKind.LANDED, CommitKind.PLAIN):
            topic = landed_topic(commit) or ""
            rows.append(CarriedRow(commit=commit.sha, kind=kind, topic=topic, subject=commit.subject))
    return rows
