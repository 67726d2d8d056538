"""One version in three spellings, and the order in which MacPorts sees them.

git tag `v0.7.0-local01`, port `0.7.0-local01`, wheel `0.7.0+local01` (PEP 440; two digits are load-bearing there);
upstream at a date is `0.7.0.20261019` in all three. Pure.
Source: `vercmp` of MacPorts' base, whose algorithm is RPM's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date

from command.errors import usage

_FORM = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(?:-local[0-9]{2,}|\.(?P<date>[0-9]{8}))?")
_SEGMENT = re.compile(r"[0-9]+|[A-Za-z]+")


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
        found = _FORM.fullmatch(self.port)
        return found is not None and found["date"] is not None

    @property
    def sdist(self) -> str:
        """The distfile's name; its folder inside has the wheel's spelling, which forges would rewrite in a name."""
        return f"mlxcel-{self.port}.tar.gz"


def parse_version(text: str) -> Version:
    """A version in any of its spellings. Errors: usage, naming what MacPorts or Python would sort wrongly."""
    plain = text.removeprefix("v").replace("+local", "-local")
    found = _FORM.fullmatch(plain)
    if not found or (found["date"] and not _is_date(found["date"])):
        raise usage(
            f"{text!r} is no version of this port: the forms are 0.7.0, 0.7.0-local01 (two digits or more) and "
            "0.7.0.20261019, a date. Others, a release candidate or a fourth component, would sort above every -localNN"
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
        a, b = _rank(one), _rank(other)
        if a != b:
            return 1 if a > b else -1
    return (len(ours) > len(theirs)) - (len(ours) < len(theirs))


def _rank(segment: str) -> tuple[int, str]:
    """Orders two numbers by value, of any length, and two words by their letters' codes."""
    if not segment.isdigit():
        return 0, segment
    digits = segment.lstrip("0")
    return len(digits), digits


def _is_date(digits: str) -> bool:
    try:
        date(int(digits[:4]), int(digits[4:6]), int(digits[6:]))
    except ValueError:
        return False
    return digits >= "19"
