"""A run that stops at a patch: the scratch worktree, what is wrong there, the commit that resolves it."""

from __future__ import annotations

import re

from command.errors import Outcome, StateError

from .forecast import Replay
from .git import Git
from .journal import Run
from .pick import add_trailer, rewritten
from .plan import PatchPlan
from .stack import Commit, Sha
from .worktree import add_worktree, remove_worktree


def stop(git: Git, run: Run, result: Replay, patch: PatchPlan) -> StateError:
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
    return list(dict.fromkeys(row.partition(b"\t")[2].decode(errors="surrogateescape") for row in rows if row))


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
    loose = _loose(git, run)
    if loose:
        raise conflict(git, run, *loose)
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
    git.run("rerere", at=run.worktree, ok=range(256))  # remembers the resolution, if the user wants that at all
    remove_worktree(git, run.worktree)


def _loose(git: Git, run: Run) -> list[str]:
    """What the scratch worktree has and its index has not; it would be lost with the worktree."""
    git.run("update-index", "-q", "--refresh", at=run.worktree, ok=(0, 1))
    changed = git.run("diff-files", "--name-only", "-z", at=run.worktree).out.split(b"\0")
    new = git.run("ls-files", "--others", "--exclude-standard", "-z", at=run.worktree).out.split(b"\0")
    found = [f"changed, but not added: {path.decode(errors='replace')}" for path in changed if path]
    return found + [f"new, neither added nor deleted: {path.decode(errors='replace')}" for path in new if path]


def _resolution(git: Git, run: Run, patch: Commit, tip: Commit) -> tuple[Sha, bytes]:
    """(tree, message): of the index, or of the one commit that a person made there."""
    head = git.text("rev-parse", "--verify", "HEAD", at=run.worktree)
    original = patch.raw.partition(b"\n\n")[2]
    if head == tip.sha:
        return Sha(git.text("write-tree", at=run.worktree)), original
    (made,) = git.commits([Sha(head)])
    if made.parents != (tip.sha,):
        raise conflict(git, run, f"the worktree is at {head[:12]}, which is not one commit on top of {tip.sha[:12]}")
    if git.text("write-tree", at=run.worktree) != made.tree:
        raise conflict(git, run, "the worktree has changes that its commit has not")
    return made.tree, made.raw.partition(b"\n\n")[2]


def _is_empty(git: Git, patch: Commit) -> bool:
    return git.commits([patch.parents[0]])[0].tree == patch.tree


_MARKERS = re.compile(rb"^<{7} .*?^={7}\r?$.*?^>{7} ", re.MULTILINE | re.DOTALL)


def _has_markers(git: Git, tree: Sha, path: str, patch: Commit) -> bool:
    resolved, original = git.file(tree, path), git.file(patch.sha, path)
    return bool(resolved and _MARKERS.search(resolved) and not (original and _MARKERS.search(original)))
