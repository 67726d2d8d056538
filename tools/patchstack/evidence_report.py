"""The record's evidence rows that a report of `tools/evidence` gives: what was used, from which commit.

A row is a claim that the evidence can be made again, so a report that cannot keep it gives none.
"""

from __future__ import annotations

from pathlib import Path

from acceptance import report as page
from command.errors import refused
from command.text_file import read_text_file

from .exhibits import Exhibits
from .stack import EvidenceRow, Sha, is_sha


def read_report(file: Path) -> page.Report:
    """Errors: usage where `file` cannot be read or is no report."""
    return page.parse(read_text_file(file), source=str(file))


def evidence_rows(exhibits: Exhibits, report: page.Report) -> tuple[EvidenceRow, ...]:
    """One row for each artefact of the side `after`.

    Errors: refused, with every reason, where the report does not hold, names no artefact, or its commit is not
    known, not all that was in the tree, or reached by no branch or tag of the fork.
    """
    after, reasons, next_steps = report.after, [], []
    if not report.conclusion.holds:
        reasons.append(f"the report does not hold: {report.conclusion.text}")
    if not after.artefacts:
        reasons.append(f"the column {after.label!r} names no artefact, so there is nothing to record")
    if after.is_dirty:
        reasons.append(f"the tree of {after.label!r} had changes that no commit holds")
        next_steps.append("commit them, then make the report again")
    if not is_sha(after.commit):
        reasons.append(f"the report does not say which commit {after.label!r} was made from")
        next_steps.append("tools/evidence run --source DIR ... names the checkout that a server was built from")
    elif not exhibits.is_reachable(Sha(after.commit)):
        reasons.append(f"no branch or tag of {exhibits.source} reaches {after.commit}")
        next_steps.append(f"tools/recut archive {after.commit} --label evidence")
    if reasons:
        raise refused(reasons, *next_steps)
    commit = Sha(after.commit)
    return tuple(EvidenceRow(what=made.path, commit=commit, sha256=made.sha256) for made in after.artefacts)
