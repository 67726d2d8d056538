"""What the record will say after a run, from what it said before.

Pure: plans in, a record out. What it says from refs alone is bookkeeping.py's; its text form is record.py's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

import msgspec

from .plan import BranchPlan, PatchPlan, Plan
from .settings import Settings
from .stack import CarriedRow, CommitKind, DropRow, Record, RecutRow, TopicRow, TopicState


def day(date_s: int) -> str:
    return datetime.fromtimestamp(date_s, timezone.utc).strftime("%Y-%m-%d")


def recut_record(plan: Plan, settings: Settings, branches: Sequence[BranchPlan]) -> Record:
    """The record after a re-cut, from the one before it. All `branches` are resolved."""
    assert plan.new_base and plan.old_base
    *topics, local = branches
    before = plan.record_before or Record(base=plan.old_base)
    tags = {tag.commit: tag.name for tag in plan.archive}
    rows = {row.topic: row for row in before.topics}
    for branch in topics:
        name = settings.fork.topic_name(branch.branch)
        row = rows.get(name, TopicRow(topic=name))
        rows[name] = msgspec.structs.replace(
            row,
            old=branch.old,
            new=branch.new if branch.moves else None,
            archive_tag=tags[branch.old],
            state=TopicState.OPEN if branch.moves else _closed_state(branch),
            note=row.note if branch.moves else _notes_of(branch.patches),
        )
    for name, patches in _by_topic(local.patches).items():
        rows[name] = _carried_on(rows.get(name, TopicRow(topic=name)), patches)
    recut = RecutRow(
        date=day(plan.base_date_s),
        base_old=plan.old_base,
        base_new=plan.new_base,
        local_old=local.old,
        archive_tags=tuple(tag.name for tag in plan.archive),
    )
    return msgspec.structs.replace(
        before,
        base=plan.new_base,
        describe=plan.describe,
        base_date=day(plan.base_date_s),
        topics=tuple(rows[name] for name in sorted(rows)),
        carried=carried_rows(local.patches),
        recuts=(*before.recuts, recut),
        drops=before.drops + tuple(row for branch in branches for row in drop_rows(branch, settings)),
    )


def _by_topic(patches: Iterable[PatchPlan]) -> dict[str, list[PatchPlan]]:
    found: dict[str, list[PatchPlan]] = {}
    for patch in patches:
        if patch.topic:
            found.setdefault(patch.topic, []).append(patch)
    return found


def _carried_on(row: TopicRow, patches: Sequence[PatchPlan]) -> TopicRow:
    """A landed topic's row after a re-cut of the commits that local carries for it."""
    kept = [patch.new for patch in patches if patch.new]
    if any(patch.stops for patch in patches):
        return msgspec.structs.replace(row, state=TopicState.LANDED, new=None)
    if kept:
        return msgspec.structs.replace(row, state=TopicState.LANDED, new=kept[-1])
    withdrawn = any(patch.upstream is None for patch in patches)
    state = TopicState.WITHDRAWN if withdrawn else TopicState.SUPERSEDED
    return msgspec.structs.replace(row, state=state, new=None, note=_notes_of(patches))


def land_record(plan: Plan, settings: Settings, local: BranchPlan, carried: Sequence[CarriedRow]) -> Record:
    """The record after `land`: the topic is landed, local carries its commits."""
    assert plan.old_base
    before = plan.record_before or Record(base=plan.old_base, describe=plan.describe, base_date=day(plan.base_date_s))
    rows = {row.topic: row for row in before.topics}
    tip = next(tag for tag in plan.archive if tag.commit != local.old)
    rows[plan.topic] = msgspec.structs.replace(
        rows.get(plan.topic, TopicRow(topic=plan.topic)),
        old=tip.commit,
        new=local.patches[-1].new,
        archive_tag=tip.name,
        state=TopicState.LANDED,
    )
    return msgspec.structs.replace(
        before,
        topics=tuple(rows[name] for name in sorted(rows)),
        carried=(*carried, *carried_rows(local.patches)),
        drops=before.drops + drop_rows(local, settings),
    )


def carried_rows(patches: Iterable[PatchPlan]) -> tuple[CarriedRow, ...]:
    return tuple(
        CarriedRow(commit=p.new, kind=p.kind or CommitKind.LANDED, topic=p.topic, subject=p.subject)
        for p in patches
        if p.new
    )


def drop_rows(branch: BranchPlan, settings: Settings) -> tuple[DropRow, ...]:
    return tuple(
        DropRow(
            patch=patch.patch,
            topic=patch.topic or settings.fork.topic_name(branch.branch),
            subject=patch.subject,
            upstream=patch.upstream,
            pull_request=pull_request(patch.upstream_subject),
            reason=patch.upstream_subject or patch.note,
        )
        for patch in branch.patches
        if patch.new is None
    )


def pull_request(subject: str) -> str:
    """`#123` of a subject that ends in (#123), as forges write it."""
    head, mark, tail = subject.rstrip().rpartition("(#")
    return f"#{tail[:-1]}" if head and mark and tail.endswith(")") and tail[:-1].isdigit() else ""


def _closed_state(branch: BranchPlan) -> TopicState:
    withdrawn = any(patch.new is None and patch.upstream is None for patch in branch.patches)
    return TopicState.WITHDRAWN if withdrawn else TopicState.SUPERSEDED


def _notes_of(patches: Iterable[PatchPlan]) -> str:
    return "; ".join(dict.fromkeys(patch.note for patch in patches if patch.note and not patch.new))
