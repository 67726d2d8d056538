"""What a Portfile says, told by Tcl itself against a stub of the port commands (evaluate.tcl).

Port groups are stubbed as far as this port uses them: what they do beyond that only `port` shows.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from command.errors import refused, usage

PROGRAM = Path(__file__).with_name("evaluate.tcl")
TCL = "tclsh"
EVALUATION_S = 10.0
PHASES_S = 600.0


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One subport on one platform. `options` have each word of their value, or one where it is no list."""

    options: Mapping[str, Sequence[str]]
    groups: Sequence[Sequence[str]]
    subports: Sequence[str]
    variants: Sequence[Sequence[str]]
    phases: Sequence[str]
    users: Sequence[Sequence[str]]
    owners: Sequence[Sequence[str]]
    """Path, owner, group and mode of what the phases that were run installed."""
    unknown: Sequence[str]
    """Options that the stub does not know."""
    messages: Sequence[str]

    def text(self, option: str) -> str:
        """An option's value; empty where it was not set."""
        return " ".join(self.options.get(option, ()))

    def ports(self, option: str) -> list[str]:
        """The ports that a depends_* option names."""
        return [word.rpartition(":")[2] for word in self.options.get(option, ())]


def evaluate(
    portfile: Path,
    *,
    subport: str = "",
    os_major: int = 23,
    arch: str = "arm64",
    run: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    **folders: Path,
) -> Evaluation:
    """Evaluate `portfile`, then carry out the phases in `run`.

    folders: prefix, workpath, worksrcpath, destroot.
    Errors: usage for a Portfile that Tcl refuses or never finishes; refused where there is no tclsh.
    """
    given = {"subport": subport, "os_major": os_major, "arch": arch, "run": " ".join(run)}
    given |= {"filespath": portfile.parent / "files", **folders}
    words = [str(word) for pair in given.items() for word in pair]
    if not shutil.which(TCL):
        raise refused(
            "there is no tclsh to read a Portfile with", "apt-get install tcl, or on macOS: sudo port install tcl"
        )
    try:
        done = subprocess.run(
            [TCL, PROGRAM, portfile, *words],
            capture_output=True, text=True, check=False, env=environ, timeout=PHASES_S if run else EVALUATION_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise usage(f"{portfile} is still being evaluated after {error.timeout:g} s: does it end?") from None
    if done.returncode:
        raise usage(f"{portfile}: {done.stderr.splitlines()[0] if done.stderr else 'tclsh failed'}")
    return Evaluation(**json.loads(done.stdout))
