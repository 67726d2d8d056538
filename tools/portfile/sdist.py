"""The distfile: an sdist of one commit, built twice from two clones and compared byte for byte.

It leaves packaging/ out, so that the Portfile of the same commit can hold its checksums.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from command.errors import Outcome, StateError, refused

from .checksums import Checksums, checksums_of
from .versions import Version


@dataclass(frozen=True)
class Distfile:
    file: Path
    commit: str
    checksums: Checksums


def build_distfile(
    root: Path, revision: str, version: Version, out: Path, *, edits: Mapping[str, bytes] | None = None
) -> Distfile:
    """Write `out`/mlxcel-VERSION.tar.gz from that commit with `edits` (whole files, by path) laid over it.

    Errors: refused where two builds differ or the commit is of another version; StateError where git or the build
    fails.
    """
    commit = _run(["git", "-C", str(root), "rev-parse", "--verify", f"{revision}^{{commit}}"]).strip()
    with tempfile.TemporaryDirectory(prefix="mlxcel-sdist-") as scratch:
        builds = [_build(root, commit, Path(scratch) / name, edits or {}) for name in ("one", "two")]
        first, second = (build.read_bytes() for build in builds)
        if first != second:
            raise refused(f"two sdists of {commit[:12]} differ, so nobody could check one; nothing was written")
        wanted = f"mlxcel-{version.wheel}.tar.gz"
        if builds[0].name != wanted:
            raise refused(f"the sdist of {commit[:12]} is {builds[0].name}, not {wanted}: set the version first")
        out.mkdir(parents=True, exist_ok=True)
        file = out / version.sdist
        file.write_bytes(first)
    return Distfile(file, commit, checksums_of(file))


def _build(root: Path, commit: str, folder: Path, edits: Mapping[str, bytes]) -> Path:
    source, made = folder / "source", folder / "made"
    # A clone of its own: nothing untracked can get in, and no file's mode or date is the maintainer's.
    _run(["git", "clone", "--quiet", "--no-checkout", "--shared", str(root), str(source)])
    _run(["git", "-C", str(source), "-c", "advice.detachedHead=false", "checkout", "--quiet", commit])
    for path, content in edits.items():
        (source / path).write_bytes(content)
    _run([sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(made), str(source)])
    (file,) = made.iterdir()
    return file


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        told = (done.stderr or done.stdout).strip().splitlines()
        raise StateError(Outcome.GIT_FAILED, f"'{' '.join(command[:4])} ...' failed: {told[-1] if told else ''}")
    return done.stdout
