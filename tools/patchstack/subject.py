"""What is to be proved: a landed topic, an open one, or a single commit; which patches, in which tree."""

from __future__ import annotations

from command.errors import ToolError, refused, usage

from .exhibits import Exhibits, read_exhibits
from .facts import landed_topic
from .git import Git
from .settings import Settings
from .stack import Sha, Value


class Subject(Value, frozen=True, kw_only=True):
    """What is to be proved: `patches`, oldest first, as they are contained in `tip`."""

    name: str
    tip: Sha
    patches: tuple[Sha, ...]


def find_subject(git: Git, settings: Settings, what: str, *, at: str | None = None) -> Subject:
    """A landed topic where local (or `at`) carries it, an open topic's branch, or a commit, in that order.

    Where there is no stack to look into, a commit can still be proved.
    """
    try:
        exhibits = _exhibits(git, settings)
    except ToolError:
        if at is None and (commit := git.resolve(what)):
            return _single(git, what, commit)
        raise
    fork = settings.fork
    topic = fork.topic_name(what)
    tip = exhibits.local
    if at is not None:
        found = git.resolve(at)
        if found is None:
            raise usage(f"{at!r} is no commit here")
        tip = found
    base = exhibits.base_of(tip)
    commits = git.commits(git.range(base, tip)) if base else []
    landed = tuple(commit.sha for commit in commits if landed_topic(commit) == topic)
    if landed:
        return Subject(name=topic, tip=tip, patches=landed)
    if at is not None:
        raise refused(f"{at} carries no patch of a topic {topic!r}", f"tools/recut land {topic}")
    branch = exhibits.topics.get(topic)
    if branch:
        base = exhibits.base_of(branch)
        if base is None:
            raise refused(f"{fork.topic_branch(topic)} and upstream have no history in common")
        return Subject(name=topic, tip=branch, patches=tuple(git.range(base, branch)))
    commit = git.resolve(what)
    if commit is None:
        known = ", ".join(sorted(exhibits.topics)) or "none"
        raise usage(f"{what!r} is neither a topic nor a commit (topics: {known})")
    return _single(git, what, commit)


def _single(git: Git, what: str, commit: Sha) -> Subject:
    if len(git.commits([commit])[0].parents) != 1:
        raise refused(f"{what} is a merge or a first commit: there is no single change to take back")
    return Subject(name=what, tip=commit, patches=(commit,))


def _exhibits(git: Git, settings: Settings) -> Exhibits:
    """This clone's refs; the server's where the clone has no local."""
    try:
        return read_exhibits(git, settings, remote=False)
    except ToolError:
        return read_exhibits(git, settings, remote=True)
