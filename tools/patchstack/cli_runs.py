"""The commands that plan, run and take back: plan, start, continue, skip, abort, publish, undo, land."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

from command.errors import Outcome, refused, usage

from . import plan as planned
from . import show
from .cli_options import DryRun, Json
from .conflict import take_resolution
from .desk import Desk
from .journal import Run, final_moves
from .plan import Plan
from .planning import plan_land, plan_recut
from .publish import publish, server_of
from .remote import read_refs
from .replay import abort, replay, skip, start
from .report import RUN_SCHEMA, report_run
from .undo import last_published, plan_undo


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.command("plan")(_plan)
    app.command("start")(_start)
    app.command("continue")(_continue)
    app.command("skip")(_skip)
    app.command("abort")(_abort)
    app.command("undo")(_undo)
    app.command("publish")(_publish)
    app.command("land")(_land)


def _plan(
    context: typer.Context,
    onto: Annotated[str, typer.Option("--onto", help="upstream/main, a tag of upstream's, or a commit.")],
    topic: Annotated[Optional[list[str]], typer.Option("--topic", help="Only this topic; repeatable.")] = None,
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


def begin(desk: Desk, plan: Plan, *, dry_run: bool, as_json: bool) -> Outcome:
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


def _publish(context: typer.Context, dry_run: DryRun = False, as_json: Json = False) -> Outcome:
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
        if dry_run:
            return _report(desk, run, as_json=as_json)
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
        return begin(desk, plan, dry_run=dry_run, as_json=as_json)


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
        return begin(desk, plan, dry_run=dry_run, as_json=as_json)


def _report(desk: Desk, run: Run, *, as_json: bool) -> Outcome:
    return desk.answer(
        report_run(run),
        schema=RUN_SCHEMA,
        as_json=as_json,
        show=lambda paper: show.show_run(paper, run),
    )
