"""The configuration, the checkout and other branches of the user neither matter nor change."""

from __future__ import annotations

from pathlib import Path

from tests.git.forge import ZERO_SIZE_RESOLVED, Forge, copy_forge, resolve
from tests.git.forked import must


def _whole_recut(forge: Forge) -> dict[str, str]:
    """plan, start, a conflict resolved, publish; origin's refs afterwards. Each command a fresh process."""
    forge.recut("plan", "--onto", "v0.7.0")
    forge.recut("start", expect=3)
    (worktree,) = (forge.work.folder / ".git/recut/runs").glob("*/worktree")
    resolve(worktree, {"tally/batch.py": ZERO_SIZE_RESOLVED}, forge.environ)
    forge.recut("continue")
    forge.recut("publish")
    return forge.origin.refs()


def test_a_hostile_configuration_changes_nothing(forge: Forge, tmp_path: Path) -> None:
    hostile = copy_forge(forge, tmp_path / "hostile")
    hostile.make_configuration_hostile()
    # A server has its own configuration; here it would read the maintainer's.
    hostile.origin.git("config", "core.hooksPath", "/dev/null")
    hostile.work.git("branch", "-q", "backup", "topic/empty-mean")
    mine, checkout = hostile.work.branches(), hostile.work.checkout()
    assert _whole_recut(hostile) == _whole_recut(forge)
    assert hostile.work.checkout() == checkout
    after = hostile.work.branches()
    for branch in ("refs/heads/backup", "refs/heads/desk", "refs/heads/topic/clamp-low"):
        assert after[branch] == mine[branch]
    out = hostile.recut("status").out
    assert "\x1b" not in out and "v0.7.0" in out
    hostile.recut("land", "empty-mean")
    hostile.recut("undo")
    hostile.recut("undo")
    assert hostile.work.branches() == mine
    assert hostile.work.checkout() == checkout


def test_a_dirty_checkout_stays_as_it_is(forge: Forge) -> None:
    folder = forge.work.folder
    (folder / "tally/stats.py").write_text("half a change\n")
    (folder / "tally/batch.py").write_text("staged\n")
    (folder / "scribble.txt").write_text("untracked\n")
    # Attributes of the checkout must not reach the merges.
    (folder / ".gitattributes").write_text("*.py merge=union\n")
    forge.work.git("add", "tally/batch.py")
    checkout = forge.work.checkout()
    must(forge, "plan", "--onto", "v0.7.0")
    must(forge, "start", code=3)
    assert forge.work.checkout() == checkout
    (worktree,) = (folder / ".git/recut/runs").glob("*/worktree")
    resolve(worktree, {"tally/batch.py": ZERO_SIZE_RESOLVED}, forge.environ)
    must(forge, "continue")
    must(forge, "publish")
    must(forge, "undo")
    assert forge.work.checkout() == checkout


def test_a_topic_checked_out_elsewhere_is_left_alone_with_the_command_that_moves_it(forge: Forge) -> None:
    other = forge.root / "other"
    forge.work.git("worktree", "add", "-q", str(other), "topic/empty-mean")
    old = forge.work.sha("topic/empty-mean")
    must(forge, "plan", "--onto", "v0.7.0", "--topic", "empty-mean")
    must(forge, "start")
    out = must(forge, "publish").out
    new = forge.origin.sha("topic/empty-mean")
    assert new != old == forge.work.sha("topic/empty-mean")
    assert f"git -C {other} reset --keep {new}" in out
    assert forge.work.git("-C", str(other), "status", "--porcelain") == ""
    forge.work.git("-C", str(other), "reset", "-q", "--keep", new)
    assert forge.work.sha("topic/empty-mean") == new


def test_it_works_from_any_folder_and_without_recut_toml_in_the_checkout(forge: Forge) -> None:
    forge.work.git("checkout", "-q", "topic/empty-mean")
    assert not (forge.work.folder / "recut.toml").exists()
    before = forge.work.checkout()
    status = forge.recut("status", "--json", at=forge.work.folder / "tally").json
    assert status["schema"] == "recut.status/1" and len(status["topics"]) == 4
    assert forge.work.checkout() == before
    outside = forge.recut("status", at=forge.home, expect=2)
    assert "not inside a git repository" in outside.err


def test_a_poisoned_rerere_cache_is_named_and_not_believed(forge: Forge) -> None:
    forge.configure("rerere.enabled", "true")
    must(forge, "plan", "--onto", "v0.7.0")
    must(forge, "start", code=3)
    (worktree,) = (forge.work.folder / ".git/recut/runs").glob("*/worktree")
    loses_the_fix = ZERO_SIZE_RESOLVED.replace("    size = max(size, 1)\n", "")
    resolve(worktree, {"tally/batch.py": loses_the_fix + "# resolved badly\n"}, forge.environ)
    forge.work.git("-c", "rerere.enabled=true", "-C", str(worktree), "rerere")
    must(forge, "abort")
    before = forge.origin.refs()
    said = must(forge, "start", code=3).out
    assert "filled in from rerere's memory, so read it: tally/batch.py" in said
    assert "not resolved yet: tally/batch.py" in must(forge, "continue", code=3).out
    assert forge.origin.refs() == before
    (worktree,) = (forge.work.folder / ".git/recut/runs").glob("*/worktree")
    forge.work.git("-C", str(worktree), "add", "tally/batch.py")
    out = must(forge, "continue").out
    (doubt,) = [line for line in out.split("\n") if "resolved with rerere's memory" in line]
    assert "tools/recut prove " in doubt and "topic/zero-size" in doubt
    proof = must(forge, *doubt.split("#")[0].split()[1:], code=1).out
    assert "tests/test_zero_size.py" in proof


def test_deleting_the_worktree_and_gc_lose_nothing(forge: Forge) -> None:
    must(forge, "plan", "--onto", "v0.7.0")
    must(forge, "start", code=3)
    (worktree,) = (forge.work.folder / ".git/recut/runs").glob("*/worktree")
    forge.work.git("worktree", "remove", "--force", str(worktree))
    forge.work.git("reflog", "expire", "--expire=now", "--all")
    forge.work.git("gc", "-q", "--prune=now")
    must(forge, "continue", code=3)
    resolve(worktree, {"tally/batch.py": ZERO_SIZE_RESOLVED}, forge.environ)
    must(forge, "continue")
    forge.work.git("gc", "-q", "--prune=now")
    must(forge, "publish")
    assert forge.origin.show("topic/zero-size", "tally/batch.py") == ZERO_SIZE_RESOLVED
