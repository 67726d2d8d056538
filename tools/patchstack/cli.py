"""The commands of tools/recut and the process edge: arguments in, an exit code out.

Thin: each command turns its arguments into a wish, hands it on and shows the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import typer

from command.edge import Tool

from .desk import Desk
from .journal import Observer, ignore_entries
from .report import ERROR_SCHEMA

TOOL = Tool(
    name="tools/recut",
    error_schema=ERROR_SCHEMA,
    unchanged="Nothing has moved: no branch, no tag, no file of your checkout.",
    on_interrupt="If a run was in progress: tools/recut continue, or tools/recut abort",
    on_bug="Unknown: this is a bug. Nothing is lost: old tips are pinned before any branch moves.",
)


def build_app(args: Sequence[str]) -> typer.Typer:
    """The command line as far as `args` need it, without having run anything.

    A known command is set up alone, and help options only where help is asked for: building the rest, and
    typer's pydantic for a help flag that was not given, would take longer than most commands do.
    """
    wants_help = "--help" in args
    app = typer.Typer(
        name="recut",
        help="Move the fork's patch stack to a new upstream without losing a commit.",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        add_help_option=wants_help,
    )
    for register in _registers(args[0]):
        register(app)
    named = [command for command in app.registered_commands if command.name == args[0]]
    for command in named or app.registered_commands:
        command.add_help_option = wants_help
    app.registered_commands = named or app.registered_commands
    app.callback()(_recut)
    return app


def _registers(command: str) -> list[Callable[[typer.Typer], None]]:
    """What sets the commands up. Where one stands alone, nothing is imported for the others."""
    if command in ("status", "log"):
        from . import cli_status

        return [cli_status.register]
    from . import cli_checks, cli_pins, cli_runs, cli_settings, cli_status

    modules = (cli_settings, cli_status, cli_runs, cli_pins, cli_checks)
    return [module.register for module in modules]


def _recut() -> None:
    """Keeps one command a subcommand where it is set up alone."""


def run(args: Sequence[str], *, environ: Mapping[str, str], folder: Path, observer: Observer = ignore_entries) -> int:
    """Run one command; the exit code (errors.EXIT_CODES).

    observer: told of every journal entry, before and after it is on disk.
    """
    args = args or ["--help"]
    desk = Desk(environ=environ, folder=folder, observer=observer)

    def command() -> object:
        return build_app(args)(list(args), prog_name=TOOL.name, standalone_mode=False, obj=desk)

    return TOOL.run(command, as_json="--json" in args)
