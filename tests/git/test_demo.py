"""The demo walks from the plan to the undo by itself, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[2] / "tools" / "demo-recut"


@pytest.mark.long
def test_the_demo_runs_to_its_end_in_a_folder_of_its_own(tmp_path: Path) -> None:
    scratch, home = tmp_path / "scratch", tmp_path / "home"
    scratch.mkdir()
    home.mkdir()
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(scratch)}
    done = subprocess.run([str(DEMO)], env=environ, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    story = [
        "conflict: topic/zero-size",
        "Re-cut published",
        "No check failed.",
        "proved: the test fails without the fix and passes with it.",
        "no fix: nothing but test files changes",
        "empty-mean has landed",
        "Released v0.7.0-local01",
        "local (empty-mean)",
        "release  ",
        "taken back",
        "archive/topic-zero-size-undo-",
    ]
    at = 0
    for scene in story:
        at = done.stdout.find(scene, at)
        assert at >= 0, f"{scene!r} is missing, or too early\n{done.stdout}"
    assert list(scratch.iterdir()) == []
    assert list(home.iterdir()) == []
