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
        (("crates", "nowhere.lock"), "nowhere.lock cannot be read", 2),
        (("crates", "README.md"), "that is no Cargo.lock", 2),
        (("crates", "pyproject.toml"), "it lists no package", 2),
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


def test_a_distfile_that_is_cut_short_or_of_another_version_is_not_written_into_the_portfile(checkout: Path) -> None:
    (checkout / "dist").mkdir()
    whole = checkout / "dist" / "mlxcel-9.9.9.tar.gz"
    (checkout / "PKG-INFO").write_text("Name: mlxcel\nVersion: 9.9.9\n")
    (checkout / "noise").write_bytes(os.urandom(50_000))
    with tarfile.open(whole, "w:gz") as tar:
        tar.add(checkout / "PKG-INFO", "mlxcel-9.9.9/PKG-INFO")
        tar.add(checkout / "noise", "mlxcel-9.9.9/noise")
    content = whole.read_bytes()
    portfile = checkout / "packaging" / "macports" / "llm" / "mlxcel" / "Portfile"
    before = portfile.read_bytes()
    for name, bad in {
        "mlxcel-9.9.9.tar.gz": content[:-30_000],
        "mlxcel-9.9.8.tar.gz": content,
        "mlxcel-9.9.7.tar.gz": b"",
        "mlxcel-9.9.6.tar.gz": b"no archive",
    }.items():
        file = checkout / "dist" / name
        file.write_bytes(bad)
        done = port(checkout, "checksums", str(file))
        assert done.returncode != 0 and "nothing was written" in done.stderr + done.stdout, name
        assert "Traceback" not in done.stderr
        assert portfile.read_bytes() == before
    whole.write_bytes(content)
    assert port(checkout, "checksums", str(whole)).returncode == 0
    assert b"9.9.9" in portfile.read_bytes()


def test_a_portfile_that_never_ends_is_refused(checkout: Path) -> None:
    portfile = checkout / "packaging" / "macports" / "llm" / "mlxcel" / "Portfile"
    portfile.write_text(portfile.read_text() + "while 1 {}\n")
    done = port(checkout, "render")
    assert (done.returncode, "does it end?" in done.stderr) == (2, True), done.stderr
