"""A run that is killed at any step of its journal is finished by `continue`, or taken back.

Every fifth moment is tried here, and every one by `make soak`, which sets CRASH_EVERY=1.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.git.forge import ZERO_SIZE, ZERO_SIZE_RESOLVED, Checkout, Forge, copy_forge, resolve
from tests.git.forked import Ended, run_forked

CLEAN = ("One more word", {"tally/words.py": 'def count(text):\n    return len(text.split("\\t"))\n'})
EVERY = int(os.environ.get("CRASH_EVERY", "5"))
"""Five is no multiple of two: the moments before an entry and those after one are both among them."""


class Scene:
    """A forge whose repositories can be put back to how they were, at the same place."""

    def __init__(self, forge: Forge) -> None:
        self.forge = forge
        self._saved = forge.root.with_name("saved")

    def recut(self, *args: str, kill: int = -1) -> Ended:
        return run_forked(self.forge.work.folder, self.forge.environ, *args, kill=kill)

    def must(self, *args: str, code: int = 0) -> Ended:
        ended = self.recut(*args)
        assert ended.code == code, ended.out
        return ended

    def resolve(self) -> None:
        (worktree,) = (self.forge.work.folder / ".git/recut/runs").glob("*/worktree")
        resolve(worktree, {"tally/batch.py": ZERO_SIZE_RESOLVED}, self.forge.environ)

    def save(self) -> None:
        """Remember origin and the clone as they are now, packed small: they are put back very often."""
        for repository in (self.forge.origin, self.forge.work):
            repository.git("repack", "-a", "-d", "-q")
            saved = self._saved / repository.folder.name
            shutil.rmtree(saved, ignore_errors=True)
            shutil.copytree(repository.folder, saved, symlinks=True)

    def restore(self) -> None:
        for repository in (self.forge.origin, self.forge.work):
            shutil.rmtree(repository.folder)
            shutil.copytree(self._saved / repository.folder.name, repository.folder, symlinks=True)

    def branches(self) -> tuple[dict[str, str], dict[str, str]]:
        return self.forge.origin.branches(), self.forge.work.branches()

    def refs(self) -> tuple[dict[str, str], dict[str, str]]:
        """Everything both sides show: branches and tags, without the tool's own refs."""
        mine = self.forge.work
        return self.forge.origin.refs(), mine.refs("refs/heads/", "refs/tags/", "refs/remotes/")

    def tags(self) -> dict[str, str]:
        return self.forge.origin.tags()

    def checkout(self) -> Checkout:
        return self.forge.work.checkout()

    def finish(self) -> None:
        """`continue`; a kill after the last step leaves nothing to go on with."""
        ended = self.recut("continue")
        assert ended.code == 0 or "no run is in progress" in ended.out, ended.out

    def moments(self, *args: str, code: int = 0) -> list[int]:
        """The moments at which the command can be killed, found by one undisturbed run."""
        ended = self.must(*args, code=code)
        assert ended.moments.count("a") > 1
        return list(range(0, len(ended.moments), EVERY))

    def entries(self, *args: str) -> list[int]:
        """Those just after an entry of the journal, for runs whose steps other loops take apart."""
        return [at for at, kind in enumerate(self.must(*args).moments) if kind == "a"][::EVERY]

    def killed(self, *args: str, at: int) -> None:
        self.restore()
        ended = self.recut(*args, kill=at)
        assert ended.was_killed, f"not killed at moment {at}: {ended.out}"


@pytest.fixture
def scene(bare_forge: Forge) -> Iterator[Scene]:
    """Two topics, one of which conflicts; a re-cut onto v0.7.0 is planned."""
    forge = bare_forge
    forge.add_topic("tabs", CLEAN)
    forge.add_topic("zero-size", ("A batch size of zero means one", ZERO_SIZE))
    forge.record_topics()
    starts = (
        "def split(items, size):\n"
        '    """Cut `items` into lists of at most `size`."""\n'
        "    starts = range(0, len(items), size)\n"
        "    return [items[start : start + size] for start in starts]\n"
    )
    forge.release_upstream("v0.7.0", ("Name the starts of a batch", {"tally/batch.py": starts}))
    for repository in (forge.origin, forge.work):
        shutil.rmtree(repository.folder / ("hooks" if repository is forge.origin else ".git/hooks"))
    made = Scene(forge)
    made.must("plan", "--onto", "v0.7.0")
    yield made


def test_start_killed_anywhere_goes_on_or_is_aborted(scene: Scene) -> None:
    before, checkout = scene.refs(), scene.checkout()
    scene.save()
    moments = scene.moments("start", code=3)
    scene.resolve()
    scene.must("continue")
    undisturbed = scene.must("log", "--json").out.split('"moves"')[1].split('"entries"')[0]
    for moment in moments:
        scene.killed("start", at=moment)
        scene.must("continue", code=3)
        scene.resolve()
        scene.must("continue")
        moves = scene.must("log", "--json").out.split('"moves"')[1].split('"entries"')[0]
        assert moves == undisturbed
        scene.killed("start", at=moment)
        scene.must("abort")
        assert scene.refs() == before
        assert scene.forge.work.refs("refs/recut/") == {}
        assert scene.checkout() == checkout


def test_continue_after_a_conflict_killed_anywhere_goes_on_or_is_aborted(scene: Scene) -> None:
    before, checkout = scene.refs(), scene.checkout()
    scene.must("start", code=3)
    scene.resolve()
    scene.save()
    moments = scene.moments("continue")
    scene.must("publish")
    published = scene.refs()
    for moment in moments:
        scene.killed("continue", at=moment)
        scene.must("continue")
        scene.must("publish")
        assert scene.refs() == published
        scene.killed("continue", at=moment)
        scene.must("abort")
        assert scene.refs() == before
        assert scene.checkout() == checkout


def test_publish_killed_anywhere_goes_on(scene: Scene) -> None:
    checkout = scene.checkout()
    _ready(scene)
    moments = scene.moments("publish")
    published = scene.refs()
    for moment in moments:
        scene.killed("publish", at=moment)
        scene.finish()
        assert scene.refs() == published
        assert scene.checkout() == checkout


def test_publish_killed_anywhere_is_taken_back(scene: Scene) -> None:
    before, checkout = scene.branches(), scene.checkout()
    _ready(scene)
    for moment in scene.moments("publish"):
        scene.killed("publish", at=moment)
        pinned = scene.tags()
        if scene.recut("abort").code:
            scene.must("undo")
        assert scene.branches() == before
        assert scene.tags().items() >= pinned.items()
        assert scene.checkout() == checkout
        scene.must("continue", code=5)


def test_land_and_undo_killed_anywhere_go_on(scene: Scene) -> None:
    _ready(scene)
    scene.must("publish")
    published = scene.branches()
    scene.save()
    for command, end in ((("land", "tabs"), "landed"), (("undo",), "undone")):
        moments = scene.entries(*command)
        after = scene.refs()
        for moment in moments:
            scene.killed(*command, at=moment)
            scene.finish()
            assert scene.refs() == after, f"{command} killed at {moment}"
        if end == "landed":
            scene.save()
    assert scene.branches() == published


def test_a_second_run_meanwhile_is_locked_out(scene: Scene, tmp_path: Path) -> None:
    copy = copy_forge(scene.forge, tmp_path / "copy")
    lock = copy.work.folder / ".git/recut/lock"
    import fcntl

    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        before = copy.work.refs()
        for command in (("start",), ("continue",), ("abort",), ("publish",), ("undo",), ("land", "tabs")):
            assert "another tools/recut is at work" in copy.recut(*command, expect=8).err
        assert copy.work.refs() == before
    copy.recut("abort", expect=5)


def _ready(scene: Scene) -> None:
    scene.must("start", code=3)
    scene.resolve()
    scene.must("continue")
    scene.save()
