"""What can go wrong in a tool, in three kinds, and the one table that turns it into an exit code.

Every error says what happened (`reasons`), what is unchanged (`state`) and what to do next (`next_steps`).
It knows nothing of git, servers, terminals or JSON; `edge` prints it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


class Outcome(Enum):
    """How a command ended; stable names, used in --json as `outcome`."""

    DONE = "done"
    CHECK_FAILED = "check-failed"
    USAGE = "usage"
    CONFLICT = "conflict"
    REMOTE_MOVED = "remote-moved"
    REFUSED = "refused"
    GIT_FAILED = "git-failed"
    REFERENCE_FAILED = "reference-failed"
    RUN_IN_PROGRESS = "run-in-progress"
    LOCKED = "locked"
    DRIFT = "drift"
    DRIFT_TOUCHES = "drift-touches-a-patch"
    BUG = "bug"


EXIT_CODES = {
    Outcome.DONE: 0,
    Outcome.CHECK_FAILED: 1,
    Outcome.USAGE: 2,
    Outcome.CONFLICT: 3,
    Outcome.REMOTE_MOVED: 4,
    Outcome.REFUSED: 5,
    # Both are a program that ours needs and that failed.
    Outcome.GIT_FAILED: 6,
    Outcome.REFERENCE_FAILED: 6,
    Outcome.RUN_IN_PROGRESS: 7,
    Outcome.LOCKED: 8,
    Outcome.DRIFT: 10,
    Outcome.DRIFT_TOUCHES: 11,
    Outcome.BUG: 70,
}


class ToolError(Exception):
    """A reason to stop, with the way on. Raise one of the three kinds below.

    Where `state` is empty, what the tool leaves unchanged whenever it stops is said.
    """

    def __init__(
        self,
        outcome: Outcome,
        reasons: str | Iterable[str],
        *,
        state: str = "",
        next_steps: Iterable[str] = (),
    ) -> None:
        self.outcome = outcome
        self.reasons = (reasons,) if isinstance(reasons, str) else tuple(reasons)
        self.state = state
        self.next_steps = tuple(next_steps)
        super().__init__("; ".join(self.reasons))


class InputError(ToolError):
    """The caller's input: an option, a name, a file that cannot be used as given."""


class StateError(ToolError):
    """Our state, or the world's: a conflict, a lost lease, a lock, a failing precondition, git or reference."""


class BugError(ToolError):
    """A broken promise of this program itself."""

    def __init__(self, reasons: str | Iterable[str], *, state: str = "") -> None:
        super().__init__(Outcome.BUG, reasons, state=state)


def usage(reason: str, *next_steps: str) -> InputError:
    """The caller's input cannot be understood."""
    return InputError(Outcome.USAGE, reason, next_steps=next_steps)


def refused(reasons: str | Iterable[str], *next_steps: str, state: str = "") -> StateError:
    """A precondition does not hold; all of the reasons at once."""
    return StateError(Outcome.REFUSED, reasons, next_steps=next_steps, state=state)
