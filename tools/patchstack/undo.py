"""Takes a published run back: pins the new tips, then moves every branch to where it was, under leases."""

from __future__ import annotations

from command.errors import Outcome, StateError, refused

from . import plan as planned
from .git import Git
from .journal import Run, Runs, final_moves
from .plan import BranchPlan, Plan
from .publish import server_of, shown
from .remote import fetch_objects, read_refs
from .stack import ArchiveTag, Identity, Move, archive_label


def last_published(runs: Runs) -> Run:
    """The newest published run that moved a branch and is not taken back yet. Errors: refused."""
    every = runs.all()
    undone = {run.plan.undoes for run in every if run.plan.kind == "undo" and run.outcome == "published"}
    for run in reversed(every):
        if run.outcome != "published" or run.plan.kind == "undo" or run.id in undone:
            continue
        if final_moves(run):
            return run
    raise refused("no run was published from this clone that could be taken back", "tools/recut log")


def plan_undo(git: Git, run: Run, identity: Identity) -> Plan:
    """The plan of taking `run` back.

    Errors: remote-moved where a branch is no longer where the run left it.
    """
    done = final_moves(run)
    url = server_of(git, run.plan)
    heads = read_refs(git, url, *(move.ref for move in done))
    lost = [
        f"{move.branch} was left at {move.new[:12]} and is {shown(heads.get(move.ref))}"
        for move in done
        if move.ref not in heads or heads[move.ref].object != move.new
    ]
    if lost:
        raise StateError(
            Outcome.REMOTE_MOVED,
            [*lost, "taking the run back would lose what was pushed since"],
            next_steps=["tools/recut status"],
        )
    fetch_objects(git, url, [(move.ref, move.new) for move in done])
    branches = tuple(
        BranchPlan(branch=move.branch, old=move.new, base=move.new, onto=move.old, new=move.old, moves=True)
        for move in done
        if move.old
    )
    tags = tuple(ArchiveTag(label=f"{archive_label(move.branch)}-undo", commit=move.new) for move in done)
    return planned.with_id(
        Plan(
            kind="undo",
            push_url=run.plan.push_url,
            remote=run.plan.remote,
            identity=identity,
            branches=branches,
            archive=tags,
            undoes=run.id,
            mirror=_mirror_back(git, run, url),
        )
    )


def _mirror_back(git: Git, run: Run, url: str) -> Move | None:
    """The mirror's move back, where the run moved it and it has not moved since."""
    mirror = run.plan.mirror
    if mirror is None or mirror.old is None:
        return None
    there = read_refs(git, url, mirror.ref).get(mirror.ref)
    if there is None or there.object != mirror.new:
        return None
    return Move(branch=mirror.branch, old=mirror.new, new=mirror.old)
