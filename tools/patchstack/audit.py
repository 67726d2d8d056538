"""`verify`: an independent review of everything the record and the tags claim, as a table of checks.

It reads; it repairs nothing, and it takes no plan's or journal's word.
"""

from __future__ import annotations

from collections.abc import Callable

from command.errors import Outcome

from . import archive_checks, branch_checks, record_checks
from .exhibits import Exhibits, read_exhibits
from .finding import Finding, Status
from .git import Git
from .settings import Settings
from .stack import Sha, Value

SCHEMA = "recut.verify/1"


class Check(Value, frozen=True, kw_only=True):
    """One claim and how it stands. `details`: what is wrong, or what a reader should know.

    reading: a longer text for a person, a range-diff say.
    """

    id: str
    claim: str
    status: Status
    details: tuple[str, ...] = ()
    reading: str = ""


class Audit(Value, frozen=True, kw_only=True):
    """source: the server that was asked, or "this clone"."""

    source: str
    local: Sha
    checks: tuple[Check, ...]

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.status is Status.FAILED)

    @property
    def outcome(self) -> Outcome:
        return Outcome.CHECK_FAILED if self.failed else Outcome.DONE


CHECKS: dict[str, tuple[str, Callable[[Exhibits], Finding]]] = {
    "record-reads": ("the record reads, and written again it is the same text", record_checks.reads),
    "pins": ("the pins in the record are those of the project file", record_checks.pins),
    "local": ("local is its base and the commits its record lists, without a merge", branch_checks.local),
    "landed": ("local has every patch of every landed topic", branch_checks.landed),
    "open": ("local has no patch of an open topic", branch_checks.open_topics),
    "superseded": ("each dropped patch is in the base, by the commit the record names", record_checks.drops),
    "archive-annotated": ("every archive tag is an annotated tag of a commit", archive_checks.annotated),
    "archive-named": ("each archive tag's name ends in the digits of its commit", archive_checks.named),
    "archive-recorded": ("the record and the refs have the same archive tags", archive_checks.recorded),
    "old-locals": ("each old local is its own record's base and commits", branch_checks.old_locals),
    "intermediate": (
        "archived tips of a topic differ from the final in tests only",
        archive_checks.intermediate,
    ),
    "evidence": ("a ref reaches every commit that evidence was made from", record_checks.evidence),
    "tags": ("every release tag has the form and the base that it says", archive_checks.release_tags),
}


def verify(git: Git, settings: Settings, *, remote: bool = True) -> Audit:
    """Run every check. `remote` False: on this clone's own refs, without asking a server.

    Errors: refused where there is nothing to check (no local, no remote, a shallow clone).
    """
    exhibits = read_exhibits(git, settings, remote=remote)
    checks = []
    for name, (claim, check) in CHECKS.items():
        found = check(exhibits)
        checks.append(Check(id=name, claim=claim, status=found.status, details=found.details, reading=found.reading))
    return Audit(source=exhibits.source, local=exhibits.local, checks=tuple(checks))
