"""What UPSTREAM.md should say now: the record recomputed from refs, tags and commits.

What only people know (issue, pull request, note) and what only the past knows (re-cuts, drops, evidence) is
carried over from the record as it stands. The text form is record.py's.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from command.errors import Outcome, refused

from . import record as page
from .facts import Facts, landed_topic, local_kinds, topic_states
from .gather import gather
from .git import Git
from .pins import pins_at
from .recording import day
from .settings import Settings
from .stack import (
    ArchiveTag,
    CarriedRow,
    CommitKind,
    EvidenceRow,
    Record,
    RemoteRef,
    Sha,
    TopicRow,
    TopicState,
    Value,
    is_archive_name,
    parse_archive_name,
)

SCHEMA = "recut.record/1"


class RecordReport(Value, frozen=True, kw_only=True):
    """The end of `record`. `changes`: the lines that differ, as a unified diff; `written`: the file."""

    changes: tuple[str, ...]
    written: str | None
    local: Sha

    @property
    def is_current(self) -> bool:
        return not self.changes

    @property
    def outcome(self) -> Outcome:
        return Outcome.DONE if self.is_current or self.written else Outcome.CHECK_FAILED


def check_record(git: Git, settings: Settings) -> RecordReport:
    """Compare the record on the server's local with the repository. Errors: refused if it cannot be read.

    Tags of commits that hold this very record are not missed: no record can name them.
    """
    facts = gather(git, settings, onto=None)
    text = facts.record_text or ""
    listed = page.parse(text, source=settings.record.file).archive if text else ()
    wanted = recomputed(git, facts)
    nameable = [
        tag for tag in wanted.archive if tag in listed or git.file(tag.commit, settings.record.file) != _encoded(text)
    ]
    wanted = msgspec.structs.replace(wanted, archive=tuple(nameable))
    changes = _diff(text, page.render(wanted, text), settings)
    return RecordReport(changes=changes, written=None, local=facts.local.tip)


def write_record(git: Git, settings: Settings, *, evidence: Iterable[EvidenceRow] = ()) -> RecordReport:
    """Bring the tables of the checkout's UPSTREAM.md up to date: the only file of a checkout that it writes.

    evidence: rows to add below the ones that are there; one that is there already is not doubled.
    Errors: refused where there is no checkout, it does not contain local's tip, or the file cannot be read.
    """
    facts = gather(git, settings, onto=None)
    file = _file_in_checkout(git, facts)
    content = file.read_bytes() if file.exists() else _encoded(facts.record_text or "")
    text = content.decode(errors="surrogateescape").replace("\r\n", "\n")
    before = page.parse(text, source=settings.record.file) if text.strip() else None
    now = recomputed(git, facts, before=before)
    rows = tuple(dict.fromkeys([*now.evidence, *evidence]))
    wanted = page.render(msgspec.structs.replace(now, evidence=rows), text)
    changes = _diff(text, wanted, settings)
    if changes:
        # A checkout may have other line ends than the repository.
        lines = wanted.replace("\n", "\r\n") if b"\r\n" in content else wanted
        beside = file.with_name(file.name + ".new")
        beside.write_bytes(_encoded(lines))
        beside.replace(file)
    return RecordReport(changes=changes, written=str(file) if changes else None, local=facts.local.tip)


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _file_in_checkout(git: Git, facts: Facts) -> Path:
    settings = facts.settings
    if git.top is None:
        raise refused("this repository has no checkout to write the record into", "tools/recut record --check")
    head = git.text("rev-parse", "--verify", "HEAD^{commit}", at=git.top)
    if not git.is_ancestor(facts.local.tip, Sha(head)):
        branch = settings.fork.local
        raise refused(
            f"your checkout does not contain {branch}'s tip {facts.local.tip[:12]}, so its "
            f"{settings.record.file} is not the one to bring up to date",
            f"git fetch {settings.fork.remote} && git switch {branch} && git merge --ff-only @{{upstream}}",
        )
    return git.top / settings.record.file


def _diff(old: str, new: str, settings: Settings) -> tuple[str, ...]:
    file = settings.record.file
    lines = difflib.unified_diff(old.split("\n"), new.split("\n"), file, f"{file} (recomputed)", "", "", 0, "")
    return tuple(lines)


def recomputed(git: Git, facts: Facts, *, before: Record | None = None) -> Record:
    """The record as the repository has it now; `before` (else local's own) gives what people wrote."""
    base = facts.local.base
    if base is None:
        raise refused(f"{facts.local.branch} and upstream have no history in common")
    old = before or facts.record or Record(base=base)
    return msgspec.structs.replace(
        old,
        base=base,
        describe=facts.new_describe,
        base_date=day(facts.new_base_date_s),
        pins=pins_at(git, facts.settings.pins, facts.local.tip),
        topics=_topic_rows(facts, old),
        carried=carried_now(facts),
        archive=server_archive(facts.tags),
    )


def _topic_rows(facts: Facts, old: Record) -> tuple[TopicRow, ...]:
    rows = {row.topic: row for row in old.topics}
    states = topic_states(facts)
    for topic in facts.topics:
        name, state = facts.settings.fork.topic_name(topic.branch), states[topic.branch]
        row = rows.get(name, TopicRow(topic=name))
        new = topic.tip if state is TopicState.OPEN else row.new
        rows[name] = msgspec.structs.replace(row, state=state, new=new)
    return tuple(rows[name] for name in sorted(rows))


def carried_now(facts: Facts) -> tuple[CarriedRow, ...]:
    """Local's landed and plain commits, oldest first."""
    kinds = local_kinds(facts)
    return tuple(
        CarriedRow(
            commit=commit.sha,
            kind=kinds[commit.sha],
            topic=landed_topic(commit) or "",
            subject=commit.subject,
        )
        for commit in facts.local.commits
        if kinds[commit.sha] in (CommitKind.LANDED, CommitKind.PLAIN)
    )


def server_archive(tags: Mapping[str, RemoteRef]) -> tuple[ArchiveTag, ...]:
    """The well-formed annotated archive tags among a server's tags, by name; verify names the others."""
    found = []
    for ref, value in sorted(tags.items()):
        name = ref.removeprefix("refs/tags/")
        if value.peeled is None or not is_archive_name(name):
            continue
        label, short = parse_archive_name(name)
        if short == value.peeled[:7]:
            found.append(ArchiveTag(label=label, commit=value.peeled))
    return tuple(found)
