"""Puts tools/ on the path, as the launcher does, and hands out forges: one is built, tests get copies."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from tests.git.forge import Forge, build_bare_forge, build_forge, copy_forge


@pytest.fixture(scope="session")
def _standard_scene(tmp_path_factory: pytest.TempPathFactory) -> Forge:
    return build_forge(tmp_path_factory.mktemp("scene") / "forge")


@pytest.fixture(scope="session")
def _bare_scene(tmp_path_factory: pytest.TempPathFactory) -> Forge:
    return build_bare_forge(tmp_path_factory.mktemp("scene") / "bare-forge")


@pytest.fixture
def forge(_standard_scene: Forge, tmp_path: Path) -> Forge:
    """The standard scene: four topics on v0.6.0, upstream past v0.7.0."""
    return copy_forge(_standard_scene, tmp_path / "forge")


@pytest.fixture
def bare_forge(_bare_scene: Forge, tmp_path: Path) -> Forge:
    """A fork on v0.6.0 without topics, upstream still there: for scenes of a test's own."""
    return copy_forge(_bare_scene, tmp_path / "forge")
