"""A MacPorts prefix in a folder, laid out as the port leaves it, whose program is this checkout's."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from mlxcel.service import templates
from mlxcel.service.layout import Layout, daemon_layout

ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def set_program(layout: Layout, *flags: str) -> None:
    """Put `bin/mlxcel` there; what an upgrade swaps."""
    program = Path(layout.command[0])
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mlxcel "$@" {" ".join(flags)}\n')
    program.chmod(0o755)


def lay_out(prefix: Path, config: str) -> Layout:
    """Every file of the daemon, with `config` as what its owner wrote."""
    layout = daemon_layout(prefix)
    for folder in (layout.home, layout.logs, layout.models, layout.config.parent):
        folder.mkdir(parents=True)
    for path, text, mode in (
        (layout.plist, templates.plist(layout), 0o644),
        (layout.wrapper, templates.wrapper(layout), 0o755),
        (layout.config, config, 0o640),
        (layout.variables, f"PYTHONPATH={ROOT}\nHF_HUB_OFFLINE=1\n", 0o600),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
    set_program(layout)
    return layout
