"""Every reason why a stack cannot be moved as it is, all at once.

Pure: facts in, sentences out.
"""

from __future__ import annotations

from collections.abc import Iterable

from .facts import BranchFacts, Facts, topic_states
from .stack import RELEASE_TRAILER, ArchiveTag, Sha, TopicState, tag_ref


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
        reasons.append(f"a tag named {name!r} is in this clone, so that name means two things: git tag -d {name}")
    if tag_ref(name) in facts.tags:
        reasons.append(f"the server has a tag named {name!r} beside the branch")
    if name in facts.own_unpushed:
        count = facts.own_unpushed[name]
        reasons.append(
            f"your {name} has {count} commit{'s' * (count > 1)} that the server has not: push or drop them first"
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
            reasons.append(f"{tag.name} on the server {what}, it must be an annotated tag of {tag.commit[:12]}")
        if tag.ref in own_peeled and own_peeled[tag.ref] != tag.commit:
            ours = own_peeled[tag.ref]
            what = f"points at {ours[:12]}" if ours else "is a lightweight tag"
            reasons.append(f"{tag.name} in this clone {what}: git tag -d {tag.name}")
    return reasons
