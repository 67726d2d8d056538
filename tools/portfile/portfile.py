"""The lines of the Portfile that a release rewrites: owner, version, revision, checksums. Pure: text to text.

A Portfile has two such blocks, the release's and, inside `subport`, the devel one's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from command.errors import refused

from .checksums import Checksums
from .versions import Version

_SETUP = re.compile(r"(?m)^(?P<head> *github\.setup +)(?P<owner>\S+) mlxcel (?P<version>\S+) v$")
_REVISION = re.compile(r"(?m)^(?P<head> *revision +)(?P<revision>\d+)$")
_SUMS = re.compile(
    r"(?m)^(?P<head> *checksums +)rmd160 +(?P<rmd160>[0-9a-f]{40}) \\\n"
    r" +sha256 +(?P<sha256>[0-9a-f]{64}) \\\n"
    r" +size +(?P<size>\d+)$"
)
_WORDS = {
    _SETUP: "github.setup OWNER mlxcel VERSION v",
    _REVISION: "revision N",
    _SUMS: "checksums rmd160 ... sha256 ... size ...",
}
_SEE = "git diff -- packaging/macports   # what was changed in it"


@dataclass(frozen=True)
class Block:
    """What the Portfile says of one of its two subports."""

    owner: str
    version: str
    revision: int
    checksums: Checksums


def read_block(text: str, *, is_devel: bool) -> Block:
    """Errors: refused when the Portfile is not laid out as this tool writes it."""
    if "\r" in text:
        raise refused("the Portfile has carriage returns, which MacPorts does not take: end its lines with LF", _SEE)
    setup, revision, sums = (_line(pattern, text, is_devel=is_devel) for pattern in (_SETUP, _REVISION, _SUMS))
    return Block(
        owner=setup["owner"],
        version=setup["version"],
        revision=int(revision["revision"]),
        checksums=Checksums(sums["rmd160"], sums["sha256"], int(sums["size"])),
    )


def write_block(text: str, *, owner: str, version: Version, checksums: Checksums) -> str:
    """The Portfile with that release; a new version starts at revision 0, the same one keeps its revision."""
    is_devel = version.is_devel
    old = read_block(text, is_devel=is_devel)
    revision = old.revision if old.version == version.port else 0
    text = _replace(_SETUP, text, f"{owner} mlxcel {version.port} v", is_devel=is_devel)
    text = _replace(_REVISION, text, str(revision), is_devel=is_devel)
    indent = " " * len(_line(_SUMS, text, is_devel=is_devel)["head"])
    sums = f"rmd160  {checksums.rmd160} \\\n{indent}sha256  {checksums.sha256} \\\n{indent}size    {checksums.size}"
    return write_owner(_replace(_SUMS, text, sums, is_devel=is_devel), owner)


def write_owner(text: str, owner: str) -> str:
    """The Portfile with its project at `owner`'s, in both blocks and as the maintainer."""
    text = _SETUP.sub(lambda found: f"{found['head']}{owner} mlxcel {found['version']} v", text)
    return re.sub(r"(?m)^(maintainers +\{)@\S+(\} openmaintainer)$", rf"\g<1>@{owner}\2", text)


def _line(pattern: re.Pattern[str], text: str, *, is_devel: bool) -> re.Match[str]:
    found = list(pattern.finditer(text))
    if len(found) != 2:
        words = _WORDS[pattern]
        raise refused(f"the Portfile has {len(found)} times '{words}'; the port and -devel need one each", _SEE)
    return found[is_devel]


def _replace(pattern: re.Pattern[str], text: str, words: str, *, is_devel: bool) -> str:
    found = _line(pattern, text, is_devel=is_devel)
    return f"{text[: found.start()]}{found['head']}{words}{text[found.end() :]}"
