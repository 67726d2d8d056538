"""Plans, runs and states as short tables for people. What it prints is no interface: scripts use --json."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .journal import Run, final_moves, ways_on
from .stack import CommitKind, PatchClass, TopicRow, TopicState

if TYPE_CHECKING:
    from rich.text import Text

    from command.paper import Paper

    from .integrate import Integration
    from .plan import BranchPlan, PatchPlan, Plan
    from .scan import Scan
    from .status import Status

STYLES = {
    PatchClass.UNTOUCHED: "green",
    PatchClass.ADAPTED: "green",
    PatchClass.EMPTY: "green",
    PatchClass.SUPERSEDED: "cyan",
    PatchClass.PARTLY_SUPERSEDED: "yellow",
    PatchClass.CONFLICT: "red",
}


def next_steps(paper: Paper, steps: Sequence[str]) -> None:
    paper.line("")
    paper.line("Next:", style="bold")
    for step in steps:
        paper.line(f"  {step}")


def show_plan(paper: Paper, plan: Plan, *, saved: str = "") -> None:
    """The plan: base, patches by branch, what is left out, tags, moves, notes."""
    if plan.kind == "recut":
        paper.line(f"Re-cut onto {plan.describe} ({plan.new_base})   plan {plan.id}", style="bold")
        paper.line(f"from base {plan.old_base}{f' ({plan.old_release})' if plan.old_release else ''}")
    elif plan.kind == "land":
        paper.line(f"Land {plan.topic} on {plan.branches[-1].branch}   plan {plan.id}", style="bold")
    elif plan.kind == "release":
        paper.line(f"Release {plan.release_tag} of {plan.release_commit}   plan {plan.id}", style="bold")
    elif plan.kind == "undo":
        paper.line(f"Undo run {plan.undoes}   plan {plan.id}", style="bold")
    patches = [_patch_row(branch, patch) for branch in plan.branches for patch in branch.patches]
    paper.rows("", ("branch", "patch", "subject", "class", "becomes", "because"), patches)
    left_out = [(row.kind.value, row.commit[:12], row.subject) for branch in plan.branches for row in branch.replaced]
    paper.rows("Left out by name (made anew when due)", ("kind", "commit", "subject"), left_out)
    paper.rows(
        "Archive tags, pushed and read back first",
        ("tag", "pins"),
        [(t.name, t.commit) for t in plan.archive],
    )
    moves: list[tuple[str, str, str]] = [
        (branch.branch, branch.old, branch.new or "after resolution") for branch in plan.branches if branch.moves
    ]
    if plan.mirror:
        moves.append((f"{plan.mirror.branch} (mirror)", str(plan.mirror.old), plan.mirror.new))
    paper.rows("Moves, one atomic push", ("branch", "lease", "becomes"), moves)
    known = {row.topic: row for row in plan.record_before.topics} if plan.record_before else {}
    paper.rows(
        "Record rows that change",
        ("topic", "state", "old", "new", "archive tag"),
        [
            (row.topic, row.state.value, str(row.old or "-"), row.new or _unknown(row), row.archive_tag)
            for row in (plan.record_after.topics if plan.record_after else ())
            if row != known.get(row.topic)
        ],
    )
    if plan.notes:
        paper.line("")
    for note in plan.notes:
        paper.line(f"Note: {note}")
    if plan.n_conflicts:
        paper.line("")
        paper.line(
            f"{plan.n_conflicts} patch(es) will stop the run for a decision; ids after them depend on it.",
        )
    if saved:
        next_steps(paper, [f"tools/recut {'start' if plan.kind == 'recut' else plan.kind} {saved}".rstrip()])


def _unknown(row: TopicRow) -> str:
    """What stands for a new tip that the record does not have."""
    return "after resolution" if row.state in (TopicState.OPEN, TopicState.LANDED) else "-"


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


def show_run(paper: Paper, run: Run) -> None:
    """Where a run stands after a command."""
    if run.phase == "published":
        _show_published(paper, run)
        return
    paper.line(f"Run {run.id}: {run.phase}", style="bold")
    if run.phase == "aborted":
        paper.line("Every branch is where it was. Archive tags that were pushed stay.")
        return
    cells = [(move.branch, str(move.old), move.new) for move in final_moves(run)]
    paper.rows("Ready, nothing has moved yet", ("branch", "is", "becomes"), cells)
    proofs = [f"tools/recut prove {doubt.commit[:12]}   # {doubt.branch}: {doubt.why}" for doubt in run.doubts()]
    next_steps(paper, [*proofs, *ways_on(run)])


def _show_published(paper: Paper, run: Run) -> None:
    plan = run.plan
    what = {
        "recut": "Re-cut published",
        "land": f"{plan.topic} has landed",
        "undo": f"Run {plan.undoes} taken back",
    }
    if plan.kind == "release":
        paper.line(f"Released {plan.release_tag} ({plan.release_commit})", style="bold")
    else:
        paper.line(f"{what.get(plan.kind, 'Pinned')}   run {run.id}", style="bold")
    paper.rows(
        "Pinned, read back from the server",
        ("tag", "pins"),
        [(t.name, t.commit) for t in plan.archive],
    )
    cells = [(move.branch, str(move.old), move.new) for move in final_moves(run)]
    paper.rows("Moved, read back from the server", ("branch", "was", "is"), cells)
    mirror, own = run.last("mirror"), run.last("own branches")
    paper.line("")
    if plan.mirror and mirror:
        paper.line(f"Mirror: {mirror.reason}")
    if own and own.paths:
        paper.line(f"Moved along in this clone: {', '.join(own.paths)}")
    for left in own.reason.split("; ") if own and own.reason else []:
        paper.line(f"Left alone in this clone: {left}")
    if plan.kind in ("recut", "land"):
        next_steps(paper, ["tools/recut verify", "tools/recut undo   # if this was a mistake"])


def _behind(status: Status) -> str:
    if status.n_behind:
        return f"{status.n_behind} commits behind {status.upstream[:12]}, as last fetched"
    if status.upstream == status.base:
        return "up to date, as last fetched"
    return f"last fetched at {status.upstream[:12]}, which is older than the base: git fetch upstream"


def show_status(paper: Paper, status: Status) -> None:
    paper.line(f"base      {status.describe} ({status.base})")
    paper.line(f"release   {status.base_release or 'none known here: git fetch --tags upstream'}")
    paper.line(f"upstream  {_behind(status)}")
    paper.line(f"local     {status.local[:12]}, carries {status.n_carried} patches")
    paper.line(f"next      {status.next_release or '-'}")
    cells = [
        (
            topic.topic,
            topic.state.value,
            topic.tip[:12],
            str(topic.n_ahead),
            ", ".join(topic.touched) or "-",
            ", ".join(f"{n} {name}" for name, n in Counter(topic.classes).items()) or "-",
        )
        for topic in status.topics
    ]
    paper.rows("", ("topic", "state", "tip", "ahead", "touched by drift", "last plan"), cells)
    for commit in status.unpinned:
        paper.line(f"not pinned: {commit}   (tools/recut archive --scan)")
    if status.run:
        paper.line("")
        paper.line(f"run {status.run.id} is in progress: {status.run.phase}", style="bold")
        if status.run.worktree:
            paper.line(f"resolve in {status.run.worktree}")
        next_steps(paper, status.run.next)


def show_scan(paper: Paper, scan: Scan, *, pinned: bool) -> None:
    paper.line(f"{scan.n_seen} tips seen, {len(scan.unpinned)} that no ref on the server reaches")
    cells = [(tag.name, tip.commit, tip.source) for tag, tip in zip(scan.tags, scan.unpinned, strict=True)]
    heading = "Pinned, read back from the server" if pinned else "To be pinned"
    paper.rows(heading, ("tag", "pins", "found in"), cells)
    lost = [(tip.commit, tip.source) for tip in scan.lost]
    paper.rows("Lost: named, but neither here nor on the server", ("commit", "found in"), lost)


def show_integration(paper: Paper, made: Integration) -> None:
    paper.line(f"{made.commit} joins local and {', '.join(made.topics)}")
    next_steps(
        paper,
        [
            f"git worktree add --detach PATH {made.commit}",
            f"tools/recut archive {made.commit} --label integrate   # once evidence is made from it",
        ],
    )


def show_log(paper: Paper, runs: Sequence[Run]) -> None:
    cells = []
    for run in runs:
        cells.append((run.id, run.entries[0].at if run.entries else "", run.phase, run.plan.release_tag))
        if run.has_done("archive"):
            cells += [("", "", "pinned", f"{tag.name} -> {tag.commit}") for tag in run.plan.archive]
        if run.has_done("move"):
            cells += [("", "", "moved", f"{m.branch} {str(m.old)[:12]} -> {m.new[:12]}") for m in final_moves(run)]
    paper.rows("", ("run", "begun", "state", ""), cells)
    if not runs:
        paper.line("no run yet")
