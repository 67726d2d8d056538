"""Python and the packages: there, no older than what mlxcel asks for, no newer than what its tests ran with."""

from __future__ import annotations

import platform
from importlib import metadata

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from mlxcel.doctor.finding import Finding, ok, problem, warning

NEWEST_TESTED = {"mlx": "0.32.4", "mlx-lm": "0.32.2", "llguidance": "1.9.1"}


def look_at_python(version: str | None = None, supported: str | None = None) -> Finding:
    """The interpreter's version, against the versions that the package says it runs on."""
    version = version or platform.python_version()
    supported = supported or metadata.metadata("mlxcel")["Requires-Python"]
    if Version(version) in SpecifierSet(supported, prereleases=True):
        return ok("python", version)
    return problem("python", f"{version}, and mlxcel runs on {supported}", "Install mlxcel again, with such a Python")


def look_at_package(name: str, version: str | None, *, needed: SpecifierSet, newest: str) -> Finding:
    """A package that nothing works without. `version` is None where it is missing."""
    if version is None:
        return problem(name, "not installed, and no model can be loaded without it", "Install mlxcel again")
    return _against(name, version, needed, newest) or ok(name, version)


def look_at_grammars(version: str | None, *, needed: SpecifierSet, newest: str) -> Finding:
    """llguidance, without which requests for structured answers are refused."""
    if version is None:
        return warning(
            "llguidance",
            "not installed: response_format with a schema and forced tool calls are answered 400",
            "pip install 'mlxcel[grammar]', where they are wanted",
        )
    return _against("llguidance", version, needed, newest) or ok("llguidance", version)


def _against(name: str, version: str, needed: SpecifierSet, newest: str) -> Finding | None:
    if not needed.contains(version, prereleases=True):
        return problem(
            name, f"{version} is outside of {needed}, which mlxcel was made for", f"pip install '{name}{needed}'"
        )
    if Version(version) > Version(newest):
        return warning(
            name,
            f"{version} is newer than {newest}, the newest that mlxcel was tested with; it may answer differently",
            f"pip install '{name}<={newest}', if something is odd",
        )
    return None


def look_at_versions() -> list[Finding]:
    needed = {name: needed_of(name) for name in NEWEST_TESTED}
    installed = {name: installed_version(name) for name in NEWEST_TESTED}
    return [
        look_at_python(),
        *(
            look_at_package(name, installed[name], needed=needed[name], newest=NEWEST_TESTED[name])
            for name in ("mlx", "mlx-lm")
        ),
        look_at_grammars(installed["llguidance"], needed=needed["llguidance"], newest=NEWEST_TESTED["llguidance"]),
    ]


def installed_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def needed_of(name: str) -> SpecifierSet:
    """What mlxcel's own metadata asks of a package, an optional one included."""
    for text in metadata.requires("mlxcel") or ():
        requirement = Requirement(text)
        marker = requirement.marker
        if requirement.name == name and (marker is None or any(marker.evaluate({"extra": e}) for e in ("", "grammar"))):
            return requirement.specifier
    return SpecifierSet()
