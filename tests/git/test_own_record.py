"""This repository's own recut.toml and UPSTREAM.md: they read, they agree, and nothing is claimed twice."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from patchstack.pins import read_pins, unpinned_names
from patchstack.record import parse, render
from patchstack.settings import parse_settings
from tests.git.forge import Forge

TOP = Path(__file__).resolve().parents[2]
FILES = ("recut.toml", "UPSTREAM.md", "pyproject.toml")


def test_the_record_reads_and_pins_what_the_project_file_requires() -> None:
    settings = parse_settings((TOP / "recut.toml").read_text())
    page = (TOP / "UPSTREAM.md").read_text()
    record = parse(page)
    assert render(record, page) == page
    pins = read_pins((TOP / "pyproject.toml").read_text(), settings.pins)
    assert record.pins == pins
    assert unpinned_names(pins, settings.pins) == []
    assert settings.pins.names == ("mlx", "mlx-lm")
    upstream = settings.upstream
    assert (upstream.remote, upstream.branch, upstream.release_tags) == ("upstream", "main", "v[0-9]*")
    assert (record.topics, record.carried, record.recuts, record.drops) == ((), (), (), ())


def test_without_the_upstream_remote_status_says_so(bare_forge: Forge, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    clone.mkdir()
    for name in FILES:
        shutil.copy(TOP / name, clone / name)
    for args in (("init", "-q"), ("add", "."), ("commit", "-qm", "All of it")):
        subprocess.run(["git", *args], cwd=clone, env=bare_forge.work.environ, check=True, timeout=60)
    run = bare_forge.recut("status", at=clone, expect=5)
    assert "there is no remote 'upstream'" in run.err
    assert "git remote add upstream URL" in run.err
    assert {path.name for path in clone.iterdir()} == {*FILES, ".git"}
