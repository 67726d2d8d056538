"""One commit that joins local and all open topics, to build and test them together.

It is never a branch: `archive` pins it once evidence is made from it. Made in memory, the same inputs give
the same id.
"""

from __future__ import annotations

from command.errors import Outcome, StateError, refused

from .attributes import attributes_of
from .facts import BranchFacts, topic_states
from .gather import gather
from .git import Git
from .pick import merge_commits
from .settings import Settings
from .stack import Identity, Sha, TopicState, Value

SCHEMA = "recut.integrate/1"


class Integration(Value, frozen=True, kw_only=True):
    """`commit` has local and the topics' tips as its ancestors; `ref` keeps it alive in this clone."""

    commit: Sha
    local: Sha
    topics: tuple[str, ...]
    tips: tuple[Sha, ...]
    ref: str


def _join(git: Git, tip: Sha, topic: BranchFacts, identity: Identity, *, joined: list[str]) -> Sha:
    merged = merge_commits(git, tip, topic.tip)
    if merged.conflicts:
        raise StateError(
            Outcome.CONFLICT,
            [
                f"{topic.branch} does not merge with {', '.join(['local', *joined])}",
                *(f"in conflict: {path}" for path in merged.conflicts),
            ],
            next_steps=["adapt one of the topics, or land one and cut the other anew on the next base"],
        )
    date_s = max(commit.committer_date_s for commit in git.commits([tip, topic.tip]))
    ident = f"{identity} {date_s} +0000"
    raw = (
        f"tree {merged.tree}\nparent {tip}\nparent {topic.tip}\nauthor {ident}\ncommitter {ident}\n\n"
        f"Join {topic.branch}\n\nFor test builds only; never a branch.\n"
    )
    return git.write_commit(raw.encode())


def integrate(git: Git, settings: Settings) -> Integration:
    """Join them, topic after topic in the order of their names.

    Errors: conflict with the first topic that does not merge, naming the files; refused without open topics.
    """
    facts = gather(git, settings, onto=None)
    states = topic_states(facts)
    topics = [topic for topic in facts.topics if states[topic.branch] is TopicState.OPEN]
    if not topics:
        raise refused("there is no open topic to join with local", "tools/recut status")
    tip = facts.local.tip
    with attributes_of(git, tip) as sealed:
        for number, topic in enumerate(topics):
            tip = _join(sealed, tip, topic, facts.identity, joined=[t.branch for t in topics[:number]])
    ref = f"refs/recut/integrate/{tip[:12]}"
    git.keep(ref, tip)
    return Integration(
        commit=tip,
        local=facts.local.tip,
        topics=tuple(settings.fork.topic_name(topic.branch) for topic in topics),
        tips=tuple(topic.tip for topic in topics),
        ref=ref,
    )
