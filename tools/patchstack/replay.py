"""The run: replays the planned branches, stops at conflicts, goes on, gives up, takes back.

Commits are made in memory and kept alive by refs/recut/<run>/; only a conflict gets a scratch worktree, in
the git directory. The user's checkout, index, HEAD and branches are not its business.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from . import plan as planned
from .errors import NOTHING_MOVED, Outcome, StateError, refused
from .forecast import Job, Replay, Watcher, ignore_patches, replay_branch
from .git import Git
from .journal import Run, Runs
from .pick import Spot, add_trailer, rewritten
from .plan import BranchPlan, PatchPlan, Plan
from .planning import plan_land, plan_recut, put_record
from .publish import drop_refs, server_of
from .remote import fetch_commit, read_refs
from .settings import Settings
from .stack import Commit, CommitKind, Move, Sha
from .worktree import add_worktree, remove_worktree


def start(git: Git, settings: Settings, runs: Runs, given: Plan, *, watch: Watcher = ignore_patches) -> Run:
    """Begin the run that `given` plans, and replay it until it is ready to publish.

    Errors: remote-moved or refused where a plan made now differs; conflict where it stops.
    """
    runs.require_none()
    if given.kind == "land":
        now = plan_land(
            git, settings, given.topic, identity=given.identity, upstream_head=given.upstream_head
        )
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
    now = planned.with_id(msgspec.structs.replace(now, onto=given.onto))
    if now.id != given.id:
        raise _differs(given, now)
    run = runs.begin(now)
    replay(git, settings, run)
    return run


def _differs(given: Plan, now: Plan) -> StateError:
    then = {branch.branch: branch.old for branch in given.branches}
    moved = then != {branch.branch: branch.old for branch in now.branches}
    again = (
        f"tools/recut land {given.topic}" if given.kind == "land" else f"tools/recut plan --onto {given.onto}"
    )
    return StateError(
        Outcome.REMOTE_MOVED if moved else Outcome.REFUSED,
        planned.differences(given, now),
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
    for branch in plan.branches:
        result = _replayed(git, settings, run, branch)
        if result.stopped:
            raise _stop(git, run, result, result.stopped)
        branches.append(result.plan)
        tip = result.tip.commit
        if branch is plan.branches[-1] and plan.writes_record:
            tip = plan.record_commit or put_record(git, settings, plan, branches).commit
        git.keep(f"{run.ref_prefix}heads/{branch.branch}", tip)
        if not run.has_done("branch", branch=branch.branch):
            stays = "" if result.plan.moves else "stays"
            run.write("branch", branch=branch.branch, new=tip, reason=stays)
    run.write("ready")


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


# Conflicts


def _stop(git: Git, run: Run, result: Replay, patch: PatchPlan) -> StateError:
    """Prepare the scratch worktree, unless it is there from before, and say what to do."""
    branch = result.plan.branch
    stopped = run.stopped
    if not (stopped and stopped.patch == patch.patch and run.worktree.exists()):
        git.keep(f"{run.ref_prefix}heads/{branch}", result.tip.commit)
        add_worktree(git, run.worktree, result.tip.commit)
        args = ("cherry-pick", "--allow-empty", "--end-of-options", patch.patch)
        picked = git.run(*args, at=run.worktree, ok=range(256))
        remembered = _from_memory(f"{picked.err}\n{picked.out.decode(errors='replace')}")
        note = f"{patch.note}\n" if patch.note else ""
        run.write(
            "stopped", branch=branch, patch=patch.patch, new=result.tip.commit,
            paths=patch.conflicts or tuple(unmerged(git, run)), upstream=patch.upstream,
            reason=note + "\n".join(remembered),
        )  # fmt: skip
    return conflict(git, run)


_FROM_MEMORY = re.compile(r"^Resolved '(.+)' using previous resolution\.$", re.MULTILINE)


def _from_memory(said: str) -> list[str]:
    """Files whose conflict rerere filled in from an earlier resolution, which may have been a bad one."""
    return [f"filled in from rerere's memory, so read it: {path}" for path in _FROM_MEMORY.findall(said)]


def unmerged(git: Git, run: Run) -> list[str]:
    """Paths that are still in conflict in the scratch worktree."""
    rows = git.run("ls-files", "--unmerged", "-z", at=run.worktree).out.split(b"\0")
    return list(
        dict.fromkeys(row.partition(b"\t")[2].decode(errors="surrogateescape") for row in rows if row)
    )


def conflict(git: Git, run: Run, *more: str) -> StateError:
    """The error that says where the run stands and the ways on."""
    stopped = run.stopped
    assert stopped and stopped.patch
    (commit,) = git.commits([stopped.patch])
    what = f"{stopped.branch}: {stopped.patch[:12]} ({commit.subject})"
    reasons = [f"{what} does not go in as it is", *(f"in conflict: {path}" for path in stopped.paths)]
    reasons += [line for line in stopped.reason.split("\n") if line]
    guess = stopped.upstream
    if guess:
        (upstream,) = git.commits([guess])
        reasons.append(f"upstream's {guess[:12]} ({upstream.subject}) may supersede it")
    return StateError(
        Outcome.CONFLICT,
        [*more, *reasons],
        state=NOTHING_MOVED,
        next_steps=[
            f"cd {run.worktree}   # resolve, then: git add FILE...",
            "tools/recut continue",
            f"tools/recut skip --superseded-by {guess or 'SHA'}   # upstream has it",
            'tools/recut skip --withdraw "REASON"   # give the patch up',
            "tools/recut abort",
        ],
    )


def take_resolution(git: Git, run: Run) -> None:
    """Make the patch's new commit from what the scratch worktree holds, keeping its author.

    Errors: conflict where it is not resolved, with what is missing.
    """
    stopped = run.stopped
    assert stopped and stopped.patch and stopped.new
    if not run.worktree.exists():
        return
    patch, tip = git.commits([stopped.patch, stopped.new])
    left = unmerged(git, run)
    if left:
        raise conflict(git, run, *(f"not resolved yet: {path}" for path in left))
    if git.run("diff-files", "--quiet", "--ignore-submodules", at=run.worktree, ok=(0, 1)).code:
        git.run("update-index", "-q", "--refresh", at=run.worktree, ok=(0, 1))
    changed = git.run("diff-files", "--name-only", "-z", at=run.worktree).out.split(b"\0")
    if any(changed):
        names = [path.decode(errors="replace") for path in changed if path]
        raise conflict(git, run, *(f"changed, but not added: {name}" for name in names))
    tree, message = _resolution(git, run, patch, tip)
    if tree == tip.tree and not _is_empty(git, patch):
        raise conflict(git, run, "the resolution leaves nothing of the patch; say so with skip")
    marked = [path for path in stopped.paths if _has_markers(git, tree, path, patch)]
    if marked:
        raise conflict(git, run, *(f"conflict markers are still in {path}" for path in marked))
    if run.plan.kind == "land":
        message = add_trailer(message, run.plan.topic)
    new = git.write_commit(rewritten(patch, tree, tip.sha, message))
    git.keep(f"{run.ref_prefix}resolved/{patch.sha}", new)
    run.write("resolved", branch=stopped.branch, patch=patch.sha, new=new)
    git.run(
        "rerere", at=run.worktree, ok=range(256)
    )  # remembers the resolution, if the user wants that at all
    remove_worktree(git, run.worktree)


def _resolution(git: Git, run: Run, patch: Commit, tip: Commit) -> tuple[Sha, bytes]:
    """(tree, message): of the index, or of the one commit that a person made there."""
    head = git.text("rev-parse", "--verify", "HEAD", at=run.worktree)
    original = patch.raw.partition(b"\n\n")[2]
    if head == tip.sha:
        return Sha(git.text("write-tree", at=run.worktree)), original
    (made,) = git.commits([Sha(head)])
    if made.parents != (tip.sha,):
        raise conflict(
            git, run, f"the worktree is at {head[:12]}, which is not one commit on top of {tip.sha[:12]}"
        )
    if git.text("write-tree", at=run.worktree) != made.tree:
        raise conflict(git, run, "the worktree has changes that its commit has not")
    return made.tree, made.raw.partition(b"\n\n")[2]


def _is_empty(git: Git, patch: Commit) -> bool:
    return git.commits([patch.parents[0]])[0].tree == patch.tree


_MARKERS = re.compile(rb"^<{7} .*?^={7}\r?$.*?^>{7} ", re.MULTILINE | re.DOTALL)


def _has_markers(git: Git, tree: Sha, path: str, patch: Commit) -> bool:
    resolved, original = git.file(tree, path), git.file(patch.sha, path)
    return bool(resolved and _MARKERS.search(resolved) and not (original and _MARKERS.search(original)))


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


# Giving up


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
