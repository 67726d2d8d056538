"""From a release that tools/recut plans to a tag whose Portfile holds its own distfile's checksums.

The order makes it possible: recut says which commit it would tag; the distfile of that commit is built, which leaves
packaging/ out; the Portfile with its checksums is committed to `local`; recut then tags a commit whose distfile is
the same. Each step can be repeated: what is done already is left alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from command.errors import Outcome, StateError, refused
from command.text_file import read_text_file
from patchstack.git import open_git
from patchstack.remote import push, push_url
from patchstack.settings import FILE as RECUT_FILE
from patchstack.settings import parse_settings
from patchstack.stack import RELEASE_TRAILER, Lease, Sha, branch_ref
from patchstack.worktree import scratch_worktree

from .agreement import Sources, disagreements
from .portfile import read_block, write_block
from .project import PORTFILE, UNKNOWN_OWNER, Project, read_project
from .repository import git
from .sdist import Distfile, build_distfile
from .versions import Version, parse_version

RECUT = Path(__file__).resolve().parents[1] / "recut"


@dataclass(frozen=True)
class Planned:
    """A release before its tag: what recut would tag, its distfile, and the Portfile that goes with it."""

    version: Version
    commit: str
    distfile: Distfile
    portfile: str
    is_ported: bool
    """Whether local has that Portfile already."""


def plan_release(root: Path, out: Path, *, devel: bool) -> Planned:
    """Errors: what recut refuses; refused for a release whose sources would not agree, with every reason."""
    plan = json.loads(_recut(root, devel, "--dry-run", "--json"))
    version, commit = parse_version(plan["release_tag"]), str(plan["release_commit"])
    project = read_project(git(root, "show", f"{commit}:pyproject.toml"))
    distfile = build_distfile(root, commit, version, out, built_as=project.version)
    local = _fetch_local(root)
    old = git(root, "show", f"{local}:{PORTFILE}")
    owner = read_project(git(root, "show", f"{local}:pyproject.toml")).owner
    new = write_block(old, owner=owner, version=version, checksums=distfile.checksums)
    reasons = _reasons(root, commit, project, version, new, distfile)
    if reasons:
        raise refused(reasons, state=f"Nothing was tagged or committed; the distfile is {distfile.file}.")
    return Planned(version, commit, distfile, new, is_ported=new == old)


def commit_portfile(root: Path, planned: Planned) -> str:
    """Commit the Portfile to the fork's local and push it, as a commit that the next re-cut drops; its id.

    Errors: StateError where local has moved meanwhile.
    """
    settings = parse_settings(read_text_file(root / RECUT_FILE))
    local = _fetch_local(root)
    with tempfile.TemporaryDirectory(prefix="mlxcel-port-") as scratch:
        repository, folder = open_git(root, os.environ), Path(scratch).resolve() / "tree"
        with scratch_worktree(repository, folder, Sha(local)) as tree:
            (tree / PORTFILE).write_text(planned.portfile, encoding="utf-8")
            tag = planned.version.tag
            message = f"Port {tag}\n\nThe checksums of {planned.distfile.file.name}.\n\n{RELEASE_TRAILER}: {tag}\n"
            git(tree, "commit", "--quiet", "--message", message, str(PORTFILE))
            made = Sha(git(tree, "rev-parse", "HEAD").strip())
        ref = branch_ref(settings.fork.local)
        url = push_url(repository, settings.fork.remote)
        pushed = push(repository, url, [(made, ref)], [Lease(ref=ref, expect=Sha(local))])
    if pushed.code:
        raise StateError(
            Outcome.REMOTE_MOVED if pushed.rejected else Outcome.GIT_FAILED,
            [f"the Portfile did not reach {ref}", *(row.said for row in pushed.rejected), *pushed.err.splitlines()],
            state="Nothing was tagged, and no branch has moved.",
            next_steps=["tools/port release   # again: it takes in what was pushed meanwhile"],
        )
    return made


def tag_release(root: Path, planned: Planned, out: Path, *, devel: bool) -> Distfile:
    """Let recut tag it, then build the tag's distfile once more: it must be the one that the Portfile knows.

    Errors: what recut refuses; refused where the bytes differ.
    """
    told = _recut(root, devel)
    tag = planned.version.tag
    commit = git(root, "rev-parse", f"{tag}^{{commit}}").strip()
    project = read_project(git(root, "show", f"{commit}:pyproject.toml"))
    made = build_distfile(root, commit, planned.version, out, built_as=project.version)
    if made.checksums != planned.distfile.checksums:
        raise refused(f"the distfile of {tag} is not the one that the Portfile knows", state=told)
    return made


def _reasons(
    root: Path, commit: str, project: Project, version: Version, portfile: str, distfile: Distfile
) -> list[str]:
    if version.is_devel:
        return [f"project.urls still say {UNKNOWN_OWNER}"] if project.owner == UNKNOWN_OWNER else []
    told = Sources(
        project=project,
        port=read_block(portfile, is_devel=False),
        devel=read_block(portfile, is_devel=True),
        changelog=git(root, "show", f"{commit}:CHANGELOG.md"),
        program=distfile.metadata_version,
        tag=version.tag,
        distfile=distfile.checksums,
    )
    return disagreements(told, is_release=True)


def _fetch_local(root: Path) -> str:
    settings = parse_settings(read_text_file(root / RECUT_FILE))
    git(root, "fetch", "--quiet", settings.fork.remote, f"refs/heads/{settings.fork.local}")
    return git(root, "rev-parse", "FETCH_HEAD").strip()


def _recut(root: Path, devel: bool, *arguments: str) -> str:
    command = [str(RECUT), "release", *(["--devel"] if devel else []), *arguments]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        try:
            told = json.loads(done.stdout)
        except ValueError:
            raise StateError(Outcome.REFUSED, f"'{' '.join(command[1:])}' failed", state=done.stderr) from None
        raise StateError(Outcome.REFUSED, told["reasons"], state=told["state"], next_steps=told["next"])
    return done.stdout
