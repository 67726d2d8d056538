"""Pins, then moves: archive tags pushed and read back, only then one atomic move of the branches.

Every step can be repeated, so a run that died is simply taken through the steps again. It never forces: each
branch has the lease that the plan fixed, and each new tag must not exist.
"""

from __future__ import annotations

from collections.abc import Sequence

from command.errors import BugError, refused

from .git import Git
from .journal import Run, Runs, final_moves
from .own_refs import drop_refs, follow_tracking, move_own_branches
from .pin import make_tags, push_tags, put_tags, require_pinned, write_tag
from .plan import Plan
from .remote import lease_lost, push, push_error, push_url, read_refs, without_credentials
from .stack import Lease, Move, RemoteRef, Sha, branch_ref, tag_ref


def publish(git: Git, runs: Runs, run: Run) -> None:
    """Take a ready run to its end. Safe to repeat.

    Errors: remote-moved where a lease is lost; refused where a tag's name is taken or the server cannot push
    atomically; git-failed where the server declines. The run stays in progress after each of them.
    """
    url = server_of(git, run.plan)
    moves = final_moves(run)
    if not run.has_done("move"):
        require_leases(git, url, moves)
        _pin(git, run, url)
        run.write("move", done=False)
        move_branches(git, url, moves)
        run.write("move")
    _finish(git, runs, run, url, moves)


def _pin(git: Git, run: Run, url: str) -> None:
    """Every old tip pinned on the server, seen there just now, also where an earlier try had pinned them."""
    plan = run.plan
    if not run.has_done("pin"):
        run.write("pin", done=False)
    tags = make_tags(git, plan.archive, plan.identity, message=_tag_message(plan))
    if not run.has_done("pin"):
        run.write("pin")
    if not run.has_done("archive"):
        run.write("archive", done=False)
    push_tags(git, url, tags)
    require_pinned(git, url, plan.archive)
    if not run.has_done("archive"):
        run.write("archive", paths=tuple(tag.name for tag in plan.archive))


def _finish(git: Git, runs: Runs, run: Run, url: str, moves: Sequence[Move]) -> None:
    """What follows the atomic move: the mirror, this clone's own branches, the end. Safe to repeat."""
    if run.plan.release_tag and not run.has_done("release tag"):
        run.write("release tag", done=False, reason=run.plan.release_tag)
        push_release(git, run.plan, url)
        run.write("release tag", reason=run.plan.release_tag)
    if not run.has_done("mirror"):
        run.write("mirror", done=False)
        run.write("mirror", reason=move_mirror(git, run.plan, url))
    if not run.has_done("own branches"):
        run.write("own branches", done=False)
        reason = f"recut {run.plan.kind} {run.id}"
        follow_tracking(git, run.plan, url, moves, reason=reason)
        moved, left = move_own_branches(git, moves, reason=reason)
        run.write("own branches", paths=moved, reason="; ".join(left))
    drop_refs(git, keep=run.id)
    runs.end(run, "published")


def server_of(git: Git, plan: Plan) -> str:
    """The URL to push to, with its credentials, which a plan does not hold. Errors: refused if it changed."""
    url = push_url(git, plan.remote)
    if without_credentials(url) != plan.push_url:
        raise refused(
            f"pushes to {plan.remote} go to {without_credentials(url)} now, the plan says {plan.push_url}",
            f"git remote set-url --push {plan.remote} {plan.push_url}",
            "tools/recut abort",
        )
    return url


def require_leases(git: Git, url: str, moves: Sequence[Move]) -> None:
    """Errors: remote-moved where a branch is neither where the plan found it nor where it is to go."""
    heads = read_refs(git, url, *(move.ref for move in moves))
    lost = [
        f"{move.branch} was {str(move.old)[:12]} when planned and is {shown(heads.get(move.ref))} now"
        for move in moves
        if not _is_at(heads, move, move.old) and not _is_at(heads, move, move.new)
    ]
    if lost:
        raise lease_lost(lost)


def shown(ref: RemoteRef | None) -> str:
    return ref.object[:12] if ref else "gone"


def _is_at(heads: dict[str, RemoteRef], move: Move, commit: Sha | None) -> bool:
    found = heads.get(move.ref)
    return (found.object if found else None) == commit


def _tag_message(plan: Plan) -> str:
    if plan.kind == "recut":
        return f"Tip before the re-cut onto {plan.describe} ({plan.new_base}).\n"
    if plan.kind == "land":
        return f"Tip before {plan.topic} landed.\n"
    return f"Tip before the {plan.kind}.\n"


def push_release(git: Git, plan: Plan, url: str) -> None:
    """The annotated release tag in a push of its own: a forge tells nobody of tags that come in a crowd.

    Errors: remote-moved where the name was taken meanwhile.
    """
    commit = plan.release_commit
    if commit is None:
        raise BugError(f"the plan names the release {plan.release_tag} and no commit for it")
    (value,) = git.commits([commit])
    tag = write_tag(git, plan.release_tag, value, plan.identity, plan.release_message)
    ref = tag_ref(plan.release_tag)
    put_tags(git, {ref: tag})
    result = push(git, url, [(tag, ref)], [Lease(ref=ref, expect=None)])
    found = read_refs(git, url, ref).get(ref)
    if found != RemoteRef(tag, commit):
        raise push_error(result, url, f"the release tag {plan.release_tag}")


def move_branches(git: Git, url: str, moves: Sequence[Move]) -> None:
    """One atomic push with one lease for each branch, then read back. A push whose end is unknown is judged
    by what the server shows."""
    if not moves:
        return
    result = push(git, url, [(move.new, move.ref) for move in moves], [move.lease for move in moves])
    heads = read_refs(git, url, *(move.ref for move in moves))
    if all(_is_at(heads, move, move.new) for move in moves):
        return
    if any(_is_at(heads, move, move.new) for move in moves):
        raise BugError(
            [f"{move.branch} is {shown(heads.get(move.ref))}" for move in moves],
            state="The server moved some branches of an atomic push and not others. Old tips are pinned.",
        )
    if result.code == 0:
        raise lease_lost([f"{move.branch} is {shown(heads.get(move.ref))} after the push" for move in moves])
    raise push_error(result, url, "the move")


def move_mirror(git: Git, plan: Plan, url: str) -> str:
    """Fast-forward the fork's copy of upstream's branch; an undo puts it back. What came of it."""
    mirror = plan.mirror
    if mirror is None:
        return "nothing to do"
    if branch_ref(mirror.branch) in read_refs(git, url, mirror.ref):
        leases = [mirror.lease] if plan.kind == "undo" else []
        result = push(git, url, [(mirror.new, mirror.ref)], leases)
        if result.code == 0:
            return f"{mirror.branch} is at {mirror.new[:12]}"
        said = "; ".join(row.said for row in result.rejected) or result.err
        return f"{mirror.branch} was left alone: {said}"
    return f"{mirror.branch} is not on the server"
