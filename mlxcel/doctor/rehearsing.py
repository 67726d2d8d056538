"""A rehearsal of a model's load, asked in a child; this process imports neither mlx nor transformers."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from mlxcel.child import NoAnswer, ask_child
from mlxcel.errors import StateError

REHEARSAL_S = 120.0
# Python puts the folder that it is started in before its own: no file of that folder's is to be imported.
_PROGRAM = "import sys; sys.path[:] = filter(None, sys.path); from mlxcel.model.rehearsal import main; main()"


@dataclass(frozen=True)
class Rehearsed:
    """`faults` keep a server from starting; with `warnings` it serves, but not everything."""

    faults: tuple[str, ...]
    warnings: tuple[str, ...]


def rehearse_in_child(folder: Path) -> Rehearsed:
    """Load everything of a model but its weights. Errors: StateError when the child dies or hangs."""
    try:
        told = ask_child([sys.executable, "-c", _PROGRAM, str(folder.absolute())], timeout_s=REHEARSAL_S)
        return Rehearsed(tuple(told["faults"]), tuple(told["warnings"]))
    except (NoAnswer, LookupError, TypeError) as error:
        raise StateError(
            f"whether {folder} can be loaded cannot be told: the child that tried it without weights {error}; nothing "
            "was started. 'mlxcel doctor' says what this machine lacks",
            code="not_rehearsed",
        ) from error
