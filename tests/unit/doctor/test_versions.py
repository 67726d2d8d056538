from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from mlxcel.doctor.finding import State
from mlxcel.doctor.versions import (
    NEWEST_TESTED,
    installed_version,
    look_at_grammars,
    look_at_package,
    look_at_python,
    look_at_versions,
    needed_of,
)

LOCK = Path(__file__).parents[3] / "requirements-dev.lock"
NEEDED = SpecifierSet(">=0.31.3")


def test_this_environment_is_one_that_mlxcel_runs_in() -> None:
    found = {finding.about: finding.state for finding in look_at_versions()}
    assert found == dict.fromkeys(("python", "mlx", "mlx-lm", "llguidance"), State.OK)


@pytest.mark.parametrize(("version", "state"), [("3.9.18", State.PROBLEM), ("3.10.0", State.OK), ("3.14.0", State.OK)])
def test_a_python_below_the_floor_is_a_problem(version: str, state: State) -> None:
    assert look_at_python(version, ">=3.10").state is state


@pytest.mark.parametrize(
    ("version", "state", "part"),
    [
        (None, State.PROBLEM, "not installed"),
        ("0.31.2", State.PROBLEM, "outside of >=0.31.3"),
        ("0.31.3", State.OK, "0.31.3"),
        ("0.32.2", State.OK, "0.32.2"),
        ("0.33.0", State.WARNING, "newer than 0.32.2"),
    ],
)
def test_a_package_is_there_new_enough_and_not_untested(version: str | None, state: State, part: str) -> None:
    found = look_at_package("mlx-lm", version, needed=NEEDED, newest="0.32.2")
    assert found.state is state and part in found.told
    assert bool(found.next_step) is (state is not State.OK)


@pytest.mark.parametrize(
    ("version", "state"),
    [(None, State.WARNING), ("0.9", State.PROBLEM), ("1.9.1", State.OK), ("99", State.WARNING)],
)
def test_without_llguidance_a_server_starts_and_refuses_schemas(version: str | None, state: State) -> None:
    found = look_at_grammars(version, needed=SpecifierSet(">=1.9"), newest="1.9.1")
    assert found.state is state
    assert version is not None or "mlxcel[grammar]" in found.next_step


def test_what_is_not_installed_has_no_version() -> None:
    assert installed_version("no-such-package-of-anyones") is None


def test_what_is_needed_is_what_the_package_says() -> None:
    assert needed_of("mlx-lm").contains("0.31.3") and not needed_of("mlx-lm").contains("0.31.2")
    assert needed_of("llguidance").contains("1.9") and not needed_of("llguidance").contains("1.8")


@pytest.mark.parametrize("name", sorted(NEWEST_TESTED))
def test_the_newest_tested_is_the_newest_of_the_lock_file(name: str) -> None:
    locked = re.findall(rf"^{name}==([\d.]+)", LOCK.read_text(), re.MULTILINE)
    assert max(map(Version, locked)) == Version(NEWEST_TESTED[name])
