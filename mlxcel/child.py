"""A question that is asked in a child process, for what answers it may die, hang or change the process it runs in."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any

from mlxcel.errors import reason_of


class NoAnswer(Exception):
    """The child did not answer; the words say how it ended, to go on after its name."""


def ask_child(command: Sequence[str], *, timeout_s: float) -> Any:
    """The JSON that the command writes to stdout. Errors: NoAnswer when it dies, hangs or says nothing."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
        if done.returncode == 0:
            return json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise NoAnswer(f"did not answer within {timeout_s:g} s") from None
    except (OSError, ValueError) as error:
        raise NoAnswer(f"failed: {reason_of(error)}") from error
    raise NoAnswer(_end_of(done))


def _end_of(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode < 0:
        return f"was ended by signal {-done.returncode}"
    last_words = reason_of((done.stderr.strip().splitlines() or ["it said nothing"])[-1])
    return f"ended with {done.returncode}: {last_words}"
