"""The distfile: an sdist of one commit, built twice from two clones and compared byte for byte.

It leaves packaging/ out, so that the Portfile of the same commit can hold its checksums.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from command.errors import Outcome, StateError, refused
from patchstack.journal import write_file

from .checksums import Checksums, checksums_of
from .repository import git
from .versions import Version


@dataclass(frozen=True)
class Distfile:
    file: Path
    commit: str
    checksums: Checksums
    metadata_version: str
    """What `mlxcel version` will say of itself."""


def build_distfile(root: Path, revision: str, version: Version, out: Path, *, built_as: Version) -> Distfile:
    """Write `out`/mlxcel-VERSION.tar.gz from that commit, whose own version is `built_as`.

    The two differ for upstream at a date, whose commit has no version of its own.
    Errors: refused where two builds differ or the commit is of another version; StateError where git or the build
    fails.
    """
    commit = git(root, "rev-parse", "--verify", f"{revision}^{{commit}}").strip()
    if version != built_as and not (version.is_devel and version.port.startswith(f"{built_as.port}.")):
        raise refused(f"{commit[:12]} is {built_as.port}, not {version.port}: set the version first")
    with tempfile.TemporaryDirectory(prefix="mlxcel-sdist-") as scratch:
        builds = [_build(root, commit, Path(scratch) / name) for name in ("one", "two")]
        first, second = (build.read_bytes() for build in builds)
        if first != second:
            raise refused(f"two sdists of {commit[:12]} differ, so nobody could check one; nothing was written")
        metadata = _metadata_version(builds[0])
        if metadata != built_as.wheel:
            raise refused(f"the sdist of {commit[:12]} calls itself {metadata}, not {built_as.wheel}")
        file = out / version.sdist
        write_file(file, first)
    return Distfile(file, commit, checksums_of(file), metadata)


def check_distfile(file: Path, version: Version) -> None:
    """Errors: refused for a file that is cut short, or whose own version is another."""
    try:
        metadata = _metadata_version(file)
    except (OSError, EOFError, tarfile.TarError, zlib.error, StopIteration) as error:
        raise refused(
            f"{file} is not a whole sdist ({str(error) or 'no PKG-INFO in it'}); nothing was written",
            "tools/port sdist",
        ) from error
    if metadata != version.wheel and not (version.is_devel and version.port.startswith(f"{metadata}.")):
        raise refused(f"{file} calls itself {metadata}, not {version.wheel}; nothing was written", "tools/port sdist")


def _build(root: Path, commit: str, folder: Path) -> Path:
    source, made = folder / "source", folder / "made"
    # A clone of its own: nothing untracked can get in, and no file's mode or date is the maintainer's.
    git(root, "clone", "--quiet", "--no-checkout", "--shared", str(root), str(source))
    git(source, "checkout", "--quiet", commit)
    build = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(made), str(source)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    if done.returncode:
        told = (done.stderr or done.stdout).strip().splitlines()
        raise StateError(
            Outcome.REFERENCE_FAILED, f"no sdist of {commit[:12]} can be built: {told[-1] if told else ''}"
        )
    (file,) = made.iterdir()
    return file


def _metadata_version(file: Path) -> str:
    with tarfile.open(file) as tar:
        # All names are asked for, which reads the file to its end.
        name = next(name for name in tar.getnames() if name.count("/") == 1 and name.endswith("/PKG-INFO"))
        member = tar.extractfile(name)
        assert member is not None
        lines = member.read().decode().splitlines()
    return next(line.partition(": ")[2] for line in lines if line.startswith("Version: "))
