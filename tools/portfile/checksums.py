"""The three lines by which a Portfile knows its distfile."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Checksums:
    rmd160: str
    sha256: str
    size: int

    def __str__(self) -> str:
        return f"rmd160 {self.rmd160}\nsha256 {self.sha256}\nsize   {self.size}"


def checksums_of(file: Path) -> Checksums:
    content = file.read_bytes()
    return Checksums(rmd160=_rmd160(content), sha256=hashlib.sha256(content).hexdigest(), size=len(content))


def _rmd160(content: bytes) -> str:
    """Some builds of OpenSSL 3 lack RIPEMD-160, which MacPorts still wants."""
    try:
        return hashlib.new("ripemd160", content).hexdigest()
    except ValueError:
        from Crypto.Hash import RIPEMD160

        return str(RIPEMD160.new(content).hexdigest())
