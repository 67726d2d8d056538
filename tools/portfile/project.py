"""What pyproject.toml says of the project: the one place where its version and its owner stand."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from command.errors import usage

from .versions import Version, parse_version

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

UNKNOWN_OWNER = "OWNER"
"""What stands in the URLs until the project has a home."""
PORTFILE = Path("packaging/macports/llm/mlxcel/Portfile")
_SOURCE = re.compile(r"https://github\.com/(?P<owner>[A-Za-z0-9-]+)/mlxcel")


@dataclass(frozen=True)
class Project:
    version: Version
    owner: str
    requirements: tuple[str, ...]
    """Run dependencies, as they stand there."""

    @property
    def has_home(self) -> bool:
        return self.owner != UNKNOWN_OWNER


class _ProjectTable(msgspec.Struct):
    version: str
    urls: dict[str, str] = {}
    dependencies: list[str] = []


class _Pyproject(msgspec.Struct):
    project: _ProjectTable


def find_root(folder: Path) -> Path:
    """The checkout that `folder` lies in. Errors: usage outside one."""
    for root in (folder, *folder.parents):
        if (root / PORTFILE).is_file() and (root / "pyproject.toml").is_file():
            return root
    raise usage(f"{folder} lies in no checkout with {PORTFILE}")


def read_project(text: str) -> Project:
    """Errors: usage, naming the key."""
    try:
        told = msgspec.convert(tomllib.loads(text), _Pyproject).project
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise usage(f"pyproject.toml: {error}") from error
    source = told.urls.get("Source", "")
    found = _SOURCE.fullmatch(source)
    if found is None:
        raise usage(f"pyproject.toml: project.urls Source = {source!r} is not https://github.com/<owner>/mlxcel")
    return Project(version=parse_version(told.version), owner=found["owner"], requirements=tuple(told.dependencies))
