"""The Portfile, evaluated by Tcl: what both subports come to, and that each broken rule is caught."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from portfile.agreement import NO_CHECKSUMS, Sources, disagreements
from portfile.checklist import ONLY_A_MAC
from portfile.checksums import Checksums, checksums_of
from portfile.evaluation import evaluate
from portfile.lint import lint
from portfile.port_table import PLATFORMS, SUBPORTS, Case, evaluate_all
from portfile.portfile import read_block, write_block
from portfile.project import read_project
from portfile.versions import parse_version
from tests.packaging.conftest import ROOT

TREE = ROOT / "packaging" / "macports"
PORTFILE = TREE / "llm" / "mlxcel" / "Portfile"
PROJECT = read_project((ROOT / "pyproject.toml").read_text())

# What MacPorts has of our run dependencies, and the version, where it was seen (August 2026).
IN_MACPORTS = {
    "httpx": "", "huggingface_hub": "1.6.0", "mlx": "0.31.2", "mlx-lm": "0.31.3", "msgspec": "0.21.1", "numpy": "",
    "packaging": "26.3", "prometheus_client": "0.22.0", "rich": "", "starlette": "1.6.0", "transformers": "5.3.0",
    "typer": "0.27.1", "uvicorn": "0.52.3", "uvloop": "0.22.1",
}  # fmt: skip
IN_OUR_TREE = {"httptools", "llguidance"}
DONE_WITHOUT = {"tomli"}
"""Python from 3.11 on has it built in."""


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return evaluate_all(PORTFILE)


def test_both_subports_are_clean_on_every_platform_and_darwin_22_is_a_known_failure(cases: list[Case]) -> None:
    assert len(cases) == len(SUBPORTS) * len(PLATFORMS)
    for case in cases:
        told = case.told
        assert case.faults == []
        assert told.text("name") == "mlxcel"
        assert told.text("known_fail") == ("yes" if case.os_major == 22 else "no")
        assert told.text("supported_archs") == "noarch"
        assert told.phases == ["post-build", "post-destroot", "post-activate", "pre-deactivate"]
        assert told.users == [["mlxcel", "group=mlxcel", "realname=mlxcel", "home=/opt/local/var/mlxcel"]]


def test_the_subports_are_the_same_service_at_their_own_versions_and_exclude_each_other(cases: list[Case]) -> None:
    by_subport = {case.subport: case.told for case in cases}
    port, devel = by_subport["mlxcel"], by_subport["mlxcel-devel"]
    assert (port.text("conflicts"), devel.text("conflicts")) == ("mlxcel-devel", "mlxcel")
    assert port.text("version") == PROJECT.version.port
    assert re.fullmatch(r"[0-9.]+\.20\d{6}", devel.text("version"))
    for told in (port, devel):
        assert told.text("master_sites").endswith(f"/releases/download/v{told.text('version')}")
        assert told.text("distname") == f"mlxcel-{told.text('version')}"
        assert told.text("startupitem.type") == "launchd"
        assert told.text("startupitem.create") == "no"
        assert told.text("startupitem.uniquename") == "org.macports.mlxcel"
        assert told.text("startupitem.custom_file").endswith("/org.macports.mlxcel.plist")
        assert told.text("test.run") == "yes"
        assert told.text("test.env").startswith("PYTHONPATH=")
        assert told.options["categories"] == ["llm", "python"]
        assert told.options["maintainers"][-1] == "openmaintainer"
    releases = ["0.7.0", "0.7.1", "0.7.0-local01", "0.7.0-local10", "0.7.0.20261019"]
    found = {
        name: [tag for tag in releases if re.fullmatch(told.text("github.livecheck.regex"), tag)]
        for name, told in by_subport.items()
    }
    assert found == {"mlxcel": ["0.7.0-local01", "0.7.0-local10"], "mlxcel-devel": ["0.7.0.20261019"]}


def test_every_run_dependency_is_a_port_that_exists_at_a_version_that_is_enough(cases: list[Case]) -> None:
    needed = {
        re.sub(r"^(huggingface|prometheus)-", r"\1_", requirement.name): requirement
        for requirement in map(Requirement, PROJECT.requirements)
        if not requirement.marker or requirement.marker.evaluate({"sys_platform": "darwin", "python_version": "3.13"})
    }
    for case in cases:
        ports = {re.sub(r"^py313-", "", port) for port in case.told.ports("depends_run")}
        assert ports == (set(needed) | IN_OUR_TREE) - DONE_WITHOUT
        assert case.told.text("python.version") == "313"
        assert "py313-hatchling" in case.told.ports("depends_build")
    for name, version in IN_MACPORTS.items():
        assert not version or needed[name].specifier.contains(version), f"MacPorts has {name} {version} only"
    for name in IN_OUR_TREE:
        assert (TREE / "python" / f"py-{name}" / "Portfile").is_file()


def test_the_ports_of_dependencies_are_clean_for_each_python() -> None:
    for portfile in sorted((TREE / "python").glob("*/Portfile")):
        stub = evaluate(portfile)
        assert [subport.partition("-")[0] for subport in stub.subports] == ["py313", "py314"]
        for subport in ("", *stub.subports):
            told = evaluate(portfile, subport=subport)
            assert lint(portfile, told) == []
        crates = told.options.get("cargo.crates", ())
        assert len(crates) % 3 == 0
        assert all(re.fullmatch("[0-9a-f]{64}", sha256) for sha256 in crates[2::3])


def test_the_tests_that_fail_on_bare_upstream_are_those_of_the_record() -> None:
    block = re.search(r"set failing_upstream \{\n(.*?)\}", PORTFILE.read_text(), re.DOTALL)
    assert block
    record = (ROOT / "UPSTREAM.md").read_text()
    for line in block[1].splitlines():
        test, issue = line.split()
        assert (ROOT / test.partition("::")[0]).is_file()
        assert issue in record
    assert bool(block[1].strip()) == ("| landed |" in record)


@pytest.mark.parametrize(
    ("fault", "find", "becomes"),
    [
        ("no modeline", "# -*- coding", "# coding"),
        ("no blank line after the modeline", "ts=4:sts=4\n\n", "ts=4:sts=4\n"),
        ("no blank line after PortSystem", "PortSystem          1.0\n\n", "PortSystem          1.0\n"),
        ("no blank line after PortGroup", "python 1.0\n\n", "python 1.0\n"),
        ("PortSystem is not 1.0", "PortSystem          1.0", "PortSystem          2.0"),
        ("port group python 1.1 is unknown", "python 1.0", "python 1.1"),
        ("trailing blanks", "revision            0\n", "revision            0 \n"),
        ("a tab", "license             Apache-2", "license\tApache-2"),
        ("/opt/local is written out", "${prefix}/var/log/${name}", "/opt/local/var/log/${name}"),
        ("adduser", "add_users           $", "adduser             $"),
        ("the version is written out", "# Written by", "distname mlxcel-{version}\n# Written by"),
        ("does not end the file", "{8})}\n}\n", "{8})}\n}"),
        ("description is missing", "description         OpenAI", "worksrcdir          OpenAI"),
        ("license is missing", "license             Apache-2\n", ""),
        ("license Apache-2.0", "Apache-2\n", "Apache-2.0\n"),
        ("maintainers is missing", "maintainers         {@OWNER} openmaintainer\n", ""),
        ("plain e-mail", "{@OWNER}", "someone@example.org"),
        ("openmaintainer stands alone", "{@OWNER} ", ""),
        ("nomaintainer stands beside", "{@OWNER} openm", "nomaintainer openm"),
        ("first category", "llm python", "python llm"),
        ("checksums lack rmd160", "rmd160  {rmd160} \\\n                    ", ""),
        ("sha256 is malformed", "sha256  {sha256}", "sha256  1234"),
        ("size is malformed", "size    {size}", "size    some"),
        ("revision is no number", "revision            0", "revision            one"),
        ("platforms darwin says nothing", "{darwin any >= 23}", "darwin"),
        ("is no dependency", "port:py${python.version}-httpx", "py${python.version}-httpx"),
        ("version has a +", "mlxcel {version} v", "mlxcel {version}+1 v"),
        ("unsafe characters", "OWNER mlxcel {version} v", "OWNER mlx/cel {version} v"),
        ("name mlxcels is not its folder's", "OWNER mlxcel {version} v", "OWNER mlxcels {version} v"),
        ("variant x has no description", "revision            0\n\n", "revision            0\nvariant x {}\n\n"),
        ("lisence is no option", "license             A", "lisence             A"),
    ],
)  # fmt: skip
def test_each_broken_rule_is_caught(tmp_path: Path, fault: str, find: str, becomes: str) -> None:
    text = PORTFILE.read_text()
    block = read_block(text, is_devel=False)
    values = {"version": block.version, **vars(block.checksums)}
    for name, value in values.items():
        find, becomes = (part.replace("{" + name + "}", str(value)) for part in (find, becomes))
    assert find in text
    broken = tmp_path / "llm" / "mlxcel" / "Portfile"
    broken.parent.mkdir(parents=True)
    broken.write_text(text.replace(find, becomes, 1))
    found = lint(broken, evaluate(broken, subport="mlxcel"))
    assert any(fault in rule for rule in found), found


def test_a_portfile_that_is_no_tcl_is_refused_with_tcls_words(tmp_path: Path) -> None:
    broken = tmp_path / "Portfile"
    broken.write_text("PortSystem 1.0\nsubport ${nothing} {}\n")
    with pytest.raises(Exception, match="nothing"):
        evaluate(broken)


def test_a_release_is_written_into_its_own_block_and_a_new_version_starts_at_revision_0(tmp_path: Path) -> None:
    text = PORTFILE.read_text().replace("revision            0", "revision            3", 1)
    sums = Checksums("1" * 40, "2" * 64, 345)
    devel = read_block(text, is_devel=True)
    new = write_block(text, owner="someone", version=parse_version("0.7.0-local02"), checksums=sums)
    block = read_block(new, is_devel=False)
    assert (block.owner, block.version, block.revision, block.checksums) == ("someone", "0.7.0-local02", 0, sums)
    other = read_block(new, is_devel=True)
    assert (other.version, other.checksums, other.owner) == (devel.version, devel.checksums, "someone")
    again = write_block(
        new.replace("revision            0", "revision            3", 1), owner="someone",
        version=parse_version("0.7.0-local02"), checksums=sums,
    )  # fmt: skip
    assert read_block(again, is_devel=False).revision == 3
    dated = write_block(new, owner="someone", version=parse_version("0.7.0.20261019"), checksums=sums)
    assert read_block(dated, is_devel=True).version == "0.7.0.20261019"
    assert read_block(dated, is_devel=False) == block
    written = tmp_path / "llm" / "mlxcel" / "Portfile"
    written.parent.mkdir(parents=True)
    written.write_text(dated)
    for subport in SUBPORTS:
        assert lint(written, evaluate(written, subport=subport)) == []


def test_the_three_checksums_are_what_other_programs_say(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"abc")
    assert checksums_of(file) == Checksums(
        rmd160="8eb208f7e05d987a9b044a8e98c6b087f15a0bfc",
        sha256="ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        size=3,
    )


SUMS = Checksums("a" * 40, "b" * 64, 9)
URLS = '[project.urls]\nSource = "https://github.com/{owner}/mlxcel"\n'


def sources(owner: str = "someone", version: str = "0.7.0+local01", **changed: object) -> Sources:
    text = write_block(PORTFILE.read_text(), owner="someone", version=parse_version("0.7.0-local01"), checksums=SUMS)
    told: dict[str, object] = {
        "project": read_project(f'[project]\nversion = "{version}"\n{URLS.format(owner=owner)}'),
        "port": read_block(text, is_devel=False),
        "devel": read_block(text, is_devel=True),
        "changelog": "## 0.7.0-local01\n",
        "program": "0.7.0+local01",
        "tag": "v0.7.0-local01",
        "distfile": SUMS,
    }
    return Sources(**{**told, **changed})  # type: ignore[arg-type]


def test_a_release_whose_five_sources_agree_is_let_through() -> None:
    assert disagreements(sources(), is_release=True) == []


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"version": "0.7.0+local02"}, "the port's version is 0.7.0-local01, pyproject's is 0.7.0-local02"),
        ({"program": "0.7.0"}, "'mlxcel version' says 0.7.0"),
        ({"tag": "v0.7.0-local02"}, "the tag is v0.7.0-local02"),
        ({"distfile": NO_CHECKSUMS}, "the distfile's checksums are not those of the Portfile"),
        ({"changelog": "## 0.7.0-local011\n"}, "CHANGELOG.md has no section 0.7.0-local01"),
        ({"owner": "OWNER"}, "project.urls still say OWNER"),
        ({"owner": "other"}, "github.setup of mlxcel names someone, pyproject's Source other"),
    ],
)
def test_each_disagreement_is_named(changed: dict[str, object], fault: str) -> None:
    found = disagreements(sources(**changed), is_release=True)  # type: ignore[arg-type]
    assert any(line.startswith(fault) for line in found), found


def test_what_only_a_mac_shows_is_named_where_the_port_is_described() -> None:
    described = (TREE / "README.md").read_text().partition("## Not proven here")[2]
    assert [row for row in ONLY_A_MAC if f"- {row}\n" not in described] == []
