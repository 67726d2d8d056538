"""A report as the three files that a pull request and a CI job read. It knows nothing of how the report was made."""

from __future__ import annotations

from pathlib import Path

from .junit import render_junit
from .markdown import render_markdown
from .report import Report, render


def write_report(report: Report, folder: Path) -> tuple[Path, ...]:
    """Write evidence.json, evidence.md and junit.xml into `folder`, which is made where it is missing."""
    texts = {"evidence.json": render(report), "evidence.md": render_markdown(report), "junit.xml": render_junit(report)}
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return tuple(folder / name for name in texts)
