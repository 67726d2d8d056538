"""A walk through tools/recut on the standard scene, narrated: what tools/demo-recut runs.

Every command is the real tool on real repositories; the walk stops with an error if one ends unexpectedly.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import textwrap
from pathlib import Path

from tests.git.forge import (
    RECUT_TOML,
    RELEASE_EDITS,
    ZERO_SIZE_RESOLVED,
    Forge,
    Run,
    build_forge,
    resolve,
)

WIDTH = 100


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/demo-recut", description="tools/recut at work.")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave the repositories in this new folder")
    keep: Path | None = parser.parse_args().keep
    if keep:
        if keep.exists():
            parser.error(f"{keep} exists already; name a new folder")
        walk(build_forge(keep.resolve(), settings=RECUT_TOML + RELEASE_EDITS))
        tell(f"The repositories are in {keep}: cd {keep / 'work'}")
    else:
        with tempfile.TemporaryDirectory(prefix="demo-recut-") as folder:
            walk(build_forge(Path(folder).resolve() / "demo", settings=RECUT_TOML + RELEASE_EDITS))
    return 0


def walk(forge: Forge) -> None:
    """The whole story."""
    heading("The scene")
    tell(
        """
        Upstream is a small package, `tally`. Our fork sits on its release v0.6.0 and has four fixes, each on
        a branch of its own with a pull request. `local` is what we release from: the base, one commit with
        our recut.toml, and UPSTREAM.md, the record. Upstream has moved on to v0.7.0 and one commit past it.
        """
    )
    show_branches(forge)
    before = forge.origin.branches()

    heading("1. How far are we behind, and does it concern us?")
    run(forge, "drift", expect=11)

    heading("2. What would a re-cut do?")
    tell(
        """
        `plan` replays every patch in memory. It names the ids that the run will make, what becomes of each
        patch, every tag and every lease. Nothing moves.
        """
    )
    run(forge, "plan", "--onto", "v0.7.0")

    heading("3. Start, and a conflict")
    tell("The run stops where a person must decide, in a worktree of its own; our checkout is not involved.")
    run(forge, "start", expect=3)
    (worktree,) = forge.work.folder.glob(".git/recut/runs/*/worktree")
    tell("We keep upstream's new lines and put our fix between them:")
    resolve(worktree, {"tally/batch.py": ZERO_SIZE_RESOLVED}, forge.environ)
    print(textwrap.indent(ZERO_SIZE_RESOLVED, "    "))
    run(forge, "continue")

    heading("4. Publish: pin first, then move")
    tell(
        """
        First every old tip is pinned on the server by an annotated archive tag, and read back. Only then do
        the branches move, all or none, each under a lease on exactly the tip that was planned: a colleague's
        push in between is never overwritten.
        """
    )
    run(forge, "publish")
    show_branches(forge)

    heading("5. Do not take its word: verify")
    run(forge, "verify")

    heading("6. Is each fix still there? Prove it")
    tell("Take back only the fix: its test must fail. With the fix it must pass.")
    run(forge, "prove", "zero-size")
    tell(
        """
        A rebase of strip-words went through without a word, because upstream took the fix with another test.
        What is left of our topic is a test that proves nothing of ours, and `prove` says so:
        """
    )
    run(forge, "prove", "strip-words", expect=1)

    heading("7. Land a reviewed topic, and release it")
    tell("`land` carries a topic on local from now on: a fast-forward, the old tips pinned first.")
    run(forge, "land", "empty-mean")
    run(forge, "release")
    tell("The released tree holds the fix:")
    run(forge, "prove", "empty-mean", "--at", "v0.7.0-local01")

    heading("8. Upstream moves again: a second re-cut carries what has landed")
    later = {"pyproject.toml": forge.upstream.show("main", "pyproject.toml").replace("0.7.0", "0.8.0")}
    forge.release_upstream("v0.8.0", ("Release 0.8.0", later))
    released = forge.origin.branches()
    tell(
        """
        The landed patch goes along on local; the release commit and the old record are left out by name,
        because they are made anew. No conflict this time.
        """
    )
    run(forge, "plan", "--onto", "v0.8.0")
    run(forge, "start")
    run(forge, "publish")
    run(forge, "verify")
    show_branches(forge)

    heading("9. Second thoughts: undo")
    tell("The new tips are pinned too, then every branch goes back to where it was. Tags are only ever added.")
    run(forge, "undo")
    if forge.origin.branches() != released:
        raise SystemExit("a branch is not back where it was")
    show_branches(forge)

    heading("What is on the server now")
    tell(f"{len(before)} branches, as released, and a pin on every tip that one of them gave up:")
    for ref in forge.origin.refs("refs/tags/"):
        print(f"    {ref.removeprefix('refs/tags/')}")
    print()


def heading(text: str) -> None:
    print(f"\n{text}\n{'=' * len(text)}\n", flush=True)


def tell(text: str) -> None:
    print(textwrap.fill(" ".join(text.split()), WIDTH), end="\n\n", flush=True)


def run(forge: Forge, *args: str, expect: int = 0) -> Run:
    """Run the tool, show what it says, and stop the walk if it does not end as expected."""
    print(f"$ tools/recut {' '.join(args)}", flush=True)
    done = forge.recut(*args, expect=expect)
    said = f"{done.out}{done.err}".replace(str(forge.root), "~").rstrip()
    print("\n".join(f"  {line}".rstrip() for line in said.split("\n")))
    print(f"  [exit {done.code}]\n" if done.code else "", flush=True)
    return done


def show_branches(forge: Forge) -> None:
    """origin's branches: the upstream release they sit on and their own commits."""
    print("origin:")
    for ref, tip in forge.origin.branches().items():
        branch = ref.removeprefix("refs/heads/")
        forge.upstream.git("fetch", "-q", str(forge.origin.folder), tip)
        base = forge.upstream.git("merge-base", tip, "main")
        on = forge.upstream.git("describe", "--tags", "--match", "v[0-9]*", base)
        own = forge.upstream.subjects(f"{base}..{tip}")
        print(f"    {branch:18} {tip[:7]}  {' + '.join([on, *own])}")
    print(flush=True)


if __name__ == "__main__":
    sys.exit(main())
