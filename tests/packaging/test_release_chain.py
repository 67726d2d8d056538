"""The whole chain on a throwaway fork: recut, verify, prove, land, port, release."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from portfile.checksums import checksums_of
from portfile.portfile import read_block, write_owner
from tests.git.forge import (
    BASE_FILES,
    EMPTY_MEAN,
    RECUT_TOML,
    UPSTREAM_AUTHOR,
    Files,
    Forge,
    build_bare_forge,
    copy_forge,
)
from tests.packaging.conftest import ROOT

EDITS = (ROOT / "recut.toml").read_text().partition("# A wheel")[2]
PORTFILE = "packaging/macports/llm/mlxcel/Portfile"
CHANGELOG = "# Changelog\n\n## Unreleased\n\n### Fixed\n- The mean of nothing.\n"


def project(version: str) -> str:
    return f"""\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "mlxcel"
version = "{version}"
dependencies = ["arrays>=2.1"]

[project.urls]
Source = "https://github.com/someone/mlxcel"

[tool.hatch.build.targets.wheel]
packages = ["tally"]

[tool.hatch.build.targets.sdist]
exclude = ["/packaging"]
"""


def scene(folder: Path) -> Forge:
    """A fork of a small project that is ported like this one, with one fix, one upstream release behind."""
    files: Files = {
        **BASE_FILES,
        "pyproject.toml": project("0.6.0"),
        "CHANGELOG.md": CHANGELOG,
        PORTFILE: write_owner((ROOT / PORTFILE).read_text(), "someone"),
    }
    forge = build_bare_forge(folder, settings=f"{RECUT_TOML}\n# A wheel{EDITS}", files=files)
    forge.add_topic("empty-mean", ("The mean of nothing is zero", EMPTY_MEAN))
    forge.record_topics()
    changed: Files = {"pyproject.toml": project("0.7.0")}
    forge.release_upstream("v0.7.0", ("Release 0.7.0", changed), annotated=False)
    readme: Files = {"README": "Small lists only.\n"}
    forge.upstream.commit("main", "Say what it is for", readme, author=UPSTREAM_AUTHOR)
    return forge


def recut_and_land(forge: Forge, told: list[str]) -> None:
    for command in (
        "plan --onto v0.7.0",
        "start",
        "publish",
        "verify",
        "prove empty-mean",
        "land empty-mean",
        "verify",
    ):
        run = forge.recut(*command.split())
        told += [f"$ tools/recut {command}", *run.out.splitlines()]


def port(forge: Forge, told: list[str], *arguments: str, expect: int = 0) -> str:
    done = subprocess.run(
        [ROOT / "tools" / "port", *arguments],
        cwd=forge.work.folder, env=forge.environ, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    told += [f"$ tools/port {' '.join(arguments)}", *(done.stdout + done.stderr).splitlines()]
    assert done.returncode == expect, "\n".join(told)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Forge, list[str]]:
    """The scene with its fix moved to the new upstream, proved and landed, and the transcript of that."""
    forge, told = scene(tmp_path_factory.mktemp("scene") / "forge"), list[str]()
    recut_and_land(forge, told)
    return forge, told


def test_a_release_is_a_tag_whose_portfile_holds_its_own_distfiles_checksums(
    landed: tuple[Forge, list[str]], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    forge, told = copy_forge(landed[0], tmp_path / "forge"), list(landed[1])
    before = forge.origin.refs()
    checkout = forge.work.checkout()
    assert "would tag v0.7.0-local01" in port(forge, told, "release", "--dry-run", "-o", str(tmp_path / "dist"))
    assert forge.origin.refs() == before
    shown = port(forge, told, "release", "-o", str(tmp_path / "dist"))
    assert "Only a Mac shows" in shown
    record_property("transcript", told)
    block = read_block(forge.origin.show("v0.7.0-local01", PORTFILE), is_devel=False)
    distfile = tmp_path / "dist" / "mlxcel-0.7.0-local01.tar.gz"
    assert (block.version, block.revision, block.owner) == ("0.7.0-local01", 0, "someone")
    assert block.checksums == checksums_of(distfile)
    assert 'version = "0.7.0+local01"' in forge.origin.show("v0.7.0-local01", "pyproject.toml")
    assert "## Unreleased\n\n## 0.7.0-local01\n\n### Fixed\n" in forge.origin.show("v0.7.0-local01", "CHANGELOG.md")
    assert forge.work.checkout() == checkout
    assert forge.work.git("worktree", "list").count("\n") == 0
    forge.recut("verify")
    assert "released as v0.7.0-local01 already" in port(forge, told, "release", expect=5)
    replaced = json.loads(forge.recut("plan", "--onto", "upstream/main", "--json").out)["branches"][-1]["replaced"]
    assert [row["subject"] for row in replaced if row["kind"] == "release"] == [
        "Port v0.7.0-local01", "Release v0.7.0-local01",
    ]  # fmt: skip


@pytest.mark.long
def test_the_devel_port_is_upstream_at_its_date_and_local_keeps_the_release(
    landed: tuple[Forge, list[str]], tmp_path: Path
) -> None:
    forge, told = copy_forge(landed[0], tmp_path / "forge"), list(landed[1])
    port(forge, told, "release", "--devel", "-o", str(tmp_path / "dist"))
    (tag,) = [name for name in forge.origin.tags() if name.startswith("refs/tags/v0.7.0.2026")]
    version = tag.removeprefix("refs/tags/v")
    text = forge.origin.show("local", PORTFILE)
    devel = read_block(text, is_devel=True)
    assert devel.version == version
    assert devel.checksums == checksums_of(tmp_path / "dist" / f"mlxcel-{version}.tar.gz")
    assert read_block(text, is_devel=False).version == read_block((ROOT / PORTFILE).read_text(), is_devel=False).version
    assert "return 0.0" not in forge.origin.show(tag, "tally/stats.py")
