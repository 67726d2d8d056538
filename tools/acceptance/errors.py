"""What can go wrong in the tool itself, in three kinds, and the one table that turns it into an exit code.

A server that answers wrongly, dies or hangs is none of these: it is a failed row of the report.
Every error says what happened (`reasons`), what is unchanged (`state`) and what to do next (`next_steps`).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

NOTHING_WRITTEN = "No report was written; every process that was started has been stopped."


class Outcome(Enum):
    """How a command ended; stable names, used in --json as `outcome`."""

    DONE = "done"
    CHECK_FAILED = "check-failed"
    USAGE = "usage"
    REFUSED = "refused"
    REFERENCE_FAILED = "reference-failed"
    LOCKED = "locked"
    BUG = "bug"


EXIT_CODES = {
    Outcome.DONE: 0,
    Outcome.CHECK_FAILED: 1,
    Outcome.USAGE: 2,
    Outcome.REFUSED: 5,
    Outcome.REFERENCE_FAILED: 6,
    Outcome.LOCKED: 8,
    Outcome.BUG: 70,
}


class EvidenceError(Exception):
    """A reason to stop, with the way on. Raise one of the three kinds below."""

    def __init__(
        self,
        outcome: Outcome,
        reasons: str | Iterable[str],
        *,
        state: str = NOTHING_WRITTEN,
        next_steps: Iterable[str] = (),
    ) -> None:
        self.outcome = outcome
        self.reasons = (reasons,) if isinstance(reasons, str) else tuple(reasons)
        self.state = state
        self.next_steps = tuple(next_steps)
        super().__init__("; ".join(self.reasons))


class InputError(EvidenceError):
    """The caller's input: an option, a folder, a report that cannot be used as given."""


class StateError(EvidenceError):
    """Our state: another run uses this machine, or the reference cannot be made."""


class BugError(EvidenceError):
    """A broken promise of this program itself."""

    def __init__(self, reasons: str | Iterable[str], *, state: str = NOTHING_WRITTEN) -> None:
        super().__init__(Outcome.BUG, reasons, state=state)


def usage(reason: str, *next_steps: str) -> InputError:
    """The caller's input cannot be understood."""
    return InputError(Outcome.USAGE, reason, next_steps=next_steps)
