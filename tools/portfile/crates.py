"""The crates of a Cargo.lock as MacPorts' rust port group wants them."""

from __future__ import annotations

import sys
from typing import Annotated, Optional

import msgspec

from command.errors import refused, usage

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"

_Word = Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Za-z_.+-]+\Z")]
_Sha256 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]


class _Package(msgspec.Struct):
    name: _Word
    version: _Word
    source: Optional[str] = None
    checksum: Optional[_Sha256] = None


class _Lock(msgspec.Struct):
    package: list[_Package]


def crates_of(lock: str) -> list[tuple[str, str, str]]:
    """Name, version and sha256 of each crate from crates.io; the workspace's own have no source.

    Errors: usage for a text that is no Cargo.lock; refused for a crate from elsewhere, which the port group could not
    fetch.
    """
    try:
        packages = msgspec.convert(tomllib.loads(lock), _Lock).package
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise usage(f"that is no Cargo.lock: {error}") from error
    elsewhere = [package.name for package in packages if package.source not in (None, _REGISTRY)]
    if elsewhere:
        raise refused(f"crates from elsewhere than crates.io: {', '.join(elsewhere)}")
    return [(p.name, p.version, p.checksum) for p in packages if p.checksum is not None]


def render_crates(crates: list[tuple[str, str, str]]) -> str:
    """The option `cargo.crates`, a crate a line."""
    lines = [f"    {name} {version} {sha256}" for name, version, sha256 in crates]
    return "cargo.crates \\\n" + " \\\n".join(lines) + "\n"
