"""What a look at one thing found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class State(str, Enum):
    """A warning will not keep a server from starting; a problem will, or will soon."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """`told` says what is so and what that means, `next_step` what to do about it, where there is something to do."""

    about: str
    state: State
    told: str
    next_step: str = ""


def ok(about: str, told: str) -> Finding:
    return Finding(about, State.OK, told)


def warning(about: str, told: str, next_step: str) -> Finding:
    return Finding(about, State.WARNING, told, next_step)


def problem(about: str, told: str, next_step: str) -> Finding:
    return Finding(about, State.PROBLEM, told, next_step)
