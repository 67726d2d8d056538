"""The checks of tags: that archive tags pin what they say, and that release tags are what they are called."""

from __future__ import annotations

import re

from command.errors import ToolError

from .exhibits import Exhibits
from .finding import NO_RECORD, Finding, found, not_checked
from .stack import LocalRelease, RemoteRef, Sha, archive_label, parse_archive_name, parse_release


def annotated(exhibits: Exhibits) -> Finding:
    problems = []
    for name, value in exhibits.archive.items():
        if value.peeled is None:
            problems.append(
                f"{name} is a lightweight tag: delete it, then tools/recut archive {value.object} --label ..."
            )
        elif exhibits.git.missing([value.peeled]):
            problems.append(f"{name} does not point at a commit")
    return found(problems)


def named(exhibits: Exhibits) -> Finding:
    """Name, peeled id and, where the record lists the tag, the record agree."""
    recorded = {tag.name: tag.commit for tag in exhibits.record.archive} if exhibits.record else {}
    problems: list[str] = []
    for name, value in exhibits.archive.items():
        commit = value.peeled or value.object
        try:
            short = parse_archive_name(name)[1]
        except ToolError as error:
            problems += error.reasons
            continue
        if short != commit[:7]:
            problems.append(f"{name} points at {commit[:12]}")
        elif recorded.get(name, commit) != commit:
            problems.append(f"{name} points at {commit[:12]}, the record says {recorded[name][:12]}")
    return found(problems)


def recorded(exhibits: Exhibits) -> Finding:
    """Both set differences are empty, but for tags of commits that hold this very record."""
    record = exhibits.record
    if record is None:
        return not_checked(NO_RECORD)
    listed = {tag.name for tag in record.archive}
    rows = {row.archive_tag: row.old for row in record.topics if row.archive_tag}
    commits = {tag.name: tag.commit for tag in record.archive}
    problems = [
        f"{name} is in the record, but {exhibits.source} does not have it"
        for name in sorted(listed - set(exhibits.archive))
    ]
    problems += [
        f"{name} stands beside {str(old)[:12]} in the topics table, and pins something else"
        for name, old in sorted(rows.items())
        if commits.get(name) != old
    ]
    notes = []
    for name in sorted(set(exhibits.archive) - listed):
        if holds_this_record(exhibits, exhibits.archive[name]):
            notes.append(f"{name} pins a commit that holds this record; the next record lists it")
        else:
            problems.append(f"{name} is not in the record: tools/recut record lists it")
    return found(problems, notes=notes)


def holds_this_record(exhibits: Exhibits, value: RemoteRef) -> bool:
    """Whether the tagged commit contains local's record as it stands: no record can name such a tag."""
    commit = value.peeled
    if commit is None or exhibits.git.missing([commit]):
        return False
    return exhibits.text is not None and exhibits.text_at(commit) == exhibits.text


def intermediate(exhibits: Exhibits) -> Finding:
    """The net change without test files of each archived tip of a topic that no re-cut or landing gave up,
    against the final tip on the same base."""
    record = exhibits.record
    if record is None:
        return not_checked(NO_RECORD)
    given_up = {name for row in record.recuts for name in row.archive_tags}
    given_up |= {row.archive_tag for row in record.topics}
    problems: list[str] = []
    notes: list[str] = []
    readings: list[str] = []
    for name, value in exhibits.archive.items():
        topic = _topic_of(exhibits, name)
        tip = value.peeled
        if name in given_up or topic is None or tip is None or exhibits.git.missing([tip]):
            continue
        final = _final_tip(exhibits, topic, tip)
        if final is None:
            notes.append(f"{name}: no final tip of {topic} on the same base to compare with")
            continue
        base = exhibits.base_of(tip)
        assert base
        if _net_patch_id(exhibits, base, tip) != _net_patch_id(exhibits, base, final):
            problems.append(
                f"{name} and the final tip {final[:12]} of {topic} differ outside tests, so what was made "
                "from it is no evidence for the topic"
            )
        if tip != final:
            readings.append(f"{name} -> {final[:12]}\n{_range_diff(exhibits, base, tip, final)}")
    return found(problems, notes=notes, reading="\n\n".join(readings))


def _topic_of(exhibits: Exhibits, tag: str) -> str | None:
    """The topic whose branch gave an archive tag its label."""
    fork = exhibits.settings.fork
    topics = set(exhibits.topics)
    if exhibits.record:
        topics |= {row.topic for row in exhibits.record.topics}
    for topic in sorted(topics, key=len, reverse=True):
        if tag.startswith(f"archive/{archive_label(fork.topic_branch(topic))}-"):
            return topic
    return None


def _final_tip(exhibits: Exhibits, topic: str, tip: Sha) -> Sha | None:
    """The topic's newest known tip that is cut from the same base as `tip`."""
    row = next((row for row in exhibits.record.topics if row.topic == topic), None) if exhibits.record else None
    base = exhibits.base_of(tip)
    for final in (exhibits.topics.get(topic), row.old if row else None):
        if final and not exhibits.git.missing([final]) and base and exhibits.base_of(final) == base:
            return final
    return None


def _net_patch_id(exhibits: Exhibits, base: Sha, tip: Sha) -> str:
    """The -U0 patch id of base..tip as one change, without test files.

    Source: git-patch-id(1).
    """
    excluded = [f":(exclude,glob){pattern}" for pattern in exhibits.settings.prove.tests]
    patch = exhibits.git.run(
        "diff-tree", "-r", "-p", "-U0", "--full-index", "--binary", "--no-renames", "--no-ext-diff",
        "--no-textconv", "--no-color", base, tip, "--", ".", *excluded,
    ).out  # fmt: skip
    return exhibits.git.text("patch-id", "--stable", stdin=patch).partition(" ")[0]


def _range_diff(exhibits: Exhibits, base: Sha, old: Sha, new: Sha) -> str:
    return exhibits.git.text("range-diff", "--no-color", f"{base}..{old}", f"{base}..{new}")


_DATED = re.compile(r"\.(?:19|20)\d{6}$")


def release_tags(exhibits: Exhibits) -> Finding:
    """Tags that look like releases of this fork: the grammar, annotated, on the base that the name says."""
    problems: list[str] = []
    for ref, value in sorted(exhibits.tags.items()):
        name = ref.removeprefix("refs/tags/")
        commit = value.peeled or value.object
        if name.startswith("archive/") or not _claims_to_be_ours(exhibits, name):
            continue
        try:
            release = parse_release(name)
        except ToolError as error:
            problems += error.reasons
            continue
        if value.peeled is None:
            problems.append(f"{name} is a lightweight tag")
        base = exhibits.base_of(commit)
        actual = exhibits.base_release(base) if base else ""
        if release.base != actual:
            problems.append(f"{name} says {release.base}, but {commit[:12]} sits on {actual or 'no release'}")
        if not isinstance(release, LocalRelease) and base != commit:
            problems.append(f"{name} is a devel release, but {commit[:12]} is not an upstream commit")
    return found(problems)


def _claims_to_be_ours(exhibits: Exhibits, name: str) -> bool:
    """`-local` or `-devel` says so; another version says so if upstream has no such tag."""
    if "-local" in name or "-devel" in name:
        return True
    known = exhibits.upstream_tags
    if known is None:
        return _DATED.search(name) is not None
    return name not in known and re.match(r"v\d", name) is not None
