"""What a property list of ours may say: keys, types and values, as launchd.plist(5) has them."""

from __future__ import annotations

import plistlib
import re
from pathlib import Path
from typing import Any
from xml.parsers.expat import ExpatError

KEYS: dict[str, type] = {
    "Label": str,
    "ProgramArguments": list,
    "UserName": str,
    "GroupName": str,
    "Disabled": bool,
    "RunAtLoad": bool,
    "KeepAlive": dict,
    "ThrottleInterval": int,
    "ExitTimeOut": int,
    "ProcessType": str,
    "SoftResourceLimits": dict,
    "EnvironmentVariables": dict,
    "WorkingDirectory": str,
    "Umask": int,
    "SessionCreate": bool,
    "StandardOutPath": str,
    "StandardErrorPath": str,
}
DAEMON_ONLY = {"UserName", "GroupName", "Disabled", "SessionCreate"}
MARGIN_S = 20
"""Between the server's drain and launchd's SIGKILL: frames are flushed and the model is freed in it."""
_SECRET = re.compile(r"token|key|secret|password", re.IGNORECASE)


def faults_of(text: bytes, file: Path, *, is_daemon: bool, drain_s: float) -> list[str]:
    """Everything that is wrong with the job in `text`, which is to lie at `file`; each fault names its key."""
    try:
        job: dict[str, Any] = plistlib.loads(text, fmt=plistlib.FMT_XML)
    except (ValueError, ExpatError, AttributeError) as error:
        return [f"not a property list: {error}"]
    faults = [f"{key}: unknown" for key in job if key not in KEYS]
    faults += [f"{key}: not {kind.__name__}" for key, kind in KEYS.items() if key in job and type(job[key]) is not kind]
    wanted = set(KEYS) - (set() if is_daemon else DAEMON_ONLY)
    faults += [f"{key}: missing" for key in sorted(wanted - set(job))]
    if not is_daemon:
        faults += [f"{key}: only a daemon has it" for key in sorted(DAEMON_ONLY & set(job))]
    if faults:
        return faults
    return [*_values(job, file, is_daemon=is_daemon, drain_s=drain_s), *_texts(job)]


def _values(job: dict[str, Any], file: Path, *, is_daemon: bool, drain_s: float) -> list[str]:
    environment = job["EnvironmentVariables"]
    paths = {key: job[key] for key in ("WorkingDirectory", "StandardOutPath", "StandardErrorPath")}
    paths |= {"ProgramArguments": job["ProgramArguments"][0], "HOME": environment.get("HOME", "")}
    checks = {
        "Label: is not the file's name": job["Label"] == file.name.removesuffix(".plist"),
        "ProgramArguments: only the wrapper": len(job["ProgramArguments"]) == 1,
        "KeepAlive: restart on failure, and on nothing else": job["KeepAlive"] == {"SuccessfulExit": False},
        "RunAtLoad: false": job["RunAtLoad"],
        "Disabled: false": not is_daemon or job["Disabled"],
        "UserName: root": not is_daemon or job["UserName"] not in ("root", ""),
        "ThrottleInterval: under 10 s": job["ThrottleInterval"] >= 10,
        "ExitTimeOut: too close to the drain": job["ExitTimeOut"] >= drain_s + MARGIN_S,
        "ProcessType: not Interactive": job["ProcessType"] == "Interactive",
        "SoftResourceLimits: too few files": job["SoftResourceLimits"].get("NumberOfFiles", 0) >= 1024,
        "Umask: others may read": job["Umask"] & 0o077 == 0o077,
        "EnvironmentVariables: a value is no text": all(isinstance(v, str) for v in environment.values()),
        "EnvironmentVariables: lacks HOME, PATH or HF_HOME": {"HOME", "PATH", "HF_HOME"} <= set(environment),
        "EnvironmentVariables: a secret": not any(_SECRET.search(name) for name in environment),
    }
    faults = [fault for fault, holds in checks.items() if not holds]
    named = [*paths.items(), *(("PATH", part) for part in environment.get("PATH", "").split(":"))]
    return faults + [f"{key}: {path!r} is not absolute" for key, path in named if not path.startswith("/")]


def _texts(value: object, key: str = "") -> list[str]:
    """Nothing in a property list is expanded: no ~, no $, and no placeholder may be left."""
    if isinstance(value, dict):
        return [fault for name, inner in value.items() for fault in _texts(inner, key or name)]
    if isinstance(value, list):
        return [fault for inner in value for fault in _texts(inner, key)]
    if isinstance(value, str) and re.search(r"[~$]|@[A-Z]+@", value):
        return [f"{key}: {value!r} would have to be expanded"]
    return []
