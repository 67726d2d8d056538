"""`tools/port` as a maintainer types it, in a clone of this repository."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.packaging.conftest import ROOT


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", folder, "-c", "user.name=Dev", "-c", "user.email=dev@example.org", *arguments],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip


def port(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = "import sys; sys.path.insert(0, sys.argv.pop(1)); from portfile.__main__ import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, str(ROOT / "tools"), *arguments],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """This checkout's files, as a repository of one commit."""
    folder = tmp_path / "checkout"
    files = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True, capture_output=True, text=True,
    ).stdout.split("\0")  # fmt: skip
    for name in filter(None, files):
        if not (ROOT / name).is_file() or name.startswith("tests/"):
            continue
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((ROOT / name).read_bytes())
    git(tmp_path, "init", "-q", "-b", "main", str(folder))
    git(folder, "add", "--all")
    git(folder, "commit", "-qm", "All")
    return folder


def test_the_sdist_has_the_same_bytes_twice_and_a_commit_to_packaging_leaves_them_alone(checkout: Path) -> None:
    first = json.loads(port(checkout, "sdist", "--json").stdout)
    file = Path(first["file"])
    written = port(checkout, "checksums", str(file))
    assert written.returncode == 0, written.stderr
    assert git(checkout, "diff", "--name-only").split() == ["packaging/macports/llm/mlxcel/Portfile"]
    git(checkout, "commit", "-qam", "Port it")
    again = port(checkout, "sdist", "HEAD", "-o", "again", "--json")
    second = json.loads(again.stdout)
    assert second["commit"] != first["commit"]
    assert {key: first[key] for key in ("rmd160", "sha256", "size")} == {
        key: second[key] for key in ("rmd160", "sha256", "size")
    }
    assert file.read_bytes() == Path(second["file"]).read_bytes()
    with tarfile.open(file) as tar:
        names = tar.getnames()
    assert not [name for name in names if "/packaging" in name or "/.ci" in name]
    assert [name for name in names if name.endswith("launchd/mlxcel.plist.in")]
    check = port(checkout, "check", "--distfile", str(file))
    assert check.returncode == 0, check.stdout
    refused = port(checkout, "check", "--release", "--tag", "v9.9.9")
    assert refused.returncode == 1
    assert "project.urls still say OWNER" in refused.stdout
    assert "the tag is v9.9.9" in refused.stdout


def test_a_command_that_cannot_be_done_says_so_and_writes_nothing(checkout: Path, tmp_path: Path) -> None:
    for arguments, words, code in (
        (("sdist", "nothing"), "nothing", 6),
        (("checksums", "nothing.tar.gz"), "tools/port sdist", 2),
        (("version", "0.7.0-rc1"), "is no version of this port", 2),
        (("nonsense",), "nonsense", 2),
    ):
        done = port(checkout, *arguments)
        assert done.returncode == code, done.stderr
        assert words in done.stderr
        assert "Nothing was written." in done.stderr
    outside = port(tmp_path, "render")
    assert (outside.returncode, "lies in no checkout" in outside.stderr) == (2, True)
    assert git(checkout, "status", "--porcelain") == ""
