from __future__ import annotations

from pathlib import Path

import pytest

from mlxcel.doctor.finding import State
from mlxcel.doctor.job import look_at_jobs
from mlxcel.service.layout import Layout, daemon_layout


@pytest.fixture()
def layout(tmp_path: Path) -> Layout:
    return daemon_layout(tmp_path / "opt")


def install(layout: Layout) -> None:
    layout.plist.parent.mkdir(parents=True)
    layout.plist.write_text("")


def launchctl(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a launchctl that answers every question alike before all others."""
    folder.mkdir()
    program = folder / "launchctl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


@pytest.mark.parametrize(
    ("said", "state", "part"),
    [
        ("state = running\n\tpid = 42", State.OK, "runs as process 42"),
        ("state = not running\n\tlast exit code = (never exited)", State.OK, "has not run yet"),
        ("state = not running\n\tlast exit code = 0", State.OK, "0 (stopped on purpose)"),
        ("state = spawn scheduled\n\tlast exit code = 78: EX_CONFIG", State.PROBLEM, "78 (a setting or model"),
        ("state = not running\n\tlast exit code = 9", State.PROBLEM, "ended with 9"),
    ],
)
def test_an_installed_job_is_as_launchd_tells(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, state: State, part: str
) -> None:
    install(layout)
    launchctl(tmp_path / "bin", monkeypatch, f"printf '{layout.target} = {{\n\t{said}\n}}\n'")
    (found,) = look_at_jobs((layout,))
    assert (found.about, found.state) == ("daemon", state) and part in found.told
    assert ("service logs --system" in found.next_step) is (state is State.PROBLEM)


def test_a_job_that_launchd_does_not_know_is_installed_or_not(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launchctl(tmp_path / "bin", monkeypatch, "exit 113")
    assert look_at_jobs((layout,))[0].told == "not installed"
    install(layout)
    (found,) = look_at_jobs((layout,))
    assert found.state is State.OK and "installed and not started" in found.told


def test_a_job_without_its_plist_is_told_of(layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launchctl(tmp_path / "bin", monkeypatch, "echo 'pid = 42'")
    (found,) = look_at_jobs((layout,))
    assert found.state is State.WARNING and str(layout.plist) in found.told


def test_a_launchctl_that_cannot_be_started_is_a_warning(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launchctl(tmp_path / "bin", monkeypatch, "")
    (tmp_path / "bin" / "launchctl").write_bytes(b"\x7fELF")
    (found,) = look_at_jobs((layout,))
    assert found.state is State.WARNING and layout.target in found.told


def test_words_that_are_no_text_are_read_all_the_same(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(layout)
    launchctl(tmp_path / "bin", monkeypatch, "printf '\\tpid = 7\\n\\377\\376'")
    assert "process 7" in look_at_jobs((layout,))[0].told
