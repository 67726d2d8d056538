"""This clone's refs after a publish: its branches, its tracking branches, the tool's own."""

from __future__ import annotations

from collections.abc import Sequence

from .git import Git
from .plan import Plan
from .remote import fetch_url
from .stack import Move, Sha


def move_own_branches(git: Git, moves: Sequence[Move], *, reason: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
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
    gone = {ref: value for ref, value in found.items() if not keep or not ref.startswith(f"refs/recut/{keep}/")}
    gone = {ref: value for ref, value in gone.items() if not ref.startswith("refs/recut/integrate/")}
    git.update_refs({ref: (value, None) for ref, value in gone.items()}, reason="recut: run over")
