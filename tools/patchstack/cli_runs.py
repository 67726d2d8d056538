"""The commands that plan, run and take back: plan, start, continue, skip, abort, undo, publish, land,
integrate, archive, release, status, log."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

from . import plan as planned
from . import show
from .cli_checks import require_verified
from .conflict import take_resolution
from .desk import Desk
from .errors import Outcome, refused, usage
from .integrate import SCHEMA as INTEGRATE_SCHEMA
from .integrate import integrate
from .journal import Run, final_moves
from .plan import Plan
from .planning import plan_land, plan_recut
from .publish import publish, server_of
from .release import plan_release
from .remote import fetch_commit, push_url, read_refs
from .replay import abort, replay, skip, start
from .report import LOG_SCHEMA, RUN_SCHEMA, Log, report_run
from .scan import SCHEMA as ARCHIVE_SCHEMA
from .scan import Scan, Tip, plan_archive, scan
from .stack import Sha, archive_label, branch_ref, is_sha
from .status import SCHEMA as STATUS_SCHEMA
from .status import read_status
from .undo import last_published, plan_undo

Json = Annotated[bool, typer.Option("--json", help="Answer as JSON, for scripts (docs/recut-json.md).")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.command("status")(_status)
    app.command("plan")(_plan)
    app.command("start")(_start)
    app.command("continue")(_continue)
    app.command("skip")(_skip)
    app.command("abort")(_abort)
    app.command("undo")(_undo)
    app.command("publish")(_publish)
    app.command("land")(_land)
    app.command("integrate")(_integrate)
    app.command("archive")(_archive)
    app.command("release")(_release)
    app.command("log")(_log)


def _plan(
    context: typer.Context,
    onto: Annotated[str, typer.Option("--onto", help="upstream/main, a tag of upstream's, or a commit.")],
    topic: Annotated[
        Optional[list[str]], typer.Option("--topic", help="Only this topic; repeatable.")
    ] = None,
    output: Annotated[Optional[Path], typer.Option("-o", "--output", help="Write the plan here.")] = None,
    as_json: Json = False,
) -> Outcome:
    """Say exactly what a re-cut would do, with the ids it would make. Moves nothing."""
    desk: Desk = context.obj
    with desk.progress() as watch:
        made = plan_recut(desk.git, desk.settings, onto=onto, topics=topic or (), watch=watch)
    desk.runs.save_plan(made)
    if output:
        output.write_bytes(planned.encode(made))
    if as_json:
        sys.stdout.write(planned.encode(made).decode())
        return Outcome.DONE
    show.show_plan(desk.paper, made, saved=str(output or " ").strip() or " ")
    return Outcome.DONE


def _start(
    context: typer.Context,
    plan_file: Annotated[Optional[Path], typer.Argument(metavar="[PLAN.JSON]", show_default=False)] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> Outcome:
    """Replay what was planned (the last plan, or the one in a file). Moves no branch."""
    desk: Desk = context.obj
    given = _given_plan(desk, plan_file)
    if dry_run:
        show.show_plan(desk.paper, given)
        return Outcome.DONE
    with desk.runs.lock():
        with desk.progress() as watch:
            run = start(desk.git, desk.settings, desk.runs, given, watch=watch)
        return _report(desk, run, as_json=as_json)


def _given_plan(desk: Desk, plan_file: Path | None) -> Plan:
    if plan_file is not None:
        try:
            text = plan_file.read_bytes()
        except OSError as error:
            raise usage(f"{plan_file} cannot be read: {error.strerror}") from error
        return planned.decode(text, source=str(plan_file))
    last = desk.runs.last_plan()
    if last is None:
        raise refused("there is no plan yet", "tools/recut plan --onto REF")
    return last


def _continue(context: typer.Context, as_json: Json = False) -> Outcome:
    """Go on after a conflict that is resolved, or after a crash."""
    desk: Desk = context.obj
    with desk.runs.lock():
        run = desk.runs.require_current()
        if run.stopped:
            take_resolution(desk.git, run)
        return _carry_on(desk, run, as_json=as_json)


def _carry_on(desk: Desk, run: Run, *, as_json: bool) -> Outcome:
    """Take a run as far as it goes by itself: a re-cut until it is ready, anything else to its end."""
    if run.outcome:
        desk.runs.end(run, run.outcome)
    elif run.has_begun("abort"):
        abort(desk.git, desk.runs, run, final_moves(run) if run.has_done("ready") else ())
    else:
        replay(desk.git, desk.settings, run)
        if run.plan.kind != "recut" or run.has_begun("pin"):
            publish(desk.git, desk.runs, run)
    return _report(desk, run, as_json=as_json)


def _begin(desk: Desk, plan: Plan, *, dry_run: bool, as_json: bool) -> Outcome:
    """Begin a run that publishes itself, or only show it."""
    if dry_run:
        if as_json:
            sys.stdout.write(planned.encode(plan).decode())
        else:
            show.show_plan(desk.paper, plan)
        return Outcome.DONE
    return _carry_on(desk, desk.runs.begin(plan), as_json=as_json)


def _skip(
    context: typer.Context,
    superseded_by: Annotated[str, typer.Option(help="The upstream commit that has this change.")] = "",
    withdraw: Annotated[str, typer.Option(help="Why the patch (its whole topic) is given up.")] = "",
    as_json: Json = False,
) -> Outcome:
    """Leave out the patch that the run stopped at, and record why."""
    desk: Desk = context.obj
    if bool(superseded_by) == bool(withdraw):
        raise usage(
            "say why: either the upstream commit that supersedes the patch, or a reason to withdraw it",
            "tools/recut skip --superseded-by SHA",
            'tools/recut skip --withdraw "REASON"',
        )
    with desk.runs.lock():
        run = desk.runs.require_current()
        skip(desk.git, desk.settings, run, superseded_by=superseded_by, withdraw=withdraw)
        return _carry_on(desk, run, as_json=as_json)


def _abort(context: typer.Context, as_json: Json = False) -> Outcome:
    """Give the run up before its branches move. Every branch stays where it is."""
    desk: Desk = context.obj
    with desk.runs.lock():
        run = desk.runs.require_current()
        if run.outcome:
            desk.runs.end(run, run.outcome)
        else:
            abort(desk.git, desk.runs, run, final_moves(run) if run.has_done("ready") else ())
        if run.outcome == "published":
            raise refused(
                f"run {run.id} is published already, so there is nothing to abort",
                "tools/recut undo   # takes every branch back",
                state="The branches have moved; their old tips are pinned on the server.",
            )
        return _report(desk, run, as_json=as_json)


def _publish(context: typer.Context, as_json: Json = False) -> Outcome:
    """Pin the old tips on the server, read them back, then move all branches in one atomic push."""
    desk: Desk = context.obj
    with desk.runs.lock():
        run = desk.runs.current()
        if run is None:
            last = next(iter(reversed(desk.runs.all())), None)
            if last is not None and last.outcome == "published":
                return _report(desk, last, as_json=as_json)
            raise refused("there is no run to publish", "tools/recut plan --onto REF", "tools/recut start")
        if not run.has_done("ready"):
            raise refused(f"run {run.id} is not ready to publish: {run.phase}", "tools/recut continue")
        if not run.outcome:
            publish(desk.git, desk.runs, run)
        desk.runs.end(run, run.outcome)
        return _report(desk, run, as_json=as_json)


def _undo(context: typer.Context, dry_run: DryRun = False, as_json: Json = False) -> Outcome:
    """Take the last published run back: pin the new tips, then put every branch where it was."""
    desk: Desk = context.obj
    with desk.runs.lock():
        run = desk.runs.current()
        if run is not None and not dry_run:
            _finish_moved(desk, run)
        desk.runs.require_none()
        last = last_published(desk.runs)
        plan = plan_undo(desk.git, last, desk.git.identity())
        return _begin(desk, plan, dry_run=dry_run, as_json=as_json)


def _finish_moved(desk: Desk, run: Run) -> None:
    """A run whose branches have moved, and which died then, is brought to its end before it is taken back."""
    if run.outcome:
        desk.runs.end(run, run.outcome)
    elif run.has_begun("move"):
        moves = final_moves(run)
        heads = read_refs(desk.git, server_of(desk.git, run.plan), *(move.ref for move in moves))
        if all(move.ref in heads and heads[move.ref].object == move.new for move in moves):
            if run.plan.release_tag and not run.has_done("release tag"):
                run.write("release tag", reason="not made, for the run is taken back")
            publish(desk.git, desk.runs, run)


def _land(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="The reviewed topic.")],
    dry_run: DryRun = False,
    as_json: Json = False,
) -> Outcome:
    """Carry a reviewed topic on local from now on: a fast-forward, the old tips pinned first."""
    desk: Desk = context.obj
    with desk.runs.lock():
        desk.runs.require_none()
        plan = plan_land(desk.git, desk.settings, topic)
        return _begin(desk, plan, dry_run=dry_run, as_json=as_json)


def _integrate(context: typer.Context, as_json: Json = False) -> Outcome:
    """Make one commit that joins local and all open topics, for test builds."""
    desk: Desk = context.obj
    made = integrate(desk.git, desk.settings)
    return desk.answer(
        made,
        schema=INTEGRATE_SCHEMA,
        as_json=as_json,
        show=lambda paper: show.show_integration(paper, made),
    )


def _archive(
    context: typer.Context,
    ref: Annotated[
        Optional[str], typer.Argument(help="A branch or commit to pin.", show_default=False)
    ] = None,
    label: Annotated[
        str, typer.Option("--label", help="archive/<label>-<7 hex>; by default the branch.")
    ] = "",
    scan_: Annotated[
        bool, typer.Option("--scan", help="Find and pin every tip that nothing reaches.")
    ] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> Outcome:
    """Pin commits with annotated tags on the server, read back."""
    desk: Desk = context.obj
    if scan_ == (ref is not None):
        raise usage("say what to pin: a REF, or --scan", "tools/recut archive --scan --dry-run")
    with desk.runs.lock():
        found = scan(desk.git, desk.settings, desk.runs) if ref is None else _named(desk, ref, label)
        if found.unpinned and not dry_run:
            desk.runs.require_none()
            url = push_url(desk.git, desk.settings.fork.remote)
            plan = plan_archive(desk.settings, url, desk.git.identity(), found.tags)
            run = desk.runs.begin(plan)
            replay(desk.git, desk.settings, run)
            publish(desk.git, desk.runs, run)
    return desk.answer(
        found,
        schema=ARCHIVE_SCHEMA,
        as_json=as_json,
        show=lambda paper: show.show_scan(paper, found, pinned=not dry_run),
        outcome=Outcome.CHECK_FAILED if found.lost else Outcome.DONE,
    )


def _named(desk: Desk, ref: str, label: str) -> Scan:
    """The one tip that the user names: the server's branch, or a commit of this clone."""
    git = desk.git
    url = push_url(git, desk.settings.fork.remote)
    there = read_refs(git, url, branch_ref(ref)).get(branch_ref(ref))
    commit = there.object if there else git.resolve(ref)
    wanted = commit or (Sha(ref) if is_sha(ref) else None)
    if wanted is None or not fetch_commit(git, url, wanted):
        raise refused(f"{ref!r} is neither a branch of the fork nor a commit that can be had", "git fetch")
    if not label and there is None:
        raise usage("a commit without a branch needs a label", f"tools/recut archive {ref} --label LABEL")
    tip = Tip(commit=wanted, label=archive_label(label or ref), source="the command line")
    return Scan(unpinned=(tip,), lost=(), n_seen=1)


def _release(
    context: typer.Context,
    devel: Annotated[bool, typer.Option("--devel", help="Tag the base, without local patches.")] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> Outcome:
    """Tag the next release, numbered after the tags on the server, in a push of its own."""
    desk: Desk = context.obj
    with desk.runs.lock():
        desk.runs.require_none()
        plan = plan_release(desk.git, desk.settings, devel=devel)
        if not devel:
            require_verified(desk)
        return _begin(desk, plan, dry_run=dry_run, as_json=as_json)


def _status(context: typer.Context, as_json: Json = False) -> Outcome:
    """Where the stack stands, as this clone knows it."""
    desk: Desk = context.obj
    status = read_status(desk.git, desk.settings, desk.runs)
    return desk.answer(
        status, schema=STATUS_SCHEMA, as_json=as_json, show=lambda paper: show.show_status(paper, status)
    )


def _log(context: typer.Context, as_json: Json = False) -> Outcome:
    """Every run, tag and move of this clone, from the journals."""
    desk: Desk = context.obj
    runs = desk.runs.all()
    return desk.answer(
        Log(runs=tuple(map(report_run, runs))),
        schema=LOG_SCHEMA,
        as_json=as_json,
        show=lambda paper: show.show_log(paper, runs),
    )


def _report(desk: Desk, run: Run, *, as_json: bool) -> Outcome:
    return desk.answer(
        report_run(run),
        schema=RUN_SCHEMA,
        as_json=as_json,
        show=lambda paper: show.show_run(paper, run),
    )
