"""The port made on Linux by wheel, installer and the Portfile's own phases, and the server run from it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from mlxcel.service import templates
from mlxcel.service.layout import Layout, daemon_layout
from portfile.evaluation import Evaluation, evaluate
from portfile.project import PORTFILE
from tests.packaging.conftest import ROOT, Row
from tests.support.daemon import Daemon
from tests.support.launchd import Launchd
from tests.support.service_prefix import free_port

FRAMEWORK = "Library/Frameworks/Python.framework/Versions/3.13"


class Port:
    """The port built into `destroot` for `prefix`, and then, by `activate`, in it."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.prefix = folder / "opt" / "local"
        self.destroot = folder / "destroot"
        self.work = folder / "work"
        self.layout: Layout = daemon_layout(self.prefix)
        self.work.mkdir(parents=True)
        self.evaluate("post-build")
        # Base copies the custom file first, then the python group installs the wheel and links its programs.
        plist = self.within(self.layout.plist)
        plist.parent.mkdir(parents=True)
        plist.write_bytes((self.work / plist.name).read_bytes())
        framework = self.prefix / FRAMEWORK
        subprocess.run(
            [sys.executable, "-m", "installer", "--destdir", self.destroot, "--prefix", framework, wheel],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip
        program = self.within(self.layout.bin / "mlxcel")
        program.parent.mkdir(parents=True)
        program.symlink_to(framework / "bin" / "mlxcel")
        self.owners = {Path(path): (owner, group) for path, owner, group, _ in self.evaluate("post-destroot").owners}

    def evaluate(self, phase: str) -> Evaluation:
        return evaluate(
            ROOT / PORTFILE, run=[phase], prefix=self.prefix, workpath=self.work, worksrcpath=ROOT,
            destroot=self.destroot,
        )  # fmt: skip

    def within(self, path: Path) -> Path:
        return self.destroot / path.relative_to("/")

    def activate(self) -> Evaluation:
        self.prefix.parent.mkdir(parents=True)
        self.within(self.prefix).rename(self.prefix)
        return self.evaluate("post-activate")

    @property
    def site_packages(self) -> Path:
        top = self.prefix if self.prefix.exists() else self.within(self.prefix)
        (found,) = (top / FRAMEWORK / "lib").glob("python3*/site-packages")
        return found

    def tree(self) -> list[str]:
        """Each folder and file outside the Python package, with mode, owner and group."""
        top = self.within(self.prefix)
        lines = []
        for path in sorted(top.rglob("*")):
            name = str(path.relative_to(top))
            if name.count("/") > FRAMEWORK.count("/") + 4 and name.startswith(FRAMEWORK):
                continue
            owner, group = self.owners.get(path, ("root", "wheel"))
            mode = stat.filemode(path.lstat().st_mode)
            lines.append(
                f"{mode} {f'{owner}:{group}':<13} {name}{'/' if path.is_dir() and not path.is_symlink() else ''}"
            )
        return lines


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Port:
    return Port(tmp_path_factory.mktemp("port"), wheel)


def test_the_destroot_has_the_services_files_with_their_owners_and_modes(
    port: Port, record_property: Callable[[str, object], None]
) -> None:
    tree = port.tree()
    record_property("tree", tree)
    service = {line.split(maxsplit=2)[2]: tuple(line.split()[:2]) for line in tree if FRAMEWORK not in line}
    owned = ("drwxr-xr-x", "mlxcel:mlxcel")
    assert service["var/mlxcel/"] == service["var/mlxcel/models/"] == service["var/log/mlxcel/"] == owned
    assert service["libexec/mlxcel/mlxcel-service"] == ("-rwxr-xr-x", "root:wheel")
    for name in (
        "etc/LaunchDaemons/org.macports.mlxcel/org.macports.mlxcel.plist",
        "etc/mlxcel/config.toml.sample",
        "share/mlxcel/newsyslog.conf",
    ):
        assert service[name] == ("-rw-r--r--", "root:wheel")
    assert service["bin/mlxcel"][0].startswith("l")
    assert "etc/mlxcel/config.toml" not in service, "a file that its owner makes would abort an activation"


def test_the_ports_files_are_byte_for_byte_those_that_mlxcel_service_renders(port: Port) -> None:
    layout = port.layout
    for path, text in (
        (layout.plist, templates.plist(layout)),
        (layout.wrapper, templates.wrapper(layout)),
        (layout.config.with_name("config.toml.sample"), templates.sample_config(layout)),
        (port.prefix / "share" / "mlxcel" / "newsyslog.conf", templates.newsyslog_rule(layout)),
    ):
        made = port.within(path) if port.within(path).exists() else path
        assert made.read_text() == text


def test_the_server_of_the_destroot_answers_under_launchd_and_the_evidence_tool_finds_it_right(
    port: Port, tiny_model: Path, tmp_path: Path, row: Row
) -> None:
    first = port.activate()
    layout = port.layout
    assert first.owners == [[str(layout.config), "root", "mlxcel", "0640"]]
    mine = f'{layout.config.read_text()}\nmodel = "{tiny_model}"\nport = {(number := free_port())}\n'
    layout.config.write_text(mine)
    assert port.evaluate("post-activate").owners == []
    assert layout.config.read_text() == mine, "an upgrade wrote over its owner's settings"
    # The interpreter is this machine's, so the port's packages are named to it.
    layout.variables.write_text(f"PYTHONPATH='{port.site_packages}'\nHF_HUB_OFFLINE=1\n")
    environ = {**os.environ, "PYTHONPATH": str(port.site_packages)}
    told = subprocess.run(
        [layout.bin / "mlxcel", "service", "render", "--system", "--prefix", port.prefix],
        env=environ, cwd="/", capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    assert told == layout.plist.read_text()
    with Launchd(tmp_path) as launchd:
        daemon = Daemon(launchd, layout, number)
        row("destroot, port load", "ready", daemon.load())
        daemon.answers()
        maps = Path(f"/proc/{layout.pid_file.read_text().strip()}/environ")
        assert f"PYTHONPATH={port.site_packages}" in maps.read_text().split("\0")
        done = subprocess.run(
            [ROOT / "tools" / "evidence", "run", "--server", daemon.url, "--model", tiny_model, "--matrix", "length",
             "--lengths", "1,16", "--tokens", "8", "--out", tmp_path / "evidence", "--lock-file", tmp_path / "lock"],
            capture_output=True, text=True, timeout=240, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        verdict = next(line for line in done.stdout.splitlines() if line.startswith("Holds"))
        row("destroot, tools/evidence", verdict, 0.0)
        assert daemon.boot_out() < 60
    assert (tmp_path / "evidence" / "evidence.json").is_file()


def test_the_package_in_the_destroot_is_the_wheels(port: Port, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as files:
        names = [name for name in files.namelist() if name.startswith("mlxcel/")]
        for name in names:
            assert (port.site_packages / name).read_bytes() == files.read(name)
    assert "mlxcel/service/launchd/mlxcel.plist.in" in names
