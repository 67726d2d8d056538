"""`tools/port` as a maintainer types it, in a clone of this repository."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from command.errors import InputError, ToolError
from portfile.crates import crates_of
from portfile.evaluation import evaluate
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


def write_sdist(file: Path, metadata: bytes) -> None:
    """An archive as long as one that can be cut short, with that PKG-INFO."""
    with tarfile.open(file, "w:gz") as tar:
        for name, content in (("PKG-INFO", metadata), ("noise", os.urandom(50_000))):
            member = tarfile.TarInfo(f"{file.name.removesuffix('.tar.gz')}/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


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
        (("crates", "pyproject.toml"), "missing required field `package`", 2),
        (("crates", "packaging"), "Is a directory", 2),
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
    write_sdist(whole, b"Name: mlxcel\nVersion: 9.9.9\n")
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


def test_a_portfile_that_never_ends_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("portfile.evaluation.EVALUATION_S", 0.5)
    (tmp_path / "Portfile").write_text("while 1 {}\n")
    with pytest.raises(InputError, match=r"Portfile is still being evaluated after 0.5 s: does it end\?"):
        evaluate(tmp_path / "Portfile", subport="mlxcel")


@pytest.mark.parametrize(
    "lock",
    [
        "package = 5",
        "[[package]]\nname = 3\nversion = '1'",
        "[[package]]\nname = 'a'",
        "[[package]]\nname = 'a b'\nversion = '1'",
        "[[package]]\nname = 'a'\nversion = '1'\nchecksum = 'x'",
    ],
)
def test_a_lock_that_no_cargo_wrote_is_refused(lock: str) -> None:
    with pytest.raises(ToolError, match=r"no Cargo\.lock"):
        crates_of(lock)


SUMS = r"(?m)^checksums .*\n.*\n.*\n"


@pytest.mark.parametrize(
    ("change", "part", "code"),
    [
        (lambda text: b"\xff\n" + text, "Portfile cannot be read", 2),
        (lambda text: text.replace(b"\n", b"\r\n"), "carriage returns", 5),
        (lambda text: re.sub(SUMS.encode(), b"", text), "1 times 'checksums rmd160 ... sha256 ... size ...'", 5),
        (lambda text: text.replace(b"github.setup", b"github.setup OWNER mlxcel 1 v\ngithub.setup", 1), "3 times", 5),
    ],
)
def test_a_portfile_of_another_form_is_refused_in_words_and_stays_as_it_is(
    checkout: Path, change: Callable[[bytes], bytes], part: str, code: int
) -> None:
    portfile = checkout / "packaging" / "macports" / "llm" / "mlxcel" / "Portfile"
    changed = change(portfile.read_bytes())
    portfile.write_bytes(changed)
    distfile = checkout / "mlxcel-9.9.9.tar.gz"
    write_sdist(distfile, b"Version: 9.9.9\n")
    for command in (("check",), ("checksums", str(distfile))):
        done = port(checkout, *command)
        assert (done.returncode, part in done.stderr) == (code, True), done.stderr
    assert portfile.read_bytes() == changed


@pytest.mark.parametrize(
    ("text", "part"),
    [("[project", "pyproject.toml: "), ("project = 1", "$.project"), ("[project]\nversion = 1", "$.project.version")],
)
def test_a_pyproject_of_another_form_is_refused_by_its_key(checkout: Path, text: str, part: str) -> None:
    (checkout / "pyproject.toml").write_text(text)
    done = port(checkout, "version")
    assert (done.returncode, part in done.stderr) == (2, True), done.stderr
