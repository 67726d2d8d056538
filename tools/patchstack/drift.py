"""How far upstream has moved past the base, which of that touches a patch, and which of it supersedes one.

It compares and reports; what a re-cut would do about it is planning.py's business.
"""

from __future__ import annotations

from collections.abc import Sequence

from command.errors import Outcome

from .facts import BranchFacts, Facts, landed_topic, topic_states
from .forecast import UpstreamRange
from .gather import gather
from .git import Git
from .settings import Settings
from .stack import Commit, Sha, TopicState, Value

SCHEMA = "recut.drift/1"


class DriftCommit(Value, frozen=True, kw_only=True):
    """An upstream commit after the base. `touches`: topic -> its files that this commit changes too."""

    commit: Sha
    subject: str
    touches: dict[str, tuple[str, ...]]


class NowSuperseded(Value, frozen=True, kw_only=True):
    """A patch that upstream has by now. `why`: how that is known."""

    topic: str
    patch: Sha
    subject: str
    upstream: Sha
    upstream_subject: str
    why: str


class Drift(Value, frozen=True, kw_only=True):
    """`commits` holds those that touch a patch, oldest first; `n_behind` counts all."""

    base: Sha
    base_release: str
    upstream_head: Sha
    n_behind: int
    topics: tuple[str, ...]
    """What was compared: the open and landed topics."""
    commits: tuple[DriftCommit, ...]
    superseded: tuple[NowSuperseded, ...]

    @property
    def outcome(self) -> Outcome:
        if self.commits:
            return Outcome.DRIFT_TOUCHES
        return Outcome.DRIFT if self.n_behind else Outcome.DONE


class PatchGroup(Value, frozen=True, kw_only=True):
    """The carried commits of one topic, and every path they change."""

    topic: str
    patches: tuple[Commit, ...]
    files: frozenset[str]


def read_drift(git: Git, settings: Settings, topics: Sequence[str] = ()) -> Drift:
    """Upstream's commits since the base of local. `topics`: only these, else every one that is carried.

    Errors: refused where the fork has no such topic or no remote.
    """
    facts = gather(git, settings, onto=None, topics=topics)
    base = facts.new_base
    groups = patch_groups(facts)
    if topics:
        asked = {settings.fork.topic_name(name) for name in topics}
        groups = [group for group in groups if group.topic in asked]
    return Drift(
        base=base,
        base_release=facts.old_release,
        upstream_head=facts.upstream_head,
        n_behind=int(git.text("rev-list", "--count", f"{base}..{facts.upstream_head}")),
        topics=tuple(group.topic for group in groups),
        commits=touching_commits(git, base, facts.upstream_head, groups),
        superseded=_now_superseded(git, settings, base, facts.upstream_head, groups),
    )


def patch_groups(facts: Facts) -> list[PatchGroup]:
    """The open topics, then the landed ones as local carries them."""
    states = topic_states(facts)
    groups = [
        _group(facts.settings.fork.topic_name(topic.branch), topic, topic.commits)
        for topic in facts.topics
        if states[topic.branch] is TopicState.OPEN
    ]
    landed: dict[str, list[Commit]] = {}
    for commit in facts.local.commits:
        topic = landed_topic(commit)
        if topic:
            landed.setdefault(topic, []).append(commit)
    return groups + [_group(topic, facts.local, commits) for topic, commits in landed.items()]


def _group(topic: str, branch: BranchFacts, commits: Sequence[Commit]) -> PatchGroup:
    files = frozenset(change.path for commit in commits for change in branch.changes[commit.sha])
    return PatchGroup(topic=topic, patches=tuple(commits), files=files)


def touching_commits(git: Git, base: Sha, head: Sha, groups: Sequence[PatchGroup]) -> tuple[DriftCommit, ...]:
    """Those of base..head that change a file of a group; a file moved away by upstream counts."""
    paths = sorted({path for group in groups for path in group.files})
    if not paths or base == head:
        return ()
    rows = git.text(
        "rev-list", "--reverse", "--topo-order", "--no-merges", f"{base}..{head}", "--",
        *(f":(literal,top){path}" for path in paths),
    )  # fmt: skip
    found = [Sha(row) for row in rows.split("\n") if row]
    changes = git.changes(found)
    rows_out = []
    for commit in git.commits(found):
        touched = {change.path for change in changes[commit.sha]}
        touches = {g.topic: tuple(sorted(touched & g.files)) for g in groups if touched & g.files}
        rows_out.append(DriftCommit(commit=commit.sha, subject=commit.subject, touches=touches))
    return tuple(rows_out)


def _now_superseded(
    git: Git, settings: Settings, base: Sha, head: Sha, groups: Sequence[PatchGroup]
) -> tuple[NowSuperseded, ...]:
    upstream = UpstreamRange(git, base, head, settings.prove.tests)
    rows = []
    for group in groups:
        for patch in group.patches:
            found = upstream.superseding(patch, becomes_empty=True)
            if found:
                rows.append(
                    NowSuperseded(
                        topic=group.topic,
                        patch=patch.sha,
                        subject=patch.subject,
                        upstream=found.commit.sha,
                        upstream_subject=found.commit.subject,
                        why=found.why,
                    )
                )
    return tuple(rows)
