"""What the tests of the port and the service share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
Row = Callable[[str, str, float], None]
Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def row(record_property: Callable[[str, object], None]) -> Row:
    """Put a scenario, its outcome and its seconds into the table at the end of the run."""

    def put(scenario: str, outcome: str, seconds: float) -> None:
        record_property("scenario", (scenario, outcome, seconds))

    return put


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    told = [pair for report in terminalreporter.getreports("passed") for pair in report.user_properties]
    rows = [value for name, value in told if name == "scenario"]
    if rows:
        terminalreporter.section("launchd scenarios")
    for scenario, outcome, seconds in rows:
        terminalreporter.line(f"{scenario:<28}{seconds:>8.1f} s   {outcome}")
    if terminalreporter.verbosity > 0:
        for name in ("tree", "transcript"):
            for lines in (value for kind, value in told if kind == name):
                terminalreporter.section(name)
                for line in lines:
                    terminalreporter.line(line)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A person's home, with a space in it."""
    folder = tmp_path / "a home"
    folder.mkdir()
    return folder


@pytest.fixture
def mlxcel(home: Path) -> Command:
    """Run the `mlxcel` command as that person."""

    def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "mlxcel", *arguments],
            capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "HOME": str(home), **environ},
        )  # fmt: skip

    return run


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, made as the port makes it: by the build backend that is here, without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    (wheel,) = folder.glob("*.whl")
    return wheel
