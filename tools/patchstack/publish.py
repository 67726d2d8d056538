"""Pins, then moves: archive tags pushed and read back, only then one atomic move of the branches.

Every step can be repeated, so a run that died is simply taken through the steps again. It never forces: each
branch has the lease that the plan fixed, and each new tag must not exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .errors import BugError, Outcome, StateError, refused
from .git import Git, RemoteRef
from .journal import Run, Runs
from .plan import Plan
from .planning import own_annotated_tags
from .remote import PushResult, fetch_url, push, push_url, read_refs, without_credentials
from .stack import ArchiveTag, Commit, Identity, Lease, Move, Sha, branch_ref, tag_ref

MOVED_NOTHING = "No branch has moved, on the server or here. Archive tags are only ever added."


def publish(git: Git, runs: Runs, run: Run) -> None:
    """Take a ready run to its end. Safe to repeat.

    Errors: remote-moved where a lease is lost; refused where a tag's name is taken or the server cannot push
    atomically; git-failed where the server declines. The run stays in progress after each of them.
    """
    plan = run.plan
    url = server_of(git, plan)
    moves = final_moves(run)
    if not run.has_done("move"):
        require_leases(git, url, moves)
    if not run.has_done("pin"):
        run.write("pin", done=False)
        tags = make_tags(git, plan.archive, plan.identity, message=_tag_message(plan))
        run.write("pin")
    else:
        tags = make_tags(git, plan.archive, plan.identity, message=_tag_message(plan))
    if not run.has_done("archive"):
        run.write("archive", done=False)
        push_tags(git, url, tags)
        require_pinned(git, url, plan.archive)
        run.write("archive", paths=tuple(tag.name for tag in plan.archive))
    if not run.has_done("move"):
        run.write("move", done=False)
        move_branches(git, url, moves)
        run.write("move")
    finish(git, runs, run, url, moves)


def finish(git: Git, runs: Runs, run: Run, url: str, moves: Sequence[Move]) -> None:
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


def final_moves(run: Run) -> list[Move]:
    """The run's moves with the tips that it really made."""
    moves = []
    for branch in run.plan.branches:
        done = run.last("branch", branch=branch.branch)
        new = done.new if done else branch.new
        stays = done is not None and done.reason == "stays"
        if new is None:
            raise BugError(f"{branch.branch} has no new tip, yet the run is to be published")
        if branch.moves and not stays and new != branch.old:
            moves.append(Move(branch=branch.branch, old=branch.old, new=new))
    return moves


def require_leases(git: Git, url: str, moves: Sequence[Move]) -> None:
    """Errors: remote-moved where a branch is neither where the plan found it nor where it is to go."""
    heads = read_refs(git, url, *(move.ref for move in moves))
    lost = [
        f"{move.branch} was {str(move.old)[:12]} when planned and is {shown(heads.get(move.ref))} now"
        for move in moves
        if not _is_at(heads, move, move.old) and not _is_at(heads, move, move.new)
    ]
    if lost:
        raise _lease_lost(lost)


def shown(ref: RemoteRef | None) -> str:
    return ref.object[:12] if ref else "gone"


def _is_at(heads: dict[str, RemoteRef], move: Move, commit: Sha | None) -> bool:
    found = heads.get(move.ref)
    return (found.object if found else None) == commit


def _lease_lost(reasons: Sequence[str]) -> StateError:
    return StateError(
        Outcome.REMOTE_MOVED,
        [*reasons, "somebody pushed there meanwhile; their commits are untouched"],
        state=MOVED_NOTHING,
        next_steps=["tools/recut abort", "tools/recut plan --onto REF   (it will take in what they pushed)"],
    )


# Archive tags


def _tag_message(plan: Plan) -> str:
    if plan.kind == "recut":
        return f"Tip before the re-cut onto {plan.describe} ({plan.new_base}).\n"
    if plan.kind == "land":
        return f"Tip before {plan.topic} landed.\n"
    return f"Tip before the {plan.kind}.\n"


def make_tags(
    git: Git, tags: Sequence[ArchiveTag], identity: Identity, *, message: str
) -> list[tuple[ArchiveTag, Sha]]:
    """The annotated tags in this clone, made where they are missing; each with its tag object.

    The tagger's date is the archived commit's, so a repetition makes the same object.
    Errors: refused where a name is taken by something else.
    """
    here = own_annotated_tags(git)
    values = git.refs("refs/tags/archive/")
    commits = {commit.sha: commit for commit in git.commits([tag.commit for tag in tags])}
    wrong = [tag for tag in tags if tag.ref in here and here[tag.ref] != tag.commit]
    if wrong:
        raise refused(
            [f"{tag.name} in this clone is not an annotated tag of {tag.commit[:12]}" for tag in wrong],
            *(f"git tag -d {tag.name}" for tag in wrong),
            state=MOVED_NOTHING,
        )
    new = {
        tag.ref: write_tag(git, tag.name, commits[tag.commit], identity, message)
        for tag in tags
        if tag.ref not in here
    }
    put_tags(git, new)
    return [(tag, new.get(tag.ref) or values[tag.ref]) for tag in tags]


def write_tag(git: Git, name: str, commit: Commit, identity: Identity, message: str) -> Sha:
    """The tag object, dated as its commit is, so that a repetition makes the same one."""
    tagger = f"{identity} {commit.committer_date_s} +0000"
    content = f"object {commit.sha}\ntype commit\ntag {name}\ntagger {tagger}\n\n{message}"
    return git.write_object("tag", content.encode())


def put_tags(git: Git, tags: Mapping[str, Sha]) -> None:
    """New tags in this clone, all or none; those that are here as they should be are left alone.

    Errors: refused where a name is taken by something else.
    """
    found = git.refs(*tags) if tags else {}
    taken = [ref[len("refs/tags/") :] for ref, value in tags.items() if found.get(ref, value) != value]
    absent: dict[str, tuple[Sha | None, Sha | None]] = {
        ref: (None, value) for ref, value in tags.items() if ref not in found
    }
    if taken or not git.update_refs(absent, reason="recut: pin"):
        raise refused(
            [f"the tag {name} is in this clone already, as something else" for name in taken]
            or "git could not write the tags into this clone",
            *(f"git tag -d {name}" for name in taken),
            state=MOVED_NOTHING,
        )


def push_tags(git: Git, url: str, tags: Sequence[tuple[ArchiveTag, Sha]]) -> None:
    """Push the tags that the server has not, each under the lease that it must not exist."""
    theirs = read_refs(git, url, *(tag.ref for tag, _ in tags))
    absent = []
    for tag, value in tags:
        found = theirs.get(tag.ref)
        if found is None:
            absent.append((value, tag.ref))
        elif found.peeled != tag.commit:
            raise refused(
                f"{tag.name} on the server is not an annotated tag of {tag.commit[:12]}",
                "rename or remove that tag on the server, then: tools/recut publish",
                state=MOVED_NOTHING,
            )
    if not absent:
        return
    result = push(git, url, absent, [Lease(ref=ref, expect=None) for _, ref in absent])
    if result.code:
        raise push_error(result, url, "the archive tags")


def require_pinned(git: Git, url: str, tags: Sequence[ArchiveTag]) -> None:
    """Read the tags back from the server: each annotated, each peeling to its commit. Errors: refused."""
    theirs = read_refs(git, url, *(tag.ref for tag in tags))
    wrong = [tag for tag in tags if (found := theirs.get(tag.ref)) is None or found.peeled != tag.commit]
    if wrong:
        raise refused(
            [f"{tag.name} is not on the server as an annotated tag of {tag.commit[:12]}" for tag in wrong],
            "tools/recut publish   (repeats the push)",
            state=MOVED_NOTHING,
        )


def push_error(result: PushResult, url: str, what: str) -> StateError:
    """The error that a push which moved nothing comes to."""
    said = [f"{row.ref}: {row.said}" for row in result.rejected]
    if any("stale info" in row.said or "already exists" in row.said for row in result.rejected):
        return _lease_lost([row for row in said if "atomic push failed" not in row])
    if "does not support --atomic" in result.err:
        return refused(
            f"{url} cannot push atomically, and one ref at a time could leave the stack half moved",
            "publish to a server that supports atomic pushes",
            state=MOVED_NOTHING,
        )
    return StateError(
        Outcome.GIT_FAILED,
        [f"the server declined {what}", *said, *result.err.splitlines()],
        state=MOVED_NOTHING,
        next_steps=["ask for the right to push there, then: tools/recut continue", "tools/recut abort"],
    )


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


# Branches


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
        raise _lease_lost([f"{move.branch} is {shown(heads.get(move.ref))} after the push" for move in moves])
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


def move_own_branches(
    git: Git, moves: Sequence[Move], *, reason: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Move this clone's branches that were where the server's were: (moved, left with reason and command).

    A branch that is checked out somewhere is left alone: its files would no longer match it.
    """
    heads, checked_out = git.refs("refs/heads/"), git.checked_out()
    changes: dict[str, tuple[Sha | None, Sha | None]] = {}
    left = []
    for move in moves:
        if move.ref in checked_out and heads.get(move.ref) == move.old:
            where = checked_out[move.ref]
            left.append(f"{move.branch} is checked out: git -C {where} reset --keep {move.new}")
        elif heads.get(move.ref) == move.old:
            changes[move.ref] = (move.old, move.new)
        elif move.ref in heads and heads[move.ref] != move.new:
            left.append(f"{move.branch} is elsewhere in this clone: git branch -f {move.branch} {move.new}")
    if not git.update_refs(changes, reason=reason):
        return (), (*left, *(f"{ref[11:]} moved meanwhile and was left alone" for ref in changes))
    return tuple(ref[len("refs/heads/") :] for ref in changes), tuple(left)


def follow_tracking(git: Git, plan: Plan, url: str, moves: Sequence[Move], *, reason: str) -> None:
    """Let the tracking branches follow, as `git push` itself would; only where they show the same server."""
    if fetch_url(git, plan.remote) != url:
        return
    tracking = {f"refs/remotes/{plan.remote}/{move.branch}": move for move in moves}
    seen = git.refs(*tracking)
    changes: dict[str, tuple[Sha | None, Sha | None]] = {
        ref: (seen[ref], move.new) for ref, move in tracking.items() if seen.get(ref) == move.old
    }
    git.update_refs(changes, reason=f"{reason}: update by push")


def drop_refs(git: Git, *, keep: str = "", only: str = "") -> None:
    """Remove the refs that kept runs' commits alive: all but run `keep`'s, or run `only`'s."""
    found = git.refs(f"refs/recut/{only}/" if only else "refs/recut/")
    gone = {
        ref: value for ref, value in found.items() if not keep or not ref.startswith(f"refs/recut/{keep}/")
    }
    gone = {ref: value for ref, value in gone.items() if not ref.startswith("refs/recut/integrate/")}
    git.update_refs({ref: (value, None) for ref, value in gone.items()}, reason="recut: run over")
