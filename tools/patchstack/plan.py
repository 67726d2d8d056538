"""The plan of a run as a value, and the pure part of making one: what is refused, what the record will say.

Pure: facts and forecasts in, a plan out. It starts no git and reads no file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

import msgspec

from .errors import usage
from .facts import BranchFacts, Facts, landed_topic
from .settings import Settings
from .stack import (
    RELEASE_TRAILER,
    ArchiveTag,
    CarriedRow,
    Commit,
    CommitKind,
    DropRow,
    Identity,
    Move,
    PatchClass,
    Record,
    RecutRow,
    Sha,
    TopicRow,
    TopicState,
    Value,
    archive_label,
    tag_ref,
)

SCHEMA = "recut.plan/1"


class PatchPlan(Value, frozen=True, kw_only=True):
    """What becomes of one commit. `new` None: dropped, or known only after a conflict is resolved."""

    patch: Sha
    subject: str
    fate: PatchClass
    kind: CommitKind | None = None
    """For commits of local; None for a topic's."""
    topic: str = ""
    new: Sha | None = None
    upstream: Sha | None = None
    """The upstream commit that supersedes it (or, beside a conflict, may do so)."""
    upstream_subject: str = ""
    conflicts: tuple[str, ...] = ()
    note: str = ""

    @property
    def stops(self) -> bool:
        """Whether a run stops here for a person's decision."""
        return self.fate is PatchClass.CONFLICT


class BranchPlan(Value, frozen=True, kw_only=True):
    """One branch of a run: `patches` go, oldest first, onto `onto`. `new` None: known after resolution."""

    branch: str
    old: Sha
    base: Sha
    onto: Sha
    new: Sha | None
    moves: bool
    patches: tuple[PatchPlan, ...] = ()
    topic: str = ""
    """With `land`: the topic whose trailer the new commits get."""
    replaced: tuple[CarriedRow, ...] = ()
    """Record and release commits that are left out by name."""


class Plan(Value, frozen=True, kw_only=True):
    """Everything a run will do, with exact ids. `id` is a digest of all the rest."""

    kind: str
    """recut, land, undo, release or archive."""
    push_url: str
    remote: str
    """The fork's remote in this clone, whose tracking branches follow a publish."""
    identity: Identity
    branches: tuple[BranchPlan, ...]
    """Topics first, local last."""
    archive: tuple[ArchiveTag, ...]
    schema: str = SCHEMA
    id: str = ""
    onto: str = ""
    only_topics: tuple[str, ...] = ()
    topic: str = ""
    old_base: Sha | None = None
    new_base: Sha | None = None
    old_release: str = ""
    new_release: str = ""
    describe: str = ""
    base_date_s: int = 0
    upstream_head: Sha | None = None
    record_file: str = ""
    record_before: Record | None = None
    archive_before: tuple[ArchiveTag, ...] = ()
    """The archive tags on the server when planning."""
    record_after: Record | None = None
    """The tables of the record to come; an id that a resolution will decide is missing in it."""
    record_commit: Sha | None = None
    """None: no record is written, or its id is known only after resolution."""
    writes_record: bool = False
    mirror: Move | None = None
    release_tag: str = ""
    release_commit: Sha | None = None
    release_message: str = ""
    undoes: str = ""
    """The run that this one takes back."""
    notes: tuple[str, ...] = ()

    @property
    def n_conflicts(self) -> int:
        return sum(patch.stops for branch in self.branches for patch in branch.patches)

    @property
    def moves(self) -> list[Move]:
        """The branch moves whose new tip is known."""
        return [
            Move(branch=branch.branch, old=branch.old, new=branch.new)
            for branch in self.branches
            if branch.moves and branch.new and branch.new != branch.old
        ]

    @property
    def drops(self) -> list[PatchPlan]:
        return [p for b in self.branches for p in b.patches if p.fate is PatchClass.SUPERSEDED]


def with_id(plan: Plan) -> Plan:
    """`plan` with the id that its content gives."""
    bare = msgspec.structs.replace(plan, id="")
    digest = hashlib.sha256(msgspec.json.encode(bare, order="sorted")).hexdigest()
    return msgspec.structs.replace(plan, id=digest[:12])


def encode(plan: Plan) -> bytes:
    return msgspec.json.format(msgspec.json.encode(plan), indent=2) + b"\n"


def decode(text: bytes, *, source: str) -> Plan:
    """Errors: usage where it is no plan of this tool, or its content was edited."""
    try:
        plan = msgspec.json.decode(text, type=Plan)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise usage(f"{source} is not a plan: {error}", "tools/recut plan --onto REF -o plan.json") from error
    if plan.schema != SCHEMA or with_id(plan).id != plan.id:
        raise usage(f"{source} was changed after planning, or is of another schema: its id does not match")
    return plan


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


# What is refused


def refusals(facts: Facts) -> list[str]:
    """Every reason not to go on, at once; empty: go."""
    states = topic_states(facts)
    open_topics = [topic for topic in facts.topics if states[topic.branch] is TopicState.OPEN]
    reasons = []
    if facts.has_replaced_objects:
        reasons.append("this clone has replace refs or grafts, so its history is not the server's")
    if not facts.new_base_from_upstream:
        reasons.append(f"{facts.new_base[:12]} is neither on upstream's branch nor a tag of upstream's")
    reasons += _local_refusals(facts)
    for branch in (facts.local, *open_topics):
        reasons += _branch_refusals(facts, branch)
    for topic in open_topics:
        reasons += _topic_refusals(facts, topic)
    return reasons


def _local_refusals(facts: Facts) -> list[str]:
    local, record, file = facts.local, facts.record, facts.settings.record.file
    reasons = []
    if facts.record_error:
        reasons.append(f"{file} on {local.branch} cannot be read: {facts.record_error}")
    if record and local.base and record.base != local.base:
        reasons.append(
            f"{file} names the base {record.base[:12]}, but {local.branch} sits on {local.base[:12]}: "
            "the record was edited by hand, or upstream's history was rewritten"
        )
    reasons += [
        f"{commit.sha[:12]} ({commit.subject}) changes {file} together with other files; split it"
        for commit in local.commits
        if len(paths := {change.path for change in local.changes[commit.sha]}) > 1 and file in paths
        if not commit.trailer(RELEASE_TRAILER)
    ]
    return reasons


def _branch_refusals(facts: Facts, branch: BranchFacts) -> list[str]:
    name = branch.branch
    if branch.base is None:
        return [f"{name} has no history in common with upstream"]
    reasons = [
        f"{name}: {commit.sha[:12]} ({commit.subject}) is a merge; replaying it would flatten it"
        for commit in branch.commits
        if len(commit.parents) > 1
    ]
    reasons += [
        f"{name}: {commit.sha[:12]} ({commit.subject}) moves the submodule {change.path!r}"
        for commit in branch.commits
        for change in branch.changes[commit.sha]
        if change.is_submodule
    ]
    if tag_ref(name) in facts.own_tags:
        reasons.append(
            f"a tag named {name!r} is in this clone, so that name means two things: git tag -d {name}"
        )
    if tag_ref(name) in facts.tags:
        reasons.append(f"the server has a tag named {name!r} beside the branch")
    if name in facts.own_unpushed:
        count = facts.own_unpushed[name]
        reasons.append(
            f"your {name} has {count} commit{'s' * (count > 1)} that the server has not: "
            "push or drop them first"
        )
    return reasons


def _topic_refusals(facts: Facts, topic: BranchFacts) -> list[str]:
    file = facts.settings.record.file
    ours = {commit.sha for commit in facts.local.commits}
    reasons = []
    if any(commit.sha in ours for commit in topic.commits):
        reasons.append(
            f"{topic.branch} is cut from {facts.local.branch}, not from the upstream base: "
            f"git rebase --onto {str(topic.base)[:12]} {facts.local.tip[:12]} {topic.branch}"
        )
    if file in topic.files():
        reasons.append(f"{topic.branch} changes {file}, which only {facts.local.branch} may hold")
    if topic.base and not topic.commits:
        reasons.append(f"{topic.branch} has no commit over upstream: delete it, or push its commits")
    return reasons


def tag_refusals(facts: Facts, tags: Iterable[ArchiveTag], own_peeled: dict[str, Sha | None]) -> list[str]:
    """Archive tags that cannot be made: the name is taken by something else, here or on the server.

    own_peeled: full ref -> the commit of an annotated tag of this clone, None for a lightweight one.
    """
    reasons = []
    for tag in tags:
        theirs = facts.tags.get(tag.ref)
        if theirs and theirs.peeled != tag.commit:
            what = f"points at {theirs.peeled[:12]}" if theirs.peeled else "is a lightweight tag"
            reasons.append(
                f"{tag.name} on the server {what}, it must be an annotated tag of {tag.commit[:12]}"
            )
        if tag.ref in own_peeled and own_peeled[tag.ref] != tag.commit:
            ours = own_peeled[tag.ref]
            what = f"points at {ours[:12]}" if ours else "is a lightweight tag"
            reasons.append(f"{tag.name} in this clone {what}: git tag -d {tag.name}")
    return reasons


# What is pinned


def local_archive(facts: Facts, before: str) -> ArchiveTag:
    """`before`: recut, land-<topic>, release."""
    return ArchiveTag(label=f"{archive_label(facts.local.branch)}-pre-{before}", commit=facts.local.tip)


def topic_archive(topic: BranchFacts) -> ArchiveTag:
    return ArchiveTag(label=archive_label(topic.branch), commit=topic.tip)


# What the record will say


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
    before = plan.record_before or Record(
        base=plan.old_base, describe=plan.describe, base_date=day(plan.base_date_s)
    )
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


# What differs


def differences(planned: Plan, now: Plan) -> list[str]:
    """In words, what makes `now` another plan than `planned`."""
    reasons = []
    then_branches = {branch.branch: branch for branch in planned.branches}
    now_branches = {branch.branch: branch for branch in now.branches}
    for name in sorted(then_branches.keys() | now_branches.keys()):
        then, current = then_branches.get(name), now_branches.get(name)
        if then is None or current is None:
            reasons.append(f"{name} {'appeared' if then is None else 'is gone'} since the plan was made")
        elif then.old != current.old:
            reasons.append(
                f"{name} was {then.old[:12]} when planned and is {current.old[:12]} on the server now"
            )
        elif then != current:
            reasons.append(f"{name} would become {str(current.new)[:12]}, the plan says {str(then.new)[:12]}")
    for field in ("new_base", "push_url", "identity", "archive", "mirror", "upstream_head"):
        if getattr(planned, field) != getattr(now, field):
            reasons.append(f"{field.replace('_', ' ')} is not what the plan says")
    if not reasons and planned.id != now.id:
        reasons.append("the plan made now differs from the one given")
    return reasons
