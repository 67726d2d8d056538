"""Plans, runs and states as short tables for people. What it prints is no interface: scripts use --json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .integrate import Integration
from .journal import Run, ways_on
from .plan import BranchPlan, PatchPlan, Plan
from .publish import final_moves
from .scan import Scan
from .stack import CommitKind, PatchClass
from .status import Status

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

STYLES = {
    PatchClass.UNTOUCHED: "green",
    PatchClass.ADAPTED: "green",
    PatchClass.EMPTY: "green",
    PatchClass.SUPERSEDED: "cyan",
    PatchClass.PARTLY_SUPERSEDED: "yellow",
    PatchClass.CONFLICT: "red",
}


def table(*columns: str) -> Table:
    """A table without frames, whose cells fold and are never cut off."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def rows(
    console: Console, heading: str, columns: Sequence[str], cells: Sequence[Sequence[str | Text]]
) -> None:
    """A titled table; nothing at all without rows. Cells are plain text, never markup."""
    from rich.text import Text

    if not cells:
        return
    made = table(*columns)
    for row in cells:
        made.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    line(console, "")
    if heading:
        line(console, heading, style="bold")
    console.print(made)


def line(console: Console, text: str, *, style: str = "") -> None:
    """One line of plain text, however long."""
    console.print(text, style=style or None, markup=False, soft_wrap=True)


def next_steps(console: Console, steps: Sequence[str]) -> None:
    line(console, "")
    line(console, "Next:", style="bold")
    for step in steps:
        line(console, f"  {step}")


def show_plan(console: Console, plan: Plan, *, saved: str = "") -> None:
    """The plan: base, patches by branch, what is left out, tags, moves, notes."""
    if plan.kind == "recut":
        line(console, f"Re-cut onto {plan.describe} ({plan.new_base})   plan {plan.id}", style="bold")
        line(console, f"from base {plan.old_base}{f' ({plan.old_release})' if plan.old_release else ''}")
    elif plan.kind == "land":
        line(console, f"Land {plan.topic} on {plan.branches[-1].branch}   plan {plan.id}", style="bold")
    elif plan.kind == "release":
        line(console, f"Release {plan.release_tag} of {plan.release_commit}   plan {plan.id}", style="bold")
    elif plan.kind == "undo":
        line(console, f"Undo run {plan.undoes}   plan {plan.id}", style="bold")
    patches = [_patch_row(branch, patch) for branch in plan.branches for patch in branch.patches]
    rows(console, "", ("branch", "patch", "subject", "class", "becomes", "because"), patches)
    left_out = [
        (row.kind.value, row.commit[:12], row.subject) for branch in plan.branches for row in branch.replaced
    ]
    rows(console, "Left out by name (made anew when due)", ("kind", "commit", "subject"), left_out)
    rows(
        console,
        "Archive tags, pushed and read back first",
        ("tag", "pins"),
        [(t.name, t.commit) for t in plan.archive],
    )
    moves: list[tuple[str, str, str]] = [
        (branch.branch, branch.old, branch.new or "after resolution")
        for branch in plan.branches
        if branch.moves
    ]
    if plan.mirror:
        moves.append((f"{plan.mirror.branch} (mirror)", str(plan.mirror.old), plan.mirror.new))
    rows(console, "Moves, one atomic push", ("branch", "lease", "becomes"), moves)
    if plan.notes:
        line(console, "")
    for note in plan.notes:
        line(console, f"Note: {note}")
    if plan.n_conflicts:
        line(console, "")
        line(
            console,
            f"{plan.n_conflicts} patch(es) will stop the run for a decision; ids after them depend on it.",
        )
    if saved:
        next_steps(
            console, [f"tools/recut {'start' if plan.kind == 'recut' else plan.kind} {saved}".rstrip()]
        )


def _patch_row(branch: BranchPlan, patch: PatchPlan) -> tuple[str | Text, ...]:
    from rich.text import Text

    becomes = patch.new[:12] if patch.new else "dropped"
    if patch.new is None and patch.fate is not PatchClass.SUPERSEDED:
        becomes = "after resolution"
    why = [patch.note] if patch.note else []
    if patch.upstream:
        why.append(f"upstream {patch.upstream[:12]} {patch.upstream_subject}")
    why += [f"in conflict: {path}" for path in patch.conflicts]
    where = branch.branch
    if patch.kind is CommitKind.LANDED and patch.topic:
        where = f"{branch.branch} ({patch.topic})"
    fate = Text(patch.fate.value, style=STYLES[patch.fate])
    return where, patch.patch[:12], patch.subject, fate, becomes, "\n".join(why)


def show_run(console: Console, run: Run) -> None:
    """Where a run stands after a command."""
    if run.phase == "published":
        _show_published(console, run)
        return
    line(console, f"Run {run.id}: {run.phase}", style="bold")
    if run.phase == "aborted":
        line(console, "Every branch is where it was. Archive tags that were pushed stay.")
        return
    cells = [(move.branch, str(move.old), move.new) for move in final_moves(run)]
    rows(console, "Ready, nothing has moved yet", ("branch", "is", "becomes"), cells)
    next_steps(console, ways_on(run))


def _show_published(console: Console, run: Run) -> None:
    plan = run.plan
    what = {
        "recut": "Re-cut published",
        "land": f"{plan.topic} has landed",
        "undo": f"Run {plan.undoes} taken back",
    }
    if plan.kind == "release":
        line(console, f"Released {plan.release_tag} ({plan.release_commit})", style="bold")
    else:
        line(console, f"{what.get(plan.kind, 'Pinned')}   run {run.id}", style="bold")
    rows(
        console,
        "Pinned, read back from the server",
        ("tag", "pins"),
        [(t.name, t.commit) for t in plan.archive],
    )
    cells = [(move.branch, str(move.old), move.new) for move in final_moves(run)]
    rows(console, "Moved, read back from the server", ("branch", "was", "is"), cells)
    mirror, own = run.last("mirror"), run.last("own branches")
    line(console, "")
    if plan.mirror and mirror:
        line(console, f"Mirror: {mirror.reason}")
    if own and own.paths:
        line(console, f"Moved along in this clone: {', '.join(own.paths)}")
    for left in own.reason.split("; ") if own and own.reason else []:
        line(console, f"Left alone in this clone: {left}")
    if plan.kind in ("recut", "land"):
        next_steps(console, ["tools/recut verify", "tools/recut undo   # if this was a mistake"])


def show_status(console: Console, status: Status) -> None:
    line(console, f"base      {status.describe} ({status.base})")
    line(console, f"release   {status.base_release or 'none known here: git fetch --tags upstream'}")
    behind = f"{status.n_behind} commits behind" if status.n_behind else "up to date with"
    line(console, f"upstream  {behind} {status.upstream[:12]}, as last fetched")
    line(console, f"local     {status.local[:12]}, carries {status.n_carried} patches")
    line(console, f"next      {status.next_release or '-'}")
    cells = [
        (
            topic.topic,
            topic.state.value,
            topic.tip[:12],
            str(topic.n_ahead),
            ", ".join(topic.touched) or "-",
            ", ".join(topic.classes) or "-",
        )
        for topic in status.topics
    ]
    rows(console, "", ("topic", "state", "tip", "ahead", "touched by drift", "last plan"), cells)
    for commit in status.unpinned:
        line(console, f"not pinned: {commit}   (tools/recut archive --scan)")
    if status.run:
        line(console, "")
        line(console, f"run {status.run.id} is in progress: {status.run.phase}", style="bold")
        if status.run.worktree:
            line(console, f"resolve in {status.run.worktree}")
        next_steps(console, status.run.next)


def show_scan(console: Console, scan: Scan, *, pinned: bool) -> None:
    line(console, f"{scan.n_seen} tips seen, {len(scan.unpinned)} that no ref on the server reaches")
    cells = [(tag.name, tip.commit, tip.source) for tag, tip in zip(scan.tags, scan.unpinned, strict=True)]
    heading = "Pinned, read back from the server" if pinned else "To be pinned"
    rows(console, heading, ("tag", "pins", "found in"), cells)
    lost = [(tip.commit, tip.source) for tip in scan.lost]
    rows(console, "Lost: named, but neither here nor on the server", ("commit", "found in"), lost)


def show_integration(console: Console, made: Integration) -> None:
    line(console, f"{made.commit} joins local and {', '.join(made.topics)}")
    next_steps(
        console,
        [
            f"git worktree add --detach PATH {made.commit}",
            f"tools/recut archive {made.commit} --label integrate   # once evidence is made from it",
        ],
    )


def show_log(console: Console, runs: Sequence[Run]) -> None:
    cells = []
    for run in runs:
        cells.append((run.id, run.entries[0].at if run.entries else "", run.phase, run.plan.release_tag))
        if run.has_done("archive"):
            cells += [("", "", "pinned", f"{tag.name} -> {tag.commit}") for tag in run.plan.archive]
        if run.has_done("move"):
            cells += [
                ("", "", "moved", f"{m.branch} {str(m.old)[:12]} -> {m.new[:12]}") for m in final_moves(run)
            ]
    rows(console, "", ("run", "begun", "state", ""), cells)
    if not runs:
        line(console, "no run yet")
