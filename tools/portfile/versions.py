"""One version in three spellings, and the order in which MacPorts sees them.

git tag `v0.7.0-local01`, port `0.7.0-local01`, wheel `0.7.0+local01` (PEP 440; two digits are load-bearing there);
upstream at a date is `0.7.0.20261019` in all three. Pure.
Source: `vercmp` of MacPorts' base, whose algorithm is RPM's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from command.errors import usage

_FORM = re.compile(r"(?P<base>\d+(?:\.\d+)*)(?:-local(?P<local>\d{2,}))?")
_DATE = re.compile(r"\d+(?:\.\d+)*\.(?:19|20)\d{6}")
_SEGMENT = re.compile(r"\d+|[A-Za-z]+")


@dataclass(frozen=True)
class Version:
    """A version of this project, spelled as the port spells it."""

    port: str

    @property
    def tag(self) -> str:
        return f"v{self.port}"

    @property
    def wheel(self) -> str:
        return self.port.replace("-local", "+local")

    @property
    def is_devel(self) -> bool:
        """Upstream at a date, without local patches."""
        return _DATE.fullmatch(self.port) is not None

    @property
    def sdist(self) -> str:
        """The distfile's name; its folder inside has the wheel's spelling, which forges would rewrite in a name."""
        return f"mlxcel-{self.port}.tar.gz"


def parse_version(text: str) -> Version:
    """A version in any of its spellings. Errors: usage, naming what MacPorts or Python would sort wrongly."""
    plain = text.removeprefix("v").replace("+local", "-local")
    if not _FORM.fullmatch(plain):
        raise usage(
            f"{text!r} is no version of this port: the forms are 0.7.0, 0.7.0-local01 (two digits or more) and "
            "0.7.0.20261019. Others, a release candidate or a fourth component, would sort above every -localNN"
        )
    return Version(plain)


def vercmp(first: str, second: str) -> int:
    """-1, 0 or 1 as MacPorts orders two versions.

    Separators count for nothing, a number beats letters, numbers compare by value and letters by their codes; where
    one version runs out the longer is newer.
    """
    ours, theirs = _SEGMENT.findall(first), _SEGMENT.findall(second)
    for one, other in zip(ours, theirs, strict=False):
        if one.isdigit() != other.isdigit():
            return 1 if one.isdigit() else -1
        a, b = (int(one), int(other)) if one.isdigit() else (one, other)
        if a != b:
            return 1 if a > b else -1
    return (len(ours) > len(theirs)) - (len(ours) < len(theirs))
