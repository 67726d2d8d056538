"""The stand-in keeps launchd's promises, shown with programs of a line or two."""

from __future__ import annotations

import itertools
import os
import plistlib
import threading
from pathlib import Path
from typing import Any

from tests.support.launchd import Launchd

BARE = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "XPC_SERVICE_NAME": "test.job"}


def job(folder: Path, script: str, **keys: Any) -> Path:
    """A property list whose program is a shell script that writes to `folder`/out."""
    plist = folder / "test.job.plist"
    told = {"Label": "test.job", "ProgramArguments": ["/bin/sh", "-c", script], "RunAtLoad": True}
    out = str(folder / "out")
    plist.write_bytes(plistlib.dumps({**told, "StandardOutPath": out, "StandardErrorPath": out, **keys}))
    return plist


def test_a_job_has_a_bare_environment_256_files_and_its_own_folder_and_umask(tmp_path: Path) -> None:
    plist = job(tmp_path, "env; ulimit -n; pwd; umask", WorkingDirectory=str(tmp_path), Umask=63)
    with Launchd(tmp_path) as launchd:
        assert launchd.launchctl("load", "-w", plist).returncode == 0
        launchd.wait_for("exit")
    lines = (tmp_path / "out").read_text().splitlines()
    assert {f"{key}={value}" for key, value in BARE.items()} <= set(lines)
    assert not [line for line in lines if line.startswith(("HOME=", "USER=", "PYTHON"))]
    assert lines[-3:] == ["256", str(tmp_path), "0077"]


def test_keep_alive_restarts_after_a_failure_or_a_signal_no_sooner_than_the_throttle_and_not_after_0(
    tmp_path: Path,
) -> None:
    script = f"n=$(cat '{tmp_path}/n'); echo $((n + 1)) > '{tmp_path}/n'; case $n in 0) exit 7;; 1) kill -9 $$;; esac"
    (tmp_path / "n").write_text("0")
    with Launchd(tmp_path, scale=100) as launchd:
        plist = job(tmp_path, script, KeepAlive={"SuccessfulExit": False}, ThrottleInterval=30)
        launchd.launchctl("bootstrap", "system", plist)
        exits = launchd.wait_for("exit", 3)
        starts = launchd.wait_for("start", 3)
        assert [event.detail for event in exits] == [7, -9, 0]
        assert all(later.at_s - sooner.at_s >= 30 for sooner, later in itertools.pairwise(starts))
        state = launchd.launchctl("print", "system/test.job").stdout
        assert "state = not running" in state
        assert launchd.launchctl("kickstart", "system/test.job").returncode == 0
        launchd.wait_for("exit", 4)


def test_a_job_that_ignores_sigterm_is_killed_with_its_group_after_exit_time_out(tmp_path: Path) -> None:
    script = "trap '' TERM; sleep 600 & echo $! ; while :; do sleep 1; done"
    with Launchd(tmp_path, scale=5) as launchd:
        launchd.launchctl("bootstrap", "system", job(tmp_path, script, ExitTimeOut=20))
        (start,) = launchd.wait_for("start")
        for _ in range(1000):
            if child := (tmp_path / "out").read_text().strip():
                break
            threading.Event().wait(0.01)
        assert launchd.launchctl("bootout", "system/test.job").returncode == 0
        assert launchd.launchctl("bootstrap", "system", tmp_path / "test.job.plist").returncode == 5
        assert launchd.launchctl("print", "system/test.job").returncode == 0
        (term, kill) = [*launchd.wait_for("SIGTERM"), *launchd.wait_for("SIGKILL")]
        assert kill.at_s - term.at_s >= 20
        launchd.wait_until_gone()
        assert launchd.launchctl("print", "system/test.job").returncode == 113
        assert start.detail > 0
    state = Path(f"/proc/{child}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


def test_only_an_enabled_job_is_loaded_at_boot_and_unload_w_disables(tmp_path: Path) -> None:
    with Launchd(tmp_path) as launchd:
        link = launchd.daemons / "test.job.plist"
        plist = job(tmp_path, "exec sleep 600", Disabled=True)
        link.symlink_to(plist)
        launchd.boot()
        assert launchd.launchctl("list", "test.job").returncode == 113
        assert launchd.launchctl("bootstrap", "system", plist).returncode == 119
        assert launchd.launchctl("load", "-w", plist).returncode == 0
        launchd.wait_for("start")
        launchd.boot()
        launchd.wait_for("start", 2)
        assert launchd.launchctl("list", "test.job").returncode == 0
        assert launchd.launchctl("unload", "-w", plist).returncode == 0
        launchd.wait_until_gone()
        launchd.boot()
        assert launchd.launchctl("print", "system/test.job").returncode == 113


def test_a_renamed_log_is_written_on_to(tmp_path: Path) -> None:
    with Launchd(tmp_path) as launchd:
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        launchd.launchctl("bootstrap", "system", job(tmp_path, f"echo one; read go < '{fifo}'; echo two"))
        launchd.wait_for("start")
        with fifo.open("w") as go:
            (tmp_path / "out").rename(tmp_path / "old")
            go.write("\n")
        launchd.wait_for("exit")
    assert (tmp_path / "old").read_text().split() == ["one", "two"]
    assert not (tmp_path / "out").exists()
