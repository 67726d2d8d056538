"""A launchctl that answers every question alike, for what a real one answers on odd days."""

from __future__ import annotations

import os
from pathlib import Path


def path_with_launchctl(folder: Path, script: str) -> str:
    """A PATH on which a launchctl made of that shell script comes first."""
    folder.mkdir(exist_ok=True)
    program = folder / "launchctl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"
