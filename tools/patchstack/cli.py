"""The commands of tools/recut and the process edge: arguments in, an exit code out.

Thin: each command turns its arguments into a wish, hands it on and shows the answer. The only place with a
broad except, and the only one that turns an outcome into an exit code.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from . import cli_checks, cli_runs, cli_settings
from .desk import Desk, print_error
from .errors import EXIT_CODES, BugError, InputError, Outcome, RecutError
from .journal import Observer, ignore_entries


def build_app() -> typer.Typer:
    """The command line, without having run anything."""
    app = typer.Typer(
        name="recut",
        help="Move the fork's patch stack to a new upstream without losing a commit.",
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    cli_settings.register(app)
    cli_runs.register(app)
    cli_checks.register(app)
    return app


def run(
    args: Sequence[str], *, environ: Mapping[str, str], folder: Path, observer: Observer = ignore_entries
) -> int:
    """Run one command; the exit code (errors.EXIT_CODES).

    observer: told of every journal entry, before and after it is on disk.
    """
    as_json = "--json" in args
    desk = Desk(environ=environ, folder=folder, observer=observer)
    try:
        outcome = build_app()(list(args), prog_name="tools/recut", standalone_mode=False, obj=desk)
    except RecutError as error:
        print_error(error, as_json=as_json)
        return EXIT_CODES[error.outcome]
    except KeyboardInterrupt:
        sys.stderr.write(
            "interrupted; if a run was in progress: tools/recut continue, or tools/recut abort\n"
        )
        return 130
    except BrokenPipeError:
        return 141
    except Exception as error:  # noqa: BLE001 - the edge
        return _edge(error, as_json=as_json)
    if isinstance(outcome, Outcome):
        return EXIT_CODES[outcome]
    return outcome if isinstance(outcome, int) else 0


def _edge(error: Exception, *, as_json: bool) -> int:
    say = getattr(error, "format_message", None)
    if callable(say):
        context = getattr(error, "ctx", None)
        steps = [f"{context.command_path} --help" if context is not None else "tools/recut --help"]
        message = str(say()) or "a command is missing"
        print_error(InputError(Outcome.USAGE, message, next_steps=steps), as_json=as_json)
        return EXIT_CODES[Outcome.USAGE]
    traceback.print_exception(error)
    state = "Unknown: this is a bug. Nothing is lost: old tips are pinned before any branch moves."
    print_error(BugError(f"{type(error).__name__}: {error}", state=state), as_json=as_json)
    return EXIT_CODES[Outcome.BUG]
