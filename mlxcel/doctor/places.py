"""The files and folders that a server reads and writes: there, ours to use, and not everyone's to change.

Permissions are those of the mode bits: root passes them by, but the user that a service runs as will not.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlxcel.config.keys import read_keys
from mlxcel.doctor.finding import Finding, ok, problem, warning
from mlxcel.errors import ConfigError

LOOPBACK = ("127.0.0.1", "::1", "localhost")

READ, WRITE, ENTER = 4, 2, 1


def permits(status: os.stat_result, wanted: int) -> bool:
    """Whether the mode bits let this process do what is `wanted`."""
    if status.st_uid == os.geteuid():
        shift = 6
    elif status.st_gid in {os.getegid(), *os.getgroups()}:
        shift = 3
    else:
        shift = 0
    return status.st_mode >> shift & wanted == wanted


def look_at_config(file: Path, faults: Sequence[ConfigError]) -> list[Finding]:
    """The settings, fault by fault, and who may change them."""
    found = [problem("config", fault.message, "'mlxcel config check' says whether it is mended") for fault in faults]
    if not file.exists():
        return found or [ok("config", f"{file} is not there: defaults, MLXCEL_* and flags are used")]
    status = file.stat()
    if not permits(status, READ):
        found.append(problem("config", f"{file} may not be read{_mode(status)}", f"chmod u+r {file}"))
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        found.append(
            warning(
                "config",
                f"{file} may be changed by others{_mode(status)}, and so may what is served",
                f"chmod go-w {file}",
            )
        )
    return found or [ok("config", f"{file}: every setting can be used")]


def look_at_models_folder(folder: Path) -> Finding:
    """Where models are pulled to and served from."""
    about = "models folder"
    if not folder.exists():
        return _to_be_made(about, folder)
    status = folder.stat()
    if not folder.is_dir():
        return problem(about, f"{folder} is no folder", "Name another with --models-dir, or move that file away")
    if not permits(status, READ | ENTER):
        return problem(
            about, f"{folder} may not be read{_mode(status)}: no model is found there", f"chmod u+rx {folder}"
        )
    if not permits(status, WRITE):
        return warning(
            about,
            f"{folder} may not be written{_mode(status)}: its models are served, but none is pulled",
            f"chmod u+w {folder}",
        )
    if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
        return warning(
            about, f"{folder} may be changed by anyone{_mode(status)}, and so may what is served", f"chmod o-w {folder}"
        )
    return ok(about, str(folder))


def look_at_keys(file: str | None, environ: Mapping[str, str], *, host: str) -> Finding:
    """The keys that clients must send, and who can ask without one."""
    try:
        keys = read_keys(file, environ)
    except ConfigError as error:
        return problem("keys", error.message, "'mlxcel config check' says whether it is mended")
    if keys:
        return ok("keys", f"{len(keys)}, of which clients must send one")
    if host in LOOPBACK:
        return ok("keys", "none: whoever is on this machine may ask")
    return warning(
        "keys", f"none, and {host} may be reached from elsewhere: whoever does may ask", "Set api_keys_file = ..."
    )


def look_at_log(file: Path | None) -> Finding:
    """The server's own log."""
    if file is None:
        return ok("log", "to stderr")
    if not file.parent.exists():
        return problem("log", f"{file.parent} is not there, and the server does not make it", f"mkdir -p {file.parent}")
    if not file.parent.is_dir() or file.is_dir():
        return problem("log", f"{file} cannot be a file", "Name another with --log-file")
    target = file if file.exists() else file.parent
    status = target.stat()
    if not permits(status, WRITE):
        return problem(
            "log", f"{target} may not be written{_mode(status)}: the server will not start", f"chmod u+w {target}"
        )
    return ok("log", str(file))


def _to_be_made(about: str, folder: Path) -> Finding:
    parent = next(parent for parent in folder.absolute().parents if parent.exists())
    status = parent.stat()
    if parent.is_dir() and permits(status, WRITE | ENTER):
        return ok(about, f"{folder} is not there yet; the first pull or import makes it")
    return problem(
        about,
        f"{folder} is not there and cannot be made in {parent}{_mode(status)}",
        f"chmod u+wx {parent}, or name another with --models-dir",
    )


def _mode(status: os.stat_result) -> str:
    return f" (mode {stat.S_IMODE(status.st_mode):03o})"
