"""`mlxcel bench`: run the load client and show its report."""

from __future__ import annotations

import sys

import msgspec
from rich.console import Console

from mlxcel.cli.exits import leave
from mlxcel.load import LoadSettings, run_load
from mlxcel.load.table import render


def run(settings: LoadSettings, *, as_json: bool) -> None:
    """Exit code 1 when any request failed."""
    report = run_load(settings)
    if as_json:
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    else:
        Console().print(render(report))
    leave(1 if report.n_failed else 0)
