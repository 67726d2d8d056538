"""The run: replays the planned branches, stops at conflicts, goes on, gives up, takes back.

Commits are made in memory and kept alive by refs/recut/<run>/; only a conflict gets a scratch worktree, in
the git directory. The user's checkout, index, HEAD and branches are not its business.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from command.errors import BugError, Outcome, StateError, refused, usage

from .conflict import stop
from .facts import first_parents
from .forecast import WITHDRAWN, Job, Replay, Watcher, ignore_patches, replay_branch
from .git import Git
from .journal import Run, Runs
from .own_refs import drop_refs
from .pick import Spot
from .plan import BranchPlan, Plan, differences, with_id
from .planning import plan_land, plan_recut
from .publish import server_of
from .record_commit import put_record
from .remote import fetch_commit, read_refs
from .settings import Settings
from .stack import CommitKind, Move, Sha
from .worktree import remove_worktree


def start(git: Git, settings: Settings, runs: Runs, given: Plan, *, watch: Watcher = ignore_patches) -> Run:
    """Begin the run that `given` plans, and replay it until it is ready to publish.

    Errors: remote-moved or refused where a plan made now differs; conflict where it stops.
    """
    runs.require_none()
    if given.kind not in ("recut", "land"):
        raise usage(f"a plan to {given.kind} is not started", f"tools/recut {given.kind}")
    if given.kind == "land":
        now = plan_land(git, settings, given.topic, identity=given.identity, upstream_head=given.upstream_head)
    else:
        now = plan_recut(
            git,
            settings,
            onto=str(given.new_base),
            topics=given.only_topics,
            identity=given.identity,
            upstream_head=given.upstream_head,
            watch=watch,
        )
    now = with_id(msgspec.structs.replace(now, onto=given.onto))
    if now.id != given.id:
        raise _differs(given, now)
    run = runs.begin(now)
    replay(git, settings, run)
    return run


def _differs(given: Plan, now: Plan) -> StateError:
    then = {branch.branch: branch.old for branch in given.branches}
    moved = then != {branch.branch: branch.old for branch in now.branches}
    again = f"tools/recut land {given.topic}" if given.kind == "land" else f"tools/recut plan --onto {given.onto}"
    return StateError(
        Outcome.REMOTE_MOVED if moved else Outcome.REFUSED,
        differences(given, now),
        next_steps=[again, "tools/recut start"],
    )


def replay(git: Git, settings: Settings, run: Run) -> None:
    """Replay what is not replayed yet. Safe to repeat: the same commits come out again.

    Errors: conflict where a patch needs a decision.
    """
    plan = run.plan
    if run.has_done("ready"):
        return
    branches: list[BranchPlan] = []
    tips: list[Sha] = []
    for branch in plan.branches:
        result = _replayed(git, settings, run, branch)
        if result.stopped:
            raise stop(git, run, result, result.stopped)
        branches.append(result.plan)
        tip = result.tip.commit
        if branch is plan.branches[-1] and plan.writes_record:
            tip = plan.record_commit or put_record(git, settings, plan, branches).commit
        tips.append(tip)
        git.keep(f"{run.ref_prefix}heads/{branch.branch}", tip)
        if not run.has_done("branch", branch=branch.branch):
            stays = "" if result.plan.moves else "stays"
            run.write("branch", branch=branch.branch, new=tip, reason=stays)
    if plan.kind in ("recut", "land"):
        require_accounted(git, plan, branches, tips)
    run.write("ready")


def require_accounted(git: Git, plan: Plan, branches: Sequence[BranchPlan], tips: Sequence[Sha]) -> None:
    """Commits in are commits out and drops, and every drop says why. Counted anew, from what git has.

    Errors: bug.
    """
    graph = git.graph(tips, without=[branch.onto for branch in branches])
    for branch, tip in zip(branches, tips, strict=True):
        dropped = [patch for patch in branch.patches if patch.new is None]
        n_records = int(plan.writes_record and branch is branches[-1])
        n_out = len(first_parents(graph, tip)[1]) - n_records
        unexplained = [p for p in dropped if p.upstream is None and not p.note.startswith(WITHDRAWN)]
        if n_out + len(dropped) != len(branch.patches) or unexplained:
            raise BugError(
                f"{branch.branch}: {len(branch.patches)} patches went in, {n_out} came out, "
                f"{len(dropped)} were dropped, {len(unexplained)} of them without a reason"
            )


def _replayed(git: Git, settings: Settings, run: Run, branch: BranchPlan) -> Replay:
    """The branch as planned where its tip is known, else replayed with the decisions so far."""
    if branch.new:
        (tip,) = git.commits([branch.new])
        return Replay(plan=branch, tip=Spot(commit=tip.sha, tree=tip.tree), made={})
    job = _job(git, run.plan, branch)
    return replay_branch(git, job, tests=settings.prove.tests, decisions=run.decisions())


def _job(git: Git, plan: Plan, branch: BranchPlan) -> Job:
    assert plan.new_base
    commits = git.commits([patch.patch for patch in branch.patches])
    return Job(
        branch=branch.branch,
        old=branch.old,
        base=branch.base,
        onto=branch.onto,
        patches=tuple(commits),
        is_local=branch is plan.branches[-1],
        kinds={patch.patch: patch.kind for patch in branch.patches if patch.kind},
        topics={patch.patch: patch.topic for patch in branch.patches if patch.topic},
        land=branch.topic,
        replaced=branch.replaced,
        new_base=plan.new_base,
    )


def skip(git: Git, settings: Settings, run: Run, *, superseded_by: str = "", withdraw: str = "") -> None:
    """Leave out the patch that the run stopped at, and say why; nothing else is ever left out.

    Errors: refused where the run has not stopped, or the upstream commit cannot have superseded the patch.
    """
    stopped = run.stopped
    if stopped is None or stopped.patch is None:
        raise refused("the run has not stopped at a patch", "tools/recut status")
    if withdraw:
        for patch in _withdrawn_with(run.plan, stopped.branch, stopped.patch):
            run.write("dropped", branch=stopped.branch, patch=patch, reason=withdraw)
    else:
        upstream = require_superseding(git, settings, run.plan, stopped.patch, superseded_by)
        run.write("dropped", branch=stopped.branch, patch=stopped.patch, upstream=upstream)
    remove_worktree(git, run.worktree)


def _withdrawn_with(plan: Plan, branch: str, patch: Sha) -> list[Sha]:
    """All patches of the topic that `patch` belongs to; a plain commit of local goes alone."""
    (found,) = [b for b in plan.branches if b.branch == branch]
    (this,) = [p for p in found.patches if p.patch == patch]
    if this.kind is CommitKind.PLAIN:
        return [patch]
    return [p.patch for p in found.patches if p.topic == this.topic]


def require_superseding(git: Git, settings: Settings, plan: Plan, patch: Sha, revision: str) -> Sha:
    """The upstream commit, if it is part of the new base and touches a file of the patch. Errors: refused."""
    from .remote import fetch_url

    upstream = git.resolve(revision)
    if upstream is None:
        fetch_commit(git, fetch_url(git, settings.upstream.remote), Sha(revision))
        upstream = git.resolve(revision)
    if upstream is None:
        raise refused(f"{revision!r} is no commit here", "git fetch " + settings.upstream.remote)
    reasons = []
    assert plan.new_base
    if not git.is_ancestor(upstream, plan.new_base):
        reasons.append(f"{upstream[:12]} is not part of the base {plan.new_base[:12]}")
    changes = git.changes([patch, upstream])
    if not {c.path for c in changes[patch]} & {c.path for c in changes[upstream]}:
        reasons.append(f"{upstream[:12]} touches none of the files of {patch[:12]}")
    if reasons:
        raise refused(reasons, "tools/recut skip --superseded-by SHA", 'tools/recut skip --withdraw "REASON"')
    return upstream


def abort(git: Git, runs: Runs, run: Run, moves: Sequence[Move]) -> None:
    """Drop a run whose branches have not moved. Safe to repeat.

    Errors: refused where they have.
    """
    if run.has_begun("move") and moves:
        heads = read_refs(git, server_of(git, run.plan), *(move.ref for move in moves))
        if any(move.ref in heads and heads[move.ref].object == move.new for move in moves):
            raise refused(
                "the branches have moved on the server already, so there is nothing to abort",
                "tools/recut undo   # takes every branch back",
                "tools/recut continue   # finishes the run",
                state="The branches have moved; their old tips are pinned on the server.",
            )
    if not run.has_begun("abort"):
        run.write("abort", done=False)
    remove_worktree(git, run.worktree)
    drop_refs(git, only=run.id)
    runs.end(run, "aborted")
