"""`mlxcel import`: a GGUF file becomes an MLX folder, with a progress bar."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from mlxcel.gguf.conversion import import_gguf


def run(source: Path, target: Path, *, dequantize: bool, float16_norms: bool, as_json: bool) -> None:
    """Import and report. Errors: those of `import_gguf`."""
    columns = (TextColumn("importing"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("import", total=None)
        report = import_gguf(
            source,
            target,
            dequantize=dequantize,
            float16_norms=float16_norms,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if as_json:
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    else:
        sys.stdout.write(f"{report}\n")
