"""`mlxcel service` where there is no launchd: what it would do, and what it refuses."""

from __future__ import annotations

import plistlib
from pathlib import Path

from tests.packaging.conftest import Command


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
