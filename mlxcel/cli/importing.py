"""`mlxcel import`: a GGUF file becomes an MLX folder, with a progress bar."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from mlxcel.cli.progress import byte_progress
from mlxcel.gguf.conversion import import_gguf


def run(source: Path, target: Path, *, dequantize: bool, float16_norms: bool, as_json: bool) -> None:
    """Import and report. Errors: those of `import_gguf`."""
    with byte_progress("importing") as progress:
        report = import_gguf(
            source,
            target,
            dequantize=dequantize,
            float16_norms=float16_norms,
            progress=progress,
        )
    if as_json:
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    else:
        sys.stdout.write(f"{report}\n")
