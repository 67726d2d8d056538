"""`mlxcel service` where there is no launchd: what it would do, and what it refuses."""

from __future__ import annotations

import plistlib
from pathlib import Path

import pytest

from tests.packaging.conftest import Command
from tests.support.one_answer_launchctl import path_with_launchctl


def configure(home: Path, text: str) -> Path:
    config = home / ".config" / "mlxcel" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(text)
    return config


def test_install_dry_run_prints_every_step_and_takes_none(mlxcel: Command, home: Path, tiny_model: Path) -> None:
    configure(home, f'model = "{tiny_model}"\n')
    before = sorted(home.rglob("*"))
    done = mlxcel("service", "install", "--dry-run")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"mkdir -p '{home}/Library/Logs/mlxcel'"
    assert lines[1] == f"write '{home}/Library/Application Support/mlxcel/mlxcel-service' (mode 755)"
    assert lines[2] == f"write '{home}/Library/LaunchAgents/io.mlxcel.agent.plist' (mode 644)"
    assert [line.split("/")[0] for line in lines[3:]] == ["launchctl enable gui", "launchctl bootstrap gui"]
    assert sorted(home.rglob("*")) == before


def test_render_prints_the_agents_files(mlxcel: Command, home: Path) -> None:
    job = plistlib.loads(mlxcel("service", "render").stdout.encode())
    assert job["Label"] == "io.mlxcel.agent"
    assert job["EnvironmentVariables"]["HOME"] == str(home)
    assert "UserName" not in job
    assert mlxcel("service", "render", "wrapper").stdout.startswith("#!/bin/sh\n")
    assert "models_dir" in mlxcel("service", "render", "config").stdout
    daemon = plistlib.loads(mlxcel("service", "render", "--system", "--prefix", "/opt/other").stdout.encode())
    assert daemon["ProgramArguments"] == ["/opt/other/libexec/mlxcel/mlxcel-service"]
    assert mlxcel("service", "render", "newsyslog").returncode == 64


def test_a_job_that_could_not_start_is_not_installed(mlxcel: Command, home: Path, tiny_model: Path) -> None:
    missing = mlxcel("service", "install")
    assert missing.returncode == 78
    assert "mlxcel service render config" in missing.stderr
    config = configure(home, "")
    assert "names no model" in mlxcel("service", "install").stderr
    config.write_text('model = "nothing"\n')
    assert mlxcel("service", "install").returncode == 78
    config.write_text(f'model = "{tiny_model}"\nport = 99999\n')
    bad = mlxcel("service", "install")
    assert (bad.returncode, bad.stderr.count("\n")) == (78, 1)
    assert not (home / "Library").exists()


def test_without_launchd_and_without_a_plist_each_command_says_so(
    mlxcel: Command, home: Path, tiny_model: Path
) -> None:
    assert "'mlxcel service install' makes it" in mlxcel("service", "stop").stderr
    assert "'sudo port install mlxcel' makes it" in mlxcel("service", "start", "--system", "--prefix", "/none").stderr
    assert mlxcel("service", "logs").returncode == 64
    configure(home, f'model = "{tiny_model}"\n')
    for command in (("service", "install"), ("service", "status")):
        done = mlxcel(*command, PATH="/nowhere")
        assert done.returncode == 75
        assert "there is no launchctl here" in done.stderr
    assert not (home / "Library").exists()


def test_an_uninstall_where_nothing_is_says_so(mlxcel: Command, home: Path, tmp_path: Path) -> None:
    path = path_with_launchctl(tmp_path / "bin", "exit 113")
    assert mlxcel("service", "uninstall", PATH=path).stdout.startswith("nothing to do for gui/")
    (home / "Library" / "Logs" / "mlxcel").mkdir(parents=True)  # an install that was cut short
    assert mlxcel("service", "uninstall", PATH=path).stdout.startswith("removed gui/")
    assert not (home / "Library" / "Logs" / "mlxcel").exists()


@pytest.mark.parametrize("code", [1, 5, 37, 125])
def test_a_launchd_that_does_not_tell_of_the_job_stops_every_command_and_no_file_goes(
    mlxcel: Command, home: Path, tmp_path: Path, code: int
) -> None:
    agents = home / "Library" / "LaunchAgents"
    agents.mkdir(parents=True)
    (agents / "io.mlxcel.agent.plist").write_text("mine")
    path = path_with_launchctl(tmp_path / "bin", f"echo odd >&2; exit {code}")
    for command in ("start", "stop", "restart", "status", "uninstall"):
        done = mlxcel("service", command, PATH=path)
        assert (done.returncode, done.stdout) == (75, ""), command
        assert f"failed ({code}: odd)" in done.stderr and "run the same command again" in done.stderr
    assert (agents / "io.mlxcel.agent.plist").read_text() == "mine"


def test_a_path_that_would_mean_the_folder_one_is_in_is_refused(mlxcel: Command, home: Path) -> None:
    for prefix in ("", ".", "opt/local"):
        done = mlxcel("service", "render", "--system", "--prefix", prefix)
        assert (done.returncode, done.stdout) == (64, "") and "is no absolute path" in done.stderr
    for config in ("", ".", str(home)):
        done = mlxcel("service", "render", "--config", config)
        assert (done.returncode, done.stdout) == (64, "") and "is a folder" in done.stderr
