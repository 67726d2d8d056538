"""What colleagues push meanwhile is never overwritten: the lease is the plan's, whatever is fetched later."""

from __future__ import annotations

import shutil

from tests.git.forge import WORDS_FIXED, ZERO_SIZE_RESOLVED, Files, Forge, resolve
from tests.git.forked import must

MORE: Files = {"tally/stats.py": "def mean(values):\n    return sum(values) / max(len(values), 1)\n"}


def _resolve(forge: Forge) -> None:
    (worktree,) = (forge.work.folder / ".git/recut/runs").glob("*/worktree")
    resolve(worktree, {"tally/batch.py": ZERO_SIZE_RESOLVED}, forge.environ)


def test_a_push_between_plan_and_start_stops_start(forge: Forge) -> None:
    must(forge, "plan", "--onto", "v0.7.0")
    theirs = forge.push_as_colleague("topic/empty-mean", "Better still", MORE)
    before, mine, checkout = forge.origin.refs(), forge.work.refs(), forge.work.checkout()
    ended = must(forge, "start", code=4)
    assert f"topic/empty-mean was {mine['refs/heads/topic/empty-mean'][:12]} when planned" in ended.out
    assert "Nothing has moved" in ended.out
    assert forge.origin.refs() == before and before["refs/heads/topic/empty-mean"] == theirs
    assert forge.work.refs() == mine
    assert forge.work.checkout() == checkout
    must(forge, "continue", code=5)


def test_an_amended_topic_stops_start(forge: Forge) -> None:
    must(forge, "plan", "--onto", "v0.7.0")
    amended = forge.origin.commit("amended", "The mean of nothing is 0", MORE, start="main")
    forge.origin.git("update-ref", "refs/heads/topic/empty-mean", amended)
    forge.work.git("branch", "-q", "-D", "topic/empty-mean")
    before = forge.origin.refs()
    must(forge, "start", code=4)
    assert forge.origin.refs() == before


def test_a_push_during_the_replay_stops_publish_and_a_fetch_does_not_weaken_the_lease(forge: Forge) -> None:
    must(forge, "plan", "--onto", "v0.7.0")
    must(forge, "start", code=3)
    theirs = forge.push_as_colleague("topic/empty-mean", "Better still", MORE)
    forge.work.git("fetch", "-q", "origin")
    before, mine = forge.origin.refs(), forge.work.branches()
    _resolve(forge)
    must(forge, "continue")
    ended = must(forge, "publish", code=4)
    assert "No branch has moved" in ended.out
    assert "their commits are untouched" in ended.out
    assert forge.origin.refs() == before and before["refs/heads/topic/empty-mean"] == theirs
    assert forge.work.branches() == mine
    must(forge, "abort")
    assert forge.origin.refs() == before
    ended = must(forge, "plan", "--onto", "v0.7.0")
    assert "Better still" in ended.out


def test_a_push_between_the_archive_and_the_move_is_caught_by_the_lease_itself(forge: Forge) -> None:
    must(forge, "plan", "--onto", "v0.7.0", "--topic", "empty-mean")
    must(forge, "start")
    theirs = forge.origin.commit("elsewhere", "Better still", MORE, start="topic/empty-mean")
    hook = forge.origin.folder / "hooks" / "post-receive"
    hook.write_text(f"#!/bin/sh\ngit update-ref refs/heads/topic/empty-mean {theirs}\n")
    hook.chmod(0o755)
    before = forge.origin.branches()
    ended = must(forge, "publish", code=4)
    assert "refs/heads/topic/empty-mean" in ended.out and "stale info" in ended.out
    after = forge.origin.branches()
    assert after == {**before, "refs/heads/topic/empty-mean": theirs}
    assert any(ref.startswith("refs/tags/archive/local-pre-recut-") for ref in forge.origin.tags())
    must(forge, "abort")


def test_a_branch_deleted_on_the_server_is_not_made_again(forge: Forge) -> None:
    must(forge, "plan", "--onto", "v0.7.0", "--topic", "empty-mean")
    must(forge, "start")
    forge.origin.git("update-ref", "-d", "refs/heads/topic/empty-mean")
    before = forge.origin.refs()
    ended = must(forge, "publish", code=4)
    assert "is gone now" in ended.out
    assert forge.origin.refs() == before


def test_leases_hold_at_the_push_url_where_it_differs_from_the_fetch_url(forge: Forge) -> None:
    shutil.copytree(forge.origin.folder, forge.root / "stale.git")
    forge.work.git("remote", "set-url", "origin", str(forge.root / "stale.git"))
    forge.work.git("remote", "set-url", "--push", "origin", str(forge.origin.folder))
    theirs = forge.push_as_colleague("topic/strip-words", "And tabs", {"tally/words.py": WORDS_FIXED + "# tabs\n"})
    must(forge, "plan", "--onto", "v0.7.0", "--topic", "strip-words")
    must(forge, "start")
    must(forge, "publish")
    (tag,) = [name for name in forge.origin.tags() if "topic-strip-words" in name]
    assert forge.origin.sha(tag) == theirs
    assert "refs/remotes/origin/local" not in forge.work.refs("refs/remotes/origin/local") or (
        forge.work.sha("refs/remotes/origin/local") != forge.origin.sha("local")
    )


def test_a_pin_that_vanished_before_the_move_is_made_again_first(forge: Forge) -> None:
    must(forge, "plan", "--onto", "v0.7.0", "--topic", "empty-mean")
    must(forge, "start")
    hook = forge.origin.folder / "hooks" / "update"
    hook.write_text("#!/bin/sh\ncase $1 in refs/heads/*) exit 1;; esac\n")
    hook.chmod(0o755)
    before = forge.origin.branches()
    must(forge, "publish", code=6)
    assert forge.origin.branches() == before
    pinned = forge.origin.tags()
    for ref in pinned:
        if "/archive/" in ref:
            forge.origin.git("update-ref", "-d", ref)
    hook.unlink()
    must(forge, "publish")
    assert forge.origin.tags() == pinned
    assert forge.origin.branches() != before
