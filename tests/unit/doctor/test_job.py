from __future__ import annotations

from pathlib import Path

import pytest

from mlxcel.doctor.finding import State
from mlxcel.doctor.job import look_at_jobs
from mlxcel.service.layout import Layout, daemon_layout
from tests.support.one_answer_launchctl import path_with_launchctl


@pytest.fixture()
def layout(tmp_path: Path) -> Layout:
    return daemon_layout(tmp_path / "opt")


def install(layout: Layout) -> None:
    layout.plist.parent.mkdir(parents=True)
    layout.plist.write_text("")


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
    monkeypatch.setenv("PATH", path_with_launchctl(tmp_path / "bin", f"printf '{layout.target} = {{\n\t{said}\n}}\n'"))
    (found,) = look_at_jobs((layout,))
    assert (found.about, found.state) == ("daemon", state) and part in found.told
    assert ("service logs --system" in found.next_step) is (state is State.PROBLEM)


def test_a_job_that_launchd_does_not_know_is_installed_or_not(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", path_with_launchctl(tmp_path / "bin", "exit 113"))
    assert look_at_jobs((layout,))[0].told == "not installed"
    install(layout)
    (found,) = look_at_jobs((layout,))
    assert found.state is State.OK and "installed and not started" in found.told


def test_a_job_without_its_plist_is_told_of(layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", path_with_launchctl(tmp_path / "bin", "echo 'pid = 42'"))
    (found,) = look_at_jobs((layout,))
    assert found.state is State.WARNING and str(layout.plist) in found.told


@pytest.mark.parametrize("script", ["exit 5", "exit 37", "exit 125", "kill -9 $$", None])
def test_a_launchctl_that_does_not_tell_is_a_warning(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None
) -> None:
    monkeypatch.setenv("PATH", path_with_launchctl(tmp_path / "bin", script or ""))
    if script is None:
        (tmp_path / "bin" / "launchctl").write_bytes(b"\x7fELF")
    (found,) = look_at_jobs((layout,))
    assert (found.state, found.next_step) == (State.WARNING, f"launchctl print {layout.target}")


def test_words_that_are_no_text_are_read_all_the_same(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(layout)
    monkeypatch.setenv("PATH", path_with_launchctl(tmp_path / "bin", "printf '\\tpid = 7\\n\\377\\376'"))
    assert "process 7" in look_at_jobs((layout,))[0].told
