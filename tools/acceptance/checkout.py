"""The commit that a server was built from, and the checksums of its files. The only place that starts git."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from .report import Artefact

GIT_S = 30.0


def read_commit(folder: Path) -> tuple[str, bool]:
    """The full id of HEAD in `folder`'s checkout, and whether files differ from it; ("", False) outside one."""
    head = _git(folder, "rev-parse", "HEAD")
    return (head, bool(_git(folder, "status", "--porcelain", "--untracked-files=no"))) if head else ("", False)


def _git(folder: Path, *words: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=GIT_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def read_artefacts(words: Sequence[str]) -> tuple[Artefact, ...]:
    """The program of a command and every file that it names."""
    named = [shutil.which(words[0]) or words[0], *words[1:]] if words else []
    files = dict.fromkeys(Path(word).absolute() for word in named if word and Path(word).is_file())
    return tuple(Artefact(path=str(path), sha256=sha256_of(path)) for path in files)


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def snapshot_id(model: Path) -> str:
    """One checksum for a model folder: of the names and checksums of its files, in order."""
    digest = hashlib.sha256()
    for path in sorted(path for path in model.iterdir() if path.is_file()):
        digest.update(f"{path.name} {sha256_of(path)}\n".encode())
    return digest.hexdigest()
