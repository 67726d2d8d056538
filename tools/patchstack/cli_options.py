"""Options that many commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Answer as JSON, for scripts (docs/recut-json.md).")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")]
