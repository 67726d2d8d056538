"""The commands that only look, at once: status and log."""

from __future__ import annotations

import typer

from command.errors import Outcome

from . import show
from .cli_options import Json
from .desk import Desk
from .report import LOG_SCHEMA, Log, report_run
from .status import SCHEMA as STATUS_SCHEMA
from .status import read_status


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.command("status")(_status)
    app.command("log")(_log)


def _status(context: typer.Context, as_json: Json = False) -> Outcome:
    """Where the stack stands, as this clone knows it."""
    desk: Desk = context.obj
    status = read_status(desk.git, desk.settings, desk.runs)
    return desk.answer(
        status, schema=STATUS_SCHEMA, as_json=as_json, show=lambda paper: show.show_status(paper, status)
    )


def _log(context: typer.Context, as_json: Json = False) -> Outcome:
    """Every run, tag and move of this clone, from the journals."""
    desk: Desk = context.obj
    runs = desk.runs.all()
    return desk.answer(
        Log(runs=tuple(map(report_run, runs))),
        schema=LOG_SCHEMA,
        as_json=as_json,
        show=lambda paper: show.show_log(paper, runs),
    )
