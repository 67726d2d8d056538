"""The checks of branches against the record: what local and the old locals are made of, what landed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from command.errors import ToolError

from . import record as page
from .exhibits import Exhibits
from .facts import landed_topic
from .finding import NO_RECORD, Finding, found, not_checked
from .stack import (
    Commit,
    CommitKind,
    Record,
    Sha,
    TopicRow,
    TopicState,
    archive_label,
)


def local(exhibits: Exhibits) -> Finding:
    record = exhibits.record
    if record is None:
        return not_checked(NO_RECORD)
    base = exhibits.base_of(exhibits.local)
    problems = _stack_problems(exhibits, exhibits.local, record)
    if base is None:
        problems.append("local and upstream have no history in common")
    elif base != record.base:
        problems.append(f"local sits on upstream's {base[:12]}, the record says {record.base[:12]}")
    released = [commit for commit, kind in exhibits.carried if kind is CommitKind.RELEASE]
    notes = [f"release commit {c.sha[:12]} ({c.subject}) goes with the next re-cut" for c in released]
    return found(problems, notes=notes)


def old_locals(exhibits: Exhibits) -> Finding:
    record = exhibits.record
    if record is None:
        return not_checked(NO_RECORD)
    tags = {tag.name: tag for tag in record.archive}
    problems: list[str] = []
    notes: list[str] = []
    for row in record.recuts:
        pinned = [tags[name].commit for name in row.archive_tags if name in tags]
        if row.local_old not in pinned:
            problems.append(f"no archive tag of the re-cut of {row.date} pins its old local {row.local_old[:12]}")
    for name, commit in _archived_locals(exhibits, record):
        if exhibits.git.missing([commit]):
            problems.append(f"{name}: commit {commit[:12]} is lost")
            continue
        text = exhibits.text_at(commit)
        if text is None:
            notes.append(f"{name} had no record")
            continue
        try:
            old = page.parse(text, source=f"{exhibits.settings.record.file} of {name}")
        except ToolError as error:
            problems += error.reasons
            continue
        problems += [f"{name}: {problem}" for problem in _stack_problems(exhibits, commit, old)]
    return found(problems, notes=notes)


def _archived_locals(exhibits: Exhibits, record: Record) -> list[tuple[str, Sha]]:
    label = archive_label(exhibits.settings.fork.local)
    named = {tag.commit: tag.name for tag in record.archive if tag.label.startswith(f"{label}-")}
    for row in record.recuts:
        named.setdefault(row.local_old, f"the old local of {row.date}")
    for name, value in exhibits.archive.items():
        if name.startswith(f"archive/{label}-") and value.peeled:
            named.setdefault(value.peeled, name)
    return [(name, commit) for commit, name in named.items()]


def _stack_problems(exhibits: Exhibits, tip: Sha, record: Record) -> list[str]:
    """Why `tip` is not the record's base and what the record lists, in that order; empty: it is."""
    git, base = exhibits.git, record.base
    if git.missing([base]):
        return [f"its base {base[:12]} is not to be found"]
    if not git.is_ancestor(base, tip):
        return [f"its base {base[:12]} is not in it"]
    commits = exhibits.own_commits(base, tip)
    problems = [f"{c.sha[:12]} ({c.subject}) is a merge" for c, _ in commits if len(c.parents) != 1]
    patches = [c.sha for c, kind in commits if kind in (CommitKind.LANDED, CommitKind.PLAIN)]
    listed = [row.commit for row in record.carried]
    problems += [
        f"{c.sha[:12]} ({c.subject}) is not listed in its record"
        for c, _ in commits
        if c.sha in patches and c.sha not in listed
    ]
    problems += [
        f"{row.commit[:12]} ({row.subject}) is listed in its record and not there"
        for row in record.carried
        if row.commit not in patches
    ]
    if not problems and listed != patches:
        problems.append("its record lists the commits in another order")
    return problems


def landed(exhibits: Exhibits) -> Finding:
    """By -U0 patch id; a patch that a later re-cut adapted, by its trailer and subject."""
    record = exhibits.record
    if record is None:
        return not_checked(NO_RECORD)
    carried = [commit for commit, _ in exhibits.carried]
    rows = {row.topic: row for row in record.topics}
    problems = [
        f"{commit.sha[:12]} ({commit.subject}) landed from {topic}, which the record does not call landed"
        for commit in carried
        if (topic := landed_topic(commit)) and (topic not in rows or rows[topic].state is not TopicState.LANDED)
    ]
    notes: list[str] = []
    here = set(exhibits.git.patch_ids([commit.sha for commit in carried]).values())
    for row in record.topics:
        if row.state is TopicState.LANDED:
            wrong, adapted = _landed_topic(exhibits, record, row, carried, here)
            problems += wrong
            notes += adapted
    return found(problems, notes=notes)


def _landed_topic(
    exhibits: Exhibits, record: Record, row: TopicRow, carried: Sequence[Commit], here: Iterable[str]
) -> tuple[list[str], list[str]]:
    if row.old is None or exhibits.git.missing([row.old]):
        return [f"{row.topic} landed from {str(row.old)[:12]}, which is not to be found"], []
    base = exhibits.base_of(row.old)
    patches = exhibits.git.commits(exhibits.git.range(base, row.old)) if base else []
    if not patches:
        return [f"{row.topic} is called landed, but its tip {row.old[:12]} has no patch"], []
    ids = exhibits.git.patch_ids([patch.sha for patch in patches])
    subjects = {commit.subject for commit in carried if landed_topic(commit) == row.topic}
    dropped = {drop.subject for drop in record.drops if drop.topic == row.topic}
    problems, notes = [], []
    for patch in patches:
        name = f"{patch.sha[:12]} ({patch.subject}) of {row.topic}"
        if ids[patch.sha] in here or patch.subject in dropped:
            continue
        if patch.subject in subjects:
            notes.append(f"{name} was adapted by a re-cut; prove it again: tools/recut prove {row.topic}")
        else:
            problems.append(f"{name} is not in local, though the topic has landed")
    return problems, notes


def open_topics(exhibits: Exhibits) -> Finding:
    record = exhibits.record
    closed = {row.topic for row in record.topics if row.state is not TopicState.OPEN} if record else set()
    git = exhibits.git
    names = {id_: commit for commit, id_ in git.patch_ids([c.sha for c, _ in exhibits.carried]).items()}
    problems: list[str] = []
    notes: list[str] = []
    for topic, tip in exhibits.topics.items():
        base = exhibits.base_of(tip)
        if topic in closed or base is None:
            continue
        for patch, id_ in git.patch_ids(git.range(base, tip)).items():
            if id_ and id_ in names:
                problems.append(f"{patch[:12]} of the open topic {topic} is in local as {names[id_][:12]}")
        notes += _record_notes(record, topic, tip)
    return found(problems, notes=notes)


def _record_notes(record: Record | None, topic: str, tip: Sha) -> list[str]:
    row = next((row for row in record.topics if row.topic == topic), None) if record else None
    if row is None:
        return [f"{topic} is not in the record yet: tools/recut record"]
    if row.new != tip:
        return [f"{topic} has moved on since the record: {str(row.new)[:12]} -> {tip[:12]}"]
    return []
