"""The process edge of a tool: runs one command and turns whatever it ends with into words and an exit code.

The only place with a broad except, and the only one that turns an outcome into an exit code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from .errors import EXIT_CODES, BugError, InputError, Outcome, ToolError
from .paper import printable


class ErrorReport(msgspec.Struct, frozen=True, kw_only=True):
    """A command that stopped: why (`reasons`), what is unchanged (`state`), what to do (`next`)."""

    exit_code: int
    reasons: tuple[str, ...]
    state: str
    next: tuple[str, ...]


@dataclass(frozen=True)
class Tool:
    """A tool as its users know it, and what it says of the world where it stops."""

    name: str
    error_schema: str
    unchanged: str
    """What holds whenever an error says nothing else."""
    on_interrupt: str
    on_bug: str

    def run(self, command: Callable[[], object], *, as_json: bool) -> int:
        """Run a command, which answers an outcome, a code, or nothing; the exit code."""
        try:
            outcome = command()
        except ToolError as error:
            return self._stopped(error, as_json=as_json)
        except KeyboardInterrupt:
            sys.stderr.write(f"interrupted. {self.on_interrupt}\n")
            return 130
        except BrokenPipeError:
            return 141
        except Exception as error:  # noqa: BLE001 - the edge
            return self._stopped(self._unplanned(error), as_json=as_json)
        if isinstance(outcome, Outcome):
            return EXIT_CODES[outcome]
        return outcome if isinstance(outcome, int) else 0

    def _unplanned(self, error: Exception) -> ToolError:
        """The command line's own refusal, or a bug, whose trace is shown."""
        say = getattr(error, "format_message", None)
        if callable(say):
            context = getattr(error, "ctx", None)
            step = f"{context.command_path if context is not None else self.name} --help"
            return InputError(Outcome.USAGE, str(say()) or "a command is missing", next_steps=[step])
        import traceback

        traceback.print_exception(error)
        return BugError(f"{type(error).__name__}: {error}", state=self.on_bug)

    def _stopped(self, error: ToolError, *, as_json: bool) -> int:
        """What happened, what is unchanged, what to do next: on standard error, or as JSON on standard output."""
        code = EXIT_CODES[error.outcome]
        state = error.state or self.unchanged
        if as_json:
            report = ErrorReport(exit_code=code, reasons=error.reasons, state=state, next=error.next_steps)
            fields = msgspec.to_builtins(report)
            print_json({"schema": self.error_schema, "outcome": error.outcome.value, **fields})
            return code
        colour = sys.stderr.isatty() and "NO_COLOR" not in os.environ
        red, bold, plain = ("\033[31m", "\033[1m", "\033[0m") if colour else ("", "", "")
        lines = [f"{red}{error.outcome.value}{plain}: {error.reasons[0] if error.reasons else ''}"]
        lines += [f"  - {reason}" for reason in error.reasons[1:]]
        lines.append(state)
        if error.next_steps:
            lines += [f"{bold}Next:{plain}", *(f"  {step}" for step in error.next_steps)]
        sys.stderr.write(printable("\n".join(lines)) + "\n")
        return code


def print_json(fields: Mapping[str, object]) -> None:
    """An answer for scripts."""
    text = msgspec.json.format(msgspec.json.encode(fields), indent=2)
    sys.stdout.write(text.decode() + "\n")
