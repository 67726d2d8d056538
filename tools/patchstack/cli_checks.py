"""The commands that look and compare: verify, drift, record, prove."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Optional

import typer

from command.errors import Outcome, StateError, usage

from .cli_options import Json
from .desk import Desk
from .stack import EvidenceRow


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.command("verify")(_verify)
    app.command("drift")(_drift)
    app.command("record")(_record)
    app.command("prove")(_prove)


def require_verified(desk: Desk) -> None:
    """Errors: check-failed where `verify` would say so."""
    from .audit import verify

    failed = verify(desk.git, desk.settings).failed
    if failed:
        raise StateError(
            Outcome.CHECK_FAILED,
            [f"{check.id}: {detail}" for check in failed for detail in check.details],
            next_steps=["tools/recut verify"],
        )


def _verify(
    context: typer.Context,
    no_remote: Annotated[bool, typer.Option("--no-remote", help="Check this clone's own refs; ask no server.")] = False,
    as_json: Json = False,
) -> Outcome:
    """Review what the record and the tags claim, check by check, against the repository itself."""
    from .audit import SCHEMA, verify
    from .show_checks import show_audit

    desk: Desk = context.obj
    audit = verify(desk.git, desk.settings, remote=not no_remote)
    return desk.answer(
        audit,
        schema=SCHEMA,
        as_json=as_json,
        show=lambda paper: show_audit(paper, audit),
        outcome=audit.outcome,
    )


def _drift(
    context: typer.Context,
    topic: Annotated[Optional[list[str]], typer.Option("--topic", help="Only this topic; repeatable.")] = None,
    as_json: Json = False,
) -> Outcome:
    """Say how far upstream has moved, what of that touches a patch, what supersedes one."""
    from .drift import SCHEMA, read_drift
    from .show_checks import show_drift

    desk: Desk = context.obj
    drift = read_drift(desk.git, desk.settings, topic or ())
    return desk.answer(
        drift,
        schema=SCHEMA,
        as_json=as_json,
        show=lambda paper: show_drift(paper, drift),
        outcome=drift.outcome,
    )


def _record(
    context: typer.Context,
    check: Annotated[
        bool, typer.Option("--check", help="Compare the record on the server's local; write nothing.")
    ] = False,
    evidence: Annotated[
        Optional[Path], typer.Option("--evidence", help="Add a row for each artefact of this evidence.json.")
    ] = None,
    as_json: Json = False,
) -> Outcome:
    """Bring the tables of the record in your checkout up to date; the rest of the page is yours."""
    from .bookkeeping import SCHEMA, check_record, write_record
    from .show_checks import show_record

    desk: Desk = context.obj
    if check and evidence:
        raise usage("--check writes nothing, so it can add no evidence", f"tools/recut record --evidence {evidence}")
    if check:
        report = check_record(desk.git, desk.settings)
    else:
        report = write_record(desk.git, desk.settings, evidence=_evidence_rows(desk, evidence) if evidence else ())
    return desk.answer(
        report,
        schema=SCHEMA,
        as_json=as_json,
        show=lambda paper: show_record(paper, report, file=desk.settings.record.file),
        outcome=report.outcome,
    )


def _evidence_rows(desk: Desk, file: Path) -> tuple[EvidenceRow, ...]:
    from .evidence_report import evidence_rows, read_report
    from .exhibits import read_exhibits

    report = read_report(desk.folder / file)
    return evidence_rows(read_exhibits(desk.git, desk.settings, remote=True), report)


def _prove(
    context: typer.Context,
    what: Annotated[str, typer.Argument(metavar="TOPIC|REV", help="A topic, or one commit.")],
    test: Annotated[Optional[str], typer.Option("--test", help="The test command; by default recut.toml's.")] = None,
    at: Annotated[
        Optional[str], typer.Option("--at", help="Prove a landed topic in this tree (a release tag, say).")
    ] = None,
    out: Annotated[
        Optional[Path], typer.Option("--out", "-o", help="Folder for evidence.json, evidence.md and junit.xml.")
    ] = None,
    as_json: Json = False,
) -> Outcome:
    """Take back only the fix: its test must fail, and pass with it. Your checkout is not involved."""
    from .prove import SCHEMA, prove, to_report
    from .show_checks import show_proof

    desk: Desk = context.obj
    proof = prove(desk.git, desk.settings, what, environ=desk.environ, test=test, at=at)
    if out is not None:
        from acceptance.folder import write_report

        options = [*(["--test", test] if test else []), *(["--at", at] if at else [])]
        command = shlex.join(["tools/recut", "prove", what, *options])
        write_report(to_report(proof, made_by=command), desk.folder / out)
    return desk.answer(
        proof,
        schema=SCHEMA,
        as_json=as_json,
        show=lambda paper: show_proof(paper, proof),
        outcome=proof.outcome,
    )
