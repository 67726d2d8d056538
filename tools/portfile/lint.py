"""The rules of `port lint --nitpick`, restated: what each line of a Portfile and its evaluation must keep.

Source: src/port1.0/portlint.tcl of MacPorts' base, as read. `port lint` itself has the last word, on a Mac.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from .evaluation import Evaluation

MODELINE = (
    "# -*- coding: utf-8; mode: tcl; tab-width: 4; indent-tabs-mode: nil; c-basic-offset: 4 -*- "
    "vim:fenc=utf-8:ft=tcl:et:sw=4:ts=4:sts=4"
)
GROUPS = {"github": "1.0", "python": "1.0", "rust": "1.0"}
NEEDED = (
    "name", "version", "description", "long_description", "categories", "maintainers", "platforms", "homepage",
    "master_sites", "checksums", "license",
)  # fmt: skip
LICENSES = {"Apache-2", "MIT", "BSD"}
_VERSION_LINE = re.compile(
    r"^\s*(version|github\.setup|revision|license|rmd160|sha256|size|checksums|PortSystem|PortGroup)\b"
)
_CRATE = re.compile(r"^\s+\S+ \S+ [0-9a-f]{64}\b")
_SUMS = {"rmd160": r"[0-9a-f]{40}", "sha256": r"[0-9a-f]{64}", "size": r"\d+"}


def lint(portfile: Path, told: Evaluation) -> list[str]:
    """Every rule that the Portfile breaks, in words; empty where `port lint` should be content."""
    try:
        text = portfile.read_bytes().decode()
    except UnicodeDecodeError:
        return ["the file is no UTF-8"]
    return [*_lines(text, told), *_options(portfile, told)]


def _lines(text: str, told: Evaluation) -> Iterator[str]:
    lines = text.split("\n")
    if lines[0] != MODELINE:
        yield "line 1: no modeline"
    if not text.endswith("\n") or text.endswith("\n\n"):
        yield "the last line does not end the file"
    versions = {told.text("version"), told.text("version").partition("-")[0]} - {""}
    in_sums = False
    for n, (line, after) in enumerate(zip(lines, [*lines[1:], ""], strict=True), 1):
        if line != line.rstrip():
            yield f"line {n}: trailing blanks"
        if "\t" in line:
            yield f"line {n}: a tab, against the modeline"
        if "/opt/local" in line:
            yield f"line {n}: /opt/local is written out; say ${{prefix}}"
        if re.search(r"\badduser\b", line):
            yield f"line {n}: adduser; say add_users"
        if _needs_blank(line, after):
            yield f"line {n}: no blank line after {line.split()[0] if n > 1 else 'the modeline'}"
        in_sums = line.lstrip().startswith("checksums") or (in_sums and lines[n - 2].endswith("\\"))
        if re.match(r"platforms\s+darwin$", line):
            yield f"line {n}: platforms darwin says nothing"
        is_comment = line.lstrip().startswith("#")
        is_exempt = is_comment or in_sums or _VERSION_LINE.match(line) or _CRATE.match(line)
        if not is_exempt and any(v in line for v in versions):
            yield f"line {n}: the version is written out"


def _needs_blank(line: str, after: str) -> bool:
    if line == MODELINE or line.startswith("PortSystem"):
        return after != ""
    return line.startswith("PortGroup") and after != "" and not after.startswith("PortGroup")


def _options(portfile: Path, told: Evaluation) -> Iterator[str]:
    yield from (f"{option} is missing" for option in NEEDED if not told.text(option))
    if told.text("PortSystem") != "1.0":
        yield "PortSystem is not 1.0"
    yield from (f"port group {' '.join(group)} is unknown" for group in told.groups if GROUPS.get(group[0]) != group[1])
    yield from (f"{option} is no option" for option in told.unknown)
    name = told.text("name")
    if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        yield f"name {name!r} has unsafe characters"
    if name != portfile.parent.name:
        yield f"name {name} is not its folder's"
    if told.options.get("categories", ("",))[0] != portfile.parent.parent.name:
        yield "the first category is not the folder above"
    if "+" in told.text("version"):
        yield "the version has a +, which ends a version on the command line"
    if not re.fullmatch(r"\d+", told.text("revision")):
        yield "revision is no number"
    yield from (
        f"license {word} is not in MacPorts' form" for word in told.options.get("license", ()) if word not in LICENSES
    )
    yield from _maintainers(told.options.get("maintainers", ()))
    for option in ("depends_build", "depends_lib", "depends_run", "depends_test"):
        yield from (
            f"{option}: {word} is no dependency"
            for word in told.options.get(option, ())
            if not re.fullmatch(r"(port|bin:[^:]+|path:[^:]+|lib:[^:]+):[A-Za-z0-9._-]+", word)
        )
    yield from (f"variant {v[0]} has no description" for v in told.variants if "description" not in v)
    yield from _checksums(told)


def _maintainers(words: object) -> Iterator[str]:
    assert isinstance(words, (list, tuple))
    if "nomaintainer" in words and len(words) > 1:
        yield "nomaintainer stands beside a maintainer"
    if list(words) == ["openmaintainer"]:
        yield "openmaintainer stands alone"
    yield from (f"maintainer {word} is a plain e-mail address" for word in words if re.search(r"\w@\w", word))


def _checksums(told: Evaluation) -> Iterator[str]:
    words = list(told.options.get("checksums", ()))
    if words and words[0] not in _SUMS:  # a py-* port with crates names its distfile first
        words = words[1:]
    sums = dict(zip(words[::2], words[1::2], strict=False))
    for kind, form in _SUMS.items():
        if kind not in sums:
            yield f"checksums lack {kind}"
        elif not re.fullmatch(form, sums[kind]):
            yield f"checksums: {kind} is malformed"
