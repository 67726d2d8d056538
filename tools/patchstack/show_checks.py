"""Audits, drift, records and proofs as short tables for people. Scripts use --json."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acceptance.report import Ending

from .audit import Audit
from .bookkeeping import RecordReport
from .drift import Drift
from .finding import Status
from .prove import Proof, Verdict
from .show import next_steps

if TYPE_CHECKING:
    from rich.text import Text

    from command.paper import Paper

STATUS_STYLES = {Status.PASSED: "green", Status.FAILED: "red", Status.NOT_CHECKED: "yellow"}
ENDING_STYLES = {
    Ending.PASSED: "green",
    Ending.FAILED: "red",
    Ending.BROKEN: "yellow",
    Ending.SKIPPED: "yellow",
    Ending.DOES_NOT_APPLY: "yellow",
    Ending.NOT_PROVEN: "yellow",
}


def show_audit(paper: Paper, audit: Audit) -> None:
    paper.line(f"verify: local {audit.local[:12]} of {audit.source}", style="bold")
    paper.rows(
        "",
        ("check", "", "claim"),
        [(check.id, _coloured(check.status.value, STATUS_STYLES[check.status]), check.claim) for check in audit.checks],
    )
    for check in audit.checks:
        if check.details:
            paper.line("")
            paper.line(check.id, style="bold")
            for detail in check.details:
                paper.line(f"  {detail}")
        if check.reading:
            paper.line("")
            paper.line(check.reading)
    paper.line("")
    n_failed = len(audit.failed)
    if n_failed:
        paper.line(f"{n_failed} of {len(audit.checks)} checks failed. Nothing was changed.", style="red")
    else:
        n_open = sum(check.status is Status.NOT_CHECKED for check in audit.checks)
        said = "No check failed" + (f"; {n_open} could not be made." if n_open else ".")
        paper.line(said, style="green")


def show_drift(paper: Paper, drift: Drift) -> None:
    behind = f"{drift.n_behind} commit{'s' * (drift.n_behind != 1)} behind upstream's {drift.upstream_head[:12]}"
    paper.line(f"base {drift.base[:12]} ({drift.base_release or 'no release'}): {behind}", style="bold")
    paper.rows(
        "Upstream commits that touch a patch's files",
        ("commit", "subject", "topic", "files"),
        [
            (commit.commit[:12], commit.subject, topic, ", ".join(files))
            for commit in drift.commits
            for topic, files in commit.touches.items()
        ],
    )
    paper.rows(
        "Patches that upstream has by now",
        ("topic", "patch", "upstream commit", "how that is known"),
        [
            (
                row.topic,
                f"{row.patch[:12]} {row.subject}",
                f"{row.upstream[:12]} {row.upstream_subject}",
                row.why,
            )
            for row in drift.superseded
        ],
    )
    if not drift.n_behind:
        paper.line("The base is upstream's newest commit.")
    elif not drift.commits:
        compared = ", ".join(drift.topics) or "there is no patch"
        paper.line(f"None of them touches a patch ({compared}).")
    else:
        next_steps(paper, ["tools/recut plan --onto REF"])


def show_record(paper: Paper, report: RecordReport, *, file: str) -> None:
    for change in report.changes:
        paper.line(change)
    if report.written:
        paper.line(f"{report.written} is up to date again. Nothing else was changed.", style="green")
        next_steps(
            paper,
            [f"git diff {file}", f"git commit -m 'Bring the record up to date' {file}", "git push"],
        )
    elif report.is_current:
        paper.line(f"{file} says what the repository says.", style="green")
    else:
        paper.line(f"{file} differs from the repository. Nothing was changed.", style="red")
        next_steps(paper, ["tools/recut record"])


def show_proof(paper: Paper, proof: Proof) -> None:
    paper.line(f"prove {proof.subject.name} in {proof.subject.tip[:12]}", style="bold")
    paper.line(f"fix:   {', '.join(proof.fix_files) or 'none'}")
    paper.line(f"tests: {', '.join(proof.test_files) or 'none'}")
    paper.line(f"$ {proof.command}")
    paper.rows(
        "",
        ("test", "without the fix", "with the fix", "why it failed"),
        [(row.test, _ending(row.without_fix), _ending(row.with_fix), row.why) for row in proof.rows],
    )
    paper.line("")
    style = "green" if proof.verdict is Verdict.PROVED else "red"
    paper.line(f"{proof.verdict.value}: {proof.meaning}.", style=style)
    run = {Verdict.FAILS_WITH_FIX: proof.with_fix, Verdict.NOT_A_TEST_FAILURE: proof.without_fix}.get(proof.verdict)
    if run:
        paper.line("")
        paper.line(run.tail)


def _ending(ending: Ending | None) -> Text:
    return _coloured(ending.value, ENDING_STYLES[ending]) if ending else _coloured("not run", "yellow")


def _coloured(text: str, style: str) -> Text:
    from rich.text import Text

    return Text(text, style=style)
