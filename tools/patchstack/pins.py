"""The requirements that a project file pins, as the record lists them.

Reads pyproject.toml (dependencies, optional and grouped ones) or a file with one requirement a line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from command.errors import refused

from .git import Git
from .settings import Pins
from .stack import Pin, Sha

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]


def pins_at(git: Git, pins: Pins, commit: Sha) -> tuple[Pin, ...]:
    """The pins in the project file of a commit; none where it has no such file."""
    content = git.file(commit, pins.file) if pins.names else None
    return read_pins(content.decode(errors="replace"), pins) if content is not None else ()


def read_pins(text: str, pins: Pins) -> tuple[Pin, ...]:
    """Every requirement in the project file `text` on a package of `pins.names`, as written there.

    Errors: refused where the file cannot be read.
    """
    # Costs more to import than `status` has time for.
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    wanted = {canonicalize_name(name): name for name in pins.names}
    found: dict[Pin, None] = {}
    for written in _requirements(text, pins.file):
        try:
            name = wanted.get(canonicalize_name(Requirement(written).name))
        except InvalidRequirement:
            continue
        if name:
            found[Pin(name=name, requirement=written)] = None
    return tuple(found)


def unpinned_names(found: Iterable[Pin], pins: Pins) -> list[str]:
    """Names in recut.toml that the project file does not require at all."""
    return sorted(set(pins.names) - {pin.name for pin in found})


def _requirements(text: str, file: str) -> Iterator[str]:
    if file.endswith(".toml"):
        try:
            table: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise refused(f"{file} is not TOML: {error}") from error
        project = table.get("project", {})
        groups: Iterable[Any] = (
            project.get("dependencies", []),
            *project.get("optional-dependencies", {}).values(),
            *table.get("dependency-groups", {}).values(),
        )
        yield from (entry for group in groups for entry in group if isinstance(entry, str))
    else:
        yield from (line.split(" #")[0].strip() for line in text.splitlines())
