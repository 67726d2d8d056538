"""The commands of tools/port and its process edge: arguments in, an exit code out."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Optional

import typer

from command.edge import Tool, print_json
from command.errors import Outcome, StateError, usage
from command.paper import Paper
from command.text_file import read_text_file

NOTHING_WRITTEN = "Nothing was written."
TOOL = Tool(
    name="tools/port",
    error_schema="port.error/1",
    unchanged=NOTHING_WRITTEN,
    on_interrupt=NOTHING_WRITTEN,
    on_bug="Unknown: this is a bug. 'git status' shows what was written.",
)
Json = Annotated[bool, typer.Option("--json", help="Answer as JSON, for scripts.")]
Root = Annotated[Path, typer.Option("--root", hidden=True, help="The checkout.")]


def run(args: Sequence[str], *, folder: Path) -> int:
    """Run one command; the exit code (command.errors.EXIT_CODES)."""

    def command() -> object:
        return build_app()(list(args) or ["--help"], prog_name=TOOL.name, standalone_mode=False, obj=folder)

    return TOOL.run(command, as_json="--json" in args)


def build_app() -> typer.Typer:
    app = typer.Typer(
        name="port",
        help="Keep the MacPorts port in step with the project.",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        no_args_is_help=True,
    )
    for name, command in (
        ("version", _version), ("sdist", _sdist), ("checksums", _checksums), ("check", _check), ("render", _render),
        ("vercmp", _vercmp), ("crates", _crates), ("release", _release),
    ):  # fmt: skip
        app.command(name)(command)
    return app


def _version(
    context: typer.Context,
    version: Annotated[Optional[str], typer.Argument(help="In any spelling; pyproject's if unset.")] = None,
    as_json: Json = False,
) -> None:
    """Print a version's three spellings and its distfile's name."""
    from .project import find_root, read_project
    from .versions import parse_version

    if version is None:
        parsed = read_project(read_text_file(find_root(context.obj) / "pyproject.toml")).version
    else:
        parsed = parse_version(version)
    told = {"tag": parsed.tag, "port": parsed.port, "wheel": parsed.wheel, "distfile": parsed.sdist}
    if as_json:
        print_json({"schema": "port.version/1", "outcome": "done", **told})
    else:
        Paper().table(("spelling", "version"), list(told.items()))


def _sdist(
    context: typer.Context,
    commit: Annotated[str, typer.Argument(help="What to build from.")] = "HEAD",
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the file.")] = Path("dist"),
    as_json: Json = False,
) -> None:
    """Build a commit's sdist twice, compare the bytes, and print the checksums."""
    from .project import find_root, read_project
    from .repository import git
    from .sdist import build_distfile

    root = find_root(context.obj)
    text = git(root, "show", f"{commit}:pyproject.toml")
    version = read_project(text).version
    made = build_distfile(root, commit, version, (context.obj / out).resolve(), built_as=version)
    if as_json:
        fields = {"file": str(made.file), "commit": made.commit, **dataclasses.asdict(made.checksums)}
        print_json({"schema": "port.sdist/1", "outcome": "done", **fields})
        return
    paper = Paper()
    paper.line(f"{made.file} of {made.commit[:12]}, twice the same bytes")
    paper.line(str(made.checksums))


def _checksums(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="The distfile, as `sdist` wrote it.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the Portfile instead of writing it.")] = False,
) -> None:
    """Write a distfile's version and checksums, and the project's owner, into the Portfile."""
    from patchstack.journal import write_file

    from .checksums import checksums_of
    from .portfile import write_block
    from .project import PORTFILE, find_root, read_project
    from .sdist import check_distfile
    from .versions import parse_version

    root = find_root(context.obj)
    file = context.obj / file
    if not file.is_file() or not file.name.startswith("mlxcel-") or not file.name.endswith(".tar.gz"):
        raise usage(f"{file} is no mlxcel-VERSION.tar.gz", "tools/port sdist")
    version = parse_version(file.name.removeprefix("mlxcel-").removesuffix(".tar.gz"))
    check_distfile(file, version)
    owner = read_project(read_text_file(root / "pyproject.toml")).owner
    old = read_text_file(root / PORTFILE)
    new = write_block(old, owner=owner, version=version, checksums=checksums_of(file))
    if dry_run:
        sys.stdout.write(new)
        return
    write_file(root / PORTFILE, new.encode())
    Paper().line(f"{PORTFILE}: {version.port}" if new != old else f"{PORTFILE} says so already")


def _check(
    context: typer.Context,
    tag: Annotated[Optional[str], typer.Option(help="The tag that is to be, or is, on the commit.")] = None,
    distfile: Annotated[
        Optional[Path], typer.Option(help="The distfile; its checksums must be the Portfile's.")
    ] = None,
    release: Annotated[bool, typer.Option("--release", help="Refuse what no release may have.")] = False,
    as_json: Json = False,
) -> Outcome:
    """Check that tag, wheel, port, CHANGELOG and `mlxcel version` agree, and the rules of `port lint`."""
    from .agreement import Sources, disagreements
    from .checksums import checksums_of
    from .port_table import evaluate_all
    from .portfile import read_block
    from .project import PORTFILE, find_root, read_project

    root = find_root(context.obj)
    text = read_text_file(root / PORTFILE)
    told = Sources(
        project=read_project(read_text_file(root / "pyproject.toml")),
        port=read_block(text, is_devel=False),
        devel=read_block(text, is_devel=True),
        changelog=read_text_file(root / "CHANGELOG.md"),
        program=_program_version(root),
        tag=tag,
        distfile=checksums_of(context.obj / distfile) if distfile else None,
    )
    faults = disagreements(told, is_release=release)
    linted = {f"{case.subport}: {fault}" for case in evaluate_all(root / PORTFILE) for fault in case.faults}
    faults += sorted(linted)
    outcome = Outcome.CHECK_FAILED if faults else Outcome.DONE
    if as_json:
        print_json({"schema": "port.check/1", "outcome": outcome.value, "faults": faults})
    else:
        paper = Paper()
        for fault in faults:
            paper.line(fault)
        if not faults:
            paper.line(f"{told.project.version.port}: all agree, and the Portfile is clean")
    return outcome


def _render(context: typer.Context, as_json: Json = False) -> None:
    """Show what the Portfile comes to: both subports on each platform."""
    from .port_table import COLUMNS, evaluate_all
    from .project import PORTFILE, find_root

    cases = evaluate_all(find_root(context.obj) / PORTFILE)
    if as_json:
        rows = [
            {"subport": c.subport, "os_major": c.os_major, "arch": c.arch, "faults": c.faults, **c.told.options}
            for c in cases
        ]
        print_json({"schema": "port.render/1", "outcome": "done", "cases": rows})
        return
    paper = Paper()
    paper.table(COLUMNS, [case.cells for case in cases])
    for case in cases[:: len(cases) // 2]:
        paper.rows(f"{case.subport} needs", ("to run",), [(port,) for port in case.told.ports("depends_run")])


def _vercmp(first: str, second: str) -> None:
    """Print how MacPorts orders two versions: <, = or >."""
    from .versions import vercmp

    Paper().line(f"{first} {'=><'[vercmp(first, second)]} {second}")


def _crates(context: typer.Context, lock: Annotated[Path, typer.Argument(metavar="Cargo.lock")]) -> None:
    """Print a Cargo.lock as the `cargo.crates` of a port."""
    from .crates import crates_of, render_crates

    sys.stdout.write(render_crates(crates_of(read_text_file(context.obj / lock))))


def _release(
    context: typer.Context,
    devel: Annotated[bool, typer.Option("--devel", help="Upstream at its date, without local patches.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Build and show; commit and tag nothing.")] = False,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the distfile.")] = Path("dist"),
) -> None:
    """Release: distfile, Portfile, agreement, tag by tools/recut, and what is left for a person to do."""
    from .checklist import ONLY_A_MAC
    from .project import PORTFILE, find_root
    from .release import commit_portfile, plan_release, tag_release

    root, folder, paper = find_root(context.obj), (context.obj / out).resolve(), Paper()
    planned = plan_release(root, folder, devel=devel)
    tag = planned.version.tag
    paper.line(f"{tag}: {planned.distfile.file}, twice the same bytes")
    paper.line(str(planned.distfile.checksums))
    if dry_run:
        paper.line(f"would commit {PORTFILE} to local" if not planned.is_ported else "local has the Portfile already")
        paper.line(f"would tag {tag} with tools/recut release")
        return
    if not planned.is_ported:
        paper.line(f"{PORTFILE}: committed to local as {commit_portfile(root, planned)[:12]}")
    made = tag_release(root, planned, folder, devel=devel)
    paper.line(f"tagged {tag} at {made.commit[:12]}; its distfile is the one that the Portfile knows")
    paper.rows("Now attach it to the release", ("command",), [(f"gh release create {tag} {made.file}",)])
    paper.rows("Only a Mac shows", ("to tick off",), [(row,) for row in ONLY_A_MAC])


def _program_version(root: Path) -> str:
    command = [sys.executable, "-m", "mlxcel", "version", "--json"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise StateError(Outcome.REFERENCE_FAILED, f"'mlxcel version' failed: {done.stderr.strip()}")
    return str(json.loads(done.stdout)["mlxcel"])
