"""Whether tag, wheel, port, changelog and program say the same version: pure, every disagreement at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .checksums import Checksums
from .portfile import Block
from .project import UNKNOWN_OWNER, Project
from .versions import Version

NO_CHECKSUMS = Checksums("0" * 40, "0" * 64, 0)
"""What stands in the Portfile before the first release."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Where the version is said. None: not asked, or not there."""

    project: Project
    port: Block
    devel: Block
    changelog: str
    program: str
    """What `mlxcel version` prints of itself."""
    tag: str | None = None
    distfile: Checksums | None = None


def disagreements(told: Sources, *, is_release: bool) -> list[str]:
    """What does not agree; for a release also what may not stay open."""
    version = told.project.version
    return [*_everyday(told, version), *(_release(told, version) if is_release else ())]


def _everyday(told: Sources, version: Version) -> Iterator[str]:
    if told.port.version != version.port:
        yield f"the port's version is {told.port.version}, pyproject's is {version.port}"
    for name, block in (("mlxcel", told.port), ("mlxcel-devel", told.devel)):
        if block.owner != told.project.owner:
            yield f"github.setup of {name} names {block.owner}, pyproject's Source {told.project.owner}"
    if not re.search(r"\.(19|20)\d{6}$", told.devel.version):
        yield f"the devel port's version {told.devel.version} ends with no date"
    if told.program != version.wheel:
        yield f"'mlxcel version' says {told.program}, pyproject {version.wheel}: install it again"
    if told.tag is not None and told.tag != version.tag:
        yield f"the tag is {told.tag}, pyproject's version asks for {version.tag}"
    if told.distfile is not None and told.distfile != told.port.checksums:
        yield "the distfile's checksums are not those of the Portfile: tools/port release"


def _release(told: Sources, version: Version) -> Iterator[str]:
    if told.project.owner == UNKNOWN_OWNER:
        yield f"project.urls still say {UNKNOWN_OWNER}: set the owner in pyproject.toml"
    if told.port.checksums == NO_CHECKSUMS:
        yield "the Portfile has no checksums yet"
    if not re.search(rf"(?m)^## {re.escape(version.port)}( |$)", told.changelog):
        yield f"CHANGELOG.md has no section {version.port}"
