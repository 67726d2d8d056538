"""The checks of what the record says: its form, the pins, the dropped patches, the evidence."""

from __future__ import annotations

import re

from command.errors import ToolError

from . import record as page
from .evidence import ids_at
from .exhibits import Exhibits
from .finding import NO_RECORD, Finding, found, not_checked
from .pins import pins_at, unpinned_names
from .stack import DropRow, Sha


def reads(exhibits: Exhibits) -> Finding:
    file, local = exhibits.settings.record.file, exhibits.settings.fork.local
    if exhibits.text is None:
        return found([f"{local} has no {file}: tools/recut record writes it"])
    if exhibits.record is None:
        assert exhibits.record_error
        return found([*exhibits.record_error.reasons, *exhibits.record_error.next_steps])
    same = page.render(exhibits.record, exhibits.text) == exhibits.text
    return found([] if same else [f"{file} is not as the tool writes it: tools/recut record puts it right"])


def pins(exhibits: Exhibits) -> Finding:
    if exhibits.record is None:
        return not_checked(NO_RECORD)
    try:
        actual = pins_at(exhibits.git, exhibits.settings.pins, exhibits.local)
    except ToolError as error:
        return found(error.reasons)
    recorded, file = exhibits.record.pins, exhibits.settings.pins.file
    problems = [
        f"{file} does not require {name!r}, which [pins] of recut.toml names"
        for name in unpinned_names(actual, exhibits.settings.pins)
    ]
    problems += [f"{file} requires {pin.requirement!r}, not in the record" for pin in actual if pin not in recorded]
    problems += [
        f"the record pins {pin.requirement!r}, which {file} does not require" for pin in recorded if pin not in actual
    ]
    return found(problems)


def drops(exhibits: Exhibits) -> Finding:
    """Each superseding commit is in the base, touches the patch's files; its subject is shown."""
    record = exhibits.record
    if record is None:
        return not_checked(NO_RECORD)
    problems: list[str] = []
    notes: list[str] = []
    for row in record.drops:
        name = f"{row.patch[:12]} ({row.subject})"
        if row.upstream is None:
            notes.append(f"{name} was withdrawn: {row.reason}")
            if not row.reason:
                problems.append(f"{name} was dropped, and the record names neither a commit nor a reason")
        else:
            wrong = _superseding_problem(exhibits, row, row.upstream, record.base)
            if wrong:
                problems.append(f"{name}: {wrong}")
            else:
                subject = exhibits.git.commits([row.upstream])[0].subject
                notes.append(f"{name} is upstream's {row.upstream[:12]} ({subject})")
    return found(problems, notes=notes)


def _superseding_problem(exhibits: Exhibits, row: DropRow, upstream: Sha, base: Sha) -> str:
    git = exhibits.git
    if git.missing([upstream]):
        return f"upstream commit {upstream[:12]} is not to be found"
    if git.missing([row.patch]):
        return f"the dropped patch {row.patch[:12]} itself is lost: no archive tag reaches it"
    if git.missing([base]) or not git.is_ancestor(upstream, base):
        return f"{upstream[:12]} is not in the base {base[:12]}, so it cannot supersede anything there"
    changes = git.changes([row.patch, upstream])
    mine, theirs = ({change.path for change in changes[commit]} for commit in (row.patch, upstream))
    if not mine & theirs:
        return f"{upstream[:12]} touches none of its files ({', '.join(sorted(mine))})"
    number = row.pull_request.lstrip("#")
    subject = git.commits([upstream])[0].subject
    if number.isdigit() and f"(#{number})" not in subject:
        return f"the record says pull request #{number}, the subject of {upstream[:12]} is {subject!r}"
    return ""


def evidence(exhibits: Exhibits) -> Finding:
    """Ids in evidence files may be of anything; those that are commits here count."""
    record = exhibits.record
    if record is None:
        return not_checked(NO_RECORD)
    here = ids_at(exhibits.git, exhibits.settings, exhibits.local)
    absent = set(exhibits.absent(here))
    problems = [
        f"an evidence file names {commit[:12]}, which no ref reaches: tools/recut archive --scan"
        for commit in here
        if commit not in absent and not exhibits.is_reachable(commit)
    ]
    for row in record.evidence:
        if not exhibits.is_reachable(row.commit):
            problems.append(
                f"{row.what} was made from {row.commit[:12]}, which no ref reaches: "
                f"tools/recut archive {row.commit} --label LABEL"
            )
        if not re.fullmatch(r"[0-9a-f]{64}", row.sha256):
            problems.append(f"{row.what}: {row.sha256!r} is no SHA-256")
    return found(problems)
