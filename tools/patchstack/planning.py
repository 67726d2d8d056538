"""Makes the plan of a run: gathers facts, refuses with every reason at once, forecasts, names every id.

The commits that a plan names exist when it returns, as unreferenced objects; nothing else is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from command.errors import refused

from .bookkeeping import server_archive
from .facts import BranchFacts, Facts, landed_topic, local_kinds, topic_states
from .forecast import Job, Watcher, forecast_branches, ignore_patches
from .gather import gather
from .git import Git
from .pin import own_annotated_tags
from .plan import BranchPlan, Plan, with_id
from .record_commit import next_record, put_record
from .refusals import refusals, tag_refusals
from .remote import without_credentials
from .settings import Settings
from .stack import (
    ArchiveTag,
    CarriedRow,
    Commit,
    CommitKind,
    Identity,
    Move,
    Sha,
    TopicState,
    archive_label,
    branch_ref,
)


def plan_recut(
    git: Git,
    settings: Settings,
    *,
    onto: str,
    topics: Sequence[str] = (),
    identity: Identity | None = None,
    upstream_head: Sha | None = None,
    watch: Watcher = ignore_patches,
) -> Plan:
    """The plan of moving local and the open topics to `onto`.

    identity, upstream_head: where an earlier plan has fixed them.
    Errors: refused with all reasons; remote-moved where a branch moved while it was read.
    """
    facts = gather(git, settings, onto=onto, topics=topics, upstream_head=upstream_head)
    reasons = refusals(facts)
    tags = _recut_tags(facts)
    reasons += tag_refusals(facts, tags, own_annotated_tags(git))
    _refuse(reasons)
    jobs = recut_jobs(facts)
    branches = forecast_branches(git, jobs, tests=settings.prove.tests, watch=watch)
    if _is_in_place(facts, branches):
        raise refused(
            f"{facts.local.branch} and every topic sit on {facts.new_describe} already: there is nothing to move",
            "tools/recut record   # where only the record is out of date",
            "tools/recut plan --onto <a newer release of upstream's>",
        )
    draft = _draft("recut", facts, branches, tags, identity)
    draft = msgspec.structs.replace(
        draft, onto=onto, only_topics=tuple(topics), mirror=_mirror(facts), notes=_notes(facts, branches)
    )
    return with_id(_with_record(git, settings, draft))


def plan_land(
    git: Git,
    settings: Settings,
    topic: str,
    *,
    identity: Identity | None = None,
    upstream_head: Sha | None = None,
) -> Plan:
    """The plan of carrying a reviewed topic on local, a fast-forward of local."""
    facts = gather(git, settings, onto=None, topics=[topic], upstream_head=upstream_head)
    reasons = refusals(facts)
    (branch,) = facts.topics
    state = topic_states(facts)[branch.branch]
    if state is not TopicState.OPEN:
        reasons.append(f"{branch.branch} is {state.value} already")
    if branch.base != facts.local.base:
        reasons.append(
            f"{branch.branch} is cut from {str(branch.base)[:12]}, "
            f"local sits on {str(facts.local.base)[:12]}: "
            "re-cut it first, so that what lands is what was reviewed on this base"
        )
    name = settings.fork.topic_name(branch.branch)
    before = local_archive(facts, f"land-{archive_label(name)}")
    tags = (topic_archive(branch), before)
    reasons += tag_refusals(facts, tags, own_annotated_tags(git))
    _refuse(reasons)
    branches = forecast_branches(git, [land_job(facts)], tests=settings.prove.tests)
    draft = msgspec.structs.replace(_draft("land", facts, branches, tags, identity), topic=name)
    return with_id(_with_record(git, settings, draft))


def _draft(
    kind: str,
    facts: Facts,
    branches: tuple[BranchPlan, ...],
    tags: tuple[ArchiveTag, ...],
    identity: Identity | None,
) -> Plan:
    """What every plan that moves local says; its record is still to be made."""
    settings = facts.settings
    return Plan(
        kind=kind,
        push_url=without_credentials(facts.push_url),
        remote=settings.fork.remote,
        identity=identity or facts.identity,
        branches=branches,
        archive=tags,
        old_base=facts.local.base,
        new_base=facts.new_base,
        old_release=facts.old_release,
        new_release=facts.new_release,
        describe=facts.new_describe,
        base_date_s=facts.new_base_date_s,
        upstream_head=facts.upstream_head,
        record_file=settings.record.file,
        record_before=facts.record,
        archive_before=server_archive(facts.tags),
        writes_record=True,
    )


def _is_in_place(facts: Facts, branches: Sequence[BranchPlan]) -> bool:
    """Whether nothing but a new record would come of it."""
    *topics, local = branches
    return (
        facts.local.base == facts.new_base
        and all(branch.new == branch.old for branch in topics)
        and all(patch.new == patch.patch for patch in local.patches)
        and not any(row.kind is CommitKind.RELEASE for row in local.replaced)
    )


def _refuse(reasons: Sequence[str]) -> None:
    if reasons:
        raise refused(dict.fromkeys(reasons), "put right what is named above, then run the same command again")


def _recut_tags(facts: Facts) -> tuple[ArchiveTag, ...]:
    states = topic_states(facts)
    topics = [topic for topic in facts.topics if states[topic.branch] is TopicState.OPEN]
    tags = [*map(topic_archive, topics), local_archive(facts, "recut")]
    return tuple(dict.fromkeys(tags))


def recut_jobs(facts: Facts) -> list[Job]:
    """The branches to replay: open topics first, local last, so that its record can hold their new tips."""
    states = topic_states(facts)
    jobs = [
        Job(
            branch=topic.branch,
            old=topic.tip,
            base=_base(topic.base),
            onto=facts.new_base,
            patches=topic.commits,
            is_local=False,
            kinds={},
            topics={},
            new_base=facts.new_base,
        )
        for topic in facts.topics
        if states[topic.branch] is TopicState.OPEN
    ]
    kinds = local_kinds(facts)
    carried = [c for c in facts.local.commits if kinds[c.sha] in (CommitKind.LANDED, CommitKind.PLAIN)]
    left_out = [c for c in facts.local.commits if c not in carried]
    local = Job(
        branch=facts.local.branch,
        old=facts.local.tip,
        base=_base(facts.local.base),
        onto=facts.new_base,
        patches=tuple(carried),
        is_local=True,
        kinds=kinds,
        topics=_topics(carried),
        replaced=tuple(CarriedRow(commit=c.sha, kind=kinds[c.sha], subject=c.subject) for c in left_out),
        new_base=facts.new_base,
    )
    return [*jobs, local]


def land_job(facts: Facts) -> Job:
    (topic,) = facts.topics
    name = facts.settings.fork.topic_name(topic.branch)
    return Job(
        branch=facts.local.branch,
        old=facts.local.tip,
        base=_base(topic.base),
        onto=facts.local.tip,
        patches=topic.commits,
        is_local=True,
        kinds={commit.sha: CommitKind.LANDED for commit in topic.commits},
        topics={},
        land=name,
        new_base=_base(topic.base),
    )


def _topics(commits: Iterable[Commit]) -> dict[Sha, str]:
    return {commit.sha: topic for commit in commits if (topic := landed_topic(commit))}


def _base(base: Sha | None) -> Sha:
    if base is None:
        raise refused("a branch has no history in common with upstream")
    return base


def _mirror(facts: Facts) -> Move | None:
    branch = facts.settings.fork.mirror
    if not branch or not facts.mirror_can_follow:
        return None
    old = facts.heads[branch_ref(branch)].object
    if old == facts.upstream_head:
        return None
    return Move(branch=branch, old=old, new=facts.upstream_head)


def _notes(facts: Facts, branches: Sequence[BranchPlan]) -> tuple[str, ...]:
    settings, states = facts.settings, topic_states(facts)
    notes = [
        f"{topic.branch} is {states[topic.branch].value} and stays where it is"
        for topic in facts.topics
        if states[topic.branch] is not TopicState.OPEN
    ]
    rows = {row.topic: row for row in facts.record.topics} if facts.record else {}
    for topic in facts.topics:
        row = rows.get(settings.fork.topic_name(topic.branch))
        if states[topic.branch] is TopicState.LANDED and row and topic.tip not in (row.old, row.new):
            notes.append(
                f"{topic.branch} has moved since it landed: what was pushed since is carried nowhere; "
                "give it a topic of its own"
            )
    notes += [
        f"{branch.branch} would be empty on the new base, so it is pinned but not moved"
        for branch in branches
        if not branch.moves
    ]
    mirror = settings.fork.mirror
    if mirror and not facts.mirror_can_follow:
        known = branch_ref(mirror) in facts.heads
        why = f"has commits that upstream's {settings.upstream.branch} has not" if known else "is not there"
        notes.append(f"the mirror branch {mirror!r} {why}: it is left alone")
    return tuple(notes)


def _with_record(git: Git, settings: Settings, draft: Plan) -> Plan:
    """`draft` with the record it leads to, and its commit where every id below it is known."""
    *others, local = draft.branches
    below = local.new or local.onto
    value = next_record(git, settings, draft, draft.branches, below=below)
    draft = msgspec.structs.replace(draft, record_after=value)
    if any(branch.new is None for branch in draft.branches):
        return msgspec.structs.replace(draft, branches=(*others, msgspec.structs.replace(local, new=None)))
    commit = put_record(git, settings, draft, draft.branches).commit
    local = msgspec.structs.replace(local, new=commit)
    return msgspec.structs.replace(draft, branches=(*others, local), record_commit=commit)


def local_archive(facts: Facts, before: str) -> ArchiveTag:
    """`before`: recut, land-<topic>, release."""
    return ArchiveTag(label=f"{archive_label(facts.local.branch)}-pre-{before}", commit=facts.local.tip)


def topic_archive(topic: BranchFacts) -> ArchiveTag:
    return ArchiveTag(label=archive_label(topic.branch), commit=topic.tip)
