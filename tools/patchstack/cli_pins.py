"""The commands that pin and name commits: archive, integrate, release."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from command.errors import Outcome, refused, usage

from . import show
from .cli_checks import require_verified
from .cli_options import DryRun, Json
from .cli_runs import begin
from .desk import Desk
from .integrate import SCHEMA as INTEGRATE_SCHEMA
from .integrate import integrate
from .publish import publish
from .release import plan_release
from .remote import fetch_commit, push_url, read_refs
from .replay import replay
from .scan import SCHEMA as ARCHIVE_SCHEMA
from .scan import Scan, Tip, plan_archive, scan
from .stack import Sha, archive_label, branch_ref, is_sha


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.command("archive")(_archive)
    app.command("integrate")(_integrate)
    app.command("release")(_release)


def _archive(
    context: typer.Context,
    ref: Annotated[Optional[str], typer.Argument(help="A branch or commit to pin.", show_default=False)] = None,
    label: Annotated[str, typer.Option("--label", help="archive/<label>-<7 hex>; by default the branch.")] = "",
    scan_: Annotated[bool, typer.Option("--scan", help="Find and pin every tip that nothing reaches.")] = False,
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
        return begin(desk, plan, dry_run=dry_run, as_json=as_json)
