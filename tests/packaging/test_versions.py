"""One version, three spellings, and MacPorts' order of them."""

from __future__ import annotations

import itertools

import pytest
from packaging.version import Version as PythonVersion

from command.errors import ToolError
from portfile.versions import parse_version, vercmp

ORDERED = [
    "0.7.0", "0.7.0-local01", "0.7.0-local01.20261019", "0.7.0-local02", "0.7.0-local10", "0.7.0.20261019", "0.7.1",
    "0.8.0", "20261019",
]  # fmt: skip


@pytest.mark.parametrize(("sooner", "later"), list(itertools.combinations(ORDERED, 2)))
def test_versions_are_ordered_as_macports_measured_them(sooner: str, later: str) -> None:
    assert (vercmp(sooner, later), vercmp(later, sooner)) == (-1, 1)


@pytest.mark.parametrize(
    ("first", "second", "order"),
    [
        ("0.7.0-local9", "0.7.0-local10", -1),
        ("0.7.0-local09", "0.7.0-local9", 0),
        ("0.7.0-local99", "0.7.0-local100", -1),
        ("0.7.0-local99", "0.7.1-local01", -1),
        ("0.7.0.20261019", "0.7.0-local99", 1),
        ("0.7.0.1", "0.7.0-local01", 1),
        ("0.7.0-rc1", "0.7.0", 1),
        ("0.7.0-local01", "0.7.0-rc1", -1),
        ("0.7.0p1", "0.7.0-local01", 1),
        ("0.7.0-local01", "0.7.0_local01", 0),
        ("0.7.0-local01", "0.7.0local01", 0),
        ("0.7.0-local01", "0.7.0+local01", 0),
        ("0.7.0-local01", "0.7.0.local01", 0),
        ("v0.7.0-local01", "0.7.0", -1),
        ("0.10.0-local01", "0.9.0-local01", 1),
        ("0.7.0-Local01", "0.7.0-local01", -1),
        ("9" * 5000, "8" * 5000, 1),
        ("1" + "0" * 5000, "9" * 5000, 1),
        ("000", "0", 0),
        ("\u0663", "3", -1),  # C's isdigit knows ASCII only
    ],
)
def test_each_measured_pair(first: str, second: str, order: int) -> None:
    assert (vercmp(first, second), vercmp(second, first)) == (order, -order)


@pytest.mark.parametrize(
    ("text", "tag", "port", "wheel"),
    [
        ("0.1.0", "v0.1.0", "0.1.0", "0.1.0"),
        ("v0.7.0-local01", "v0.7.0-local01", "0.7.0-local01", "0.7.0+local01"),
        ("0.7.0+local12", "v0.7.0-local12", "0.7.0-local12", "0.7.0+local12"),
        ("v0.7.0.20261019", "v0.7.0.20261019", "0.7.0.20261019", "0.7.0.20261019"),
    ],
)
def test_any_spelling_gives_all_three(text: str, tag: str, port: str, wheel: str) -> None:
    version = parse_version(text)
    assert (version.tag, version.port, version.wheel) == (tag, port, wheel)
    assert str(PythonVersion(version.wheel)) == wheel


def test_python_orders_the_wheels_as_macports_orders_the_ports() -> None:
    ports = ["0.7.0", "0.7.0-local01", "0.7.0-local02", "0.7.0-local10", "0.7.1"]
    wheels = [PythonVersion(parse_version(port).wheel) for port in ports]
    assert wheels == sorted(wheels)


@pytest.mark.parametrize(
    "text",
    [
        "0.7.0-rc1",
        "0.7.0-local1",
        "0.7.0-local01.20261019",
        "0.7.0p1",
        "",
        "local01",
        "0.7",
        "0.7.0.1",
        "0.7.0.20261399",
        "0.7.0.00010101",
        "\u0660.\u0667.\u0660",
        "0.7.0-local\u0660\u0661",
        "0.7.0\n",
    ],
)
def test_a_version_that_would_sort_wrongly_is_refused(text: str) -> None:
    with pytest.raises(ToolError, match="no version of this port"):
        parse_version(text)
