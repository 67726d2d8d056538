"""What the README says of the service is where the service is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mlxcel.service.layout import Layout, agent_layout, daemon_layout
from tests.packaging.conftest import ROOT

HOME = Path("/Users/jane")
DAEMON = daemon_layout(Path("/opt/local"))
AGENT = agent_layout(
    home=HOME, uid=501, user="jane", group="staff", config=HOME / ".config/mlxcel/config.toml",
    models=HOME / ".local/share/mlxcel/models", command=("/usr/bin/python3",),
)  # fmt: skip


@pytest.mark.parametrize(("layout", "column", "top"), [(DAEMON, 1, "/opt/local/"), (AGENT, 2, "/Users/jane/")])
def test_where_things_are(layout: Layout, column: int, top: str) -> None:
    section = (ROOT / "README.md").read_text().partition("## Where things are\n")[2].partition("\n## ")[0]
    rows = [row.strip("| ").split(" | ") for row in re.findall(r"(?m)^\|.*\|$", section)[2:]]
    told = [row[column].strip().removeprefix("~/") for row in rows if len(row) > column]
    plist = layout.plist.parent if layout.is_daemon else layout.plist
    paths = (
        layout.config, layout.variables, layout.models, layout.log_file, layout.start_log, plist, layout.wrapper,
    )  # fmt: skip
    assert [path.rstrip("/") for path in told[: len(paths)]] == [str(path).removeprefix(top) for path in paths]
