"""What a re-cut refuses, with every reason at once, and that a refusal leaves everything as it is."""

from __future__ import annotations

import json

import pytest

from patchstack.stack import ArchiveTag
from tests.git.forge import Files, Forge
from tests.git.forked import must

NOTE: Files = {"NOTES": "a note\n"}


def _refused(forge: Forge, *args: str, code: int = 5) -> str:
    """The words of a refusal, after which both sides and the checkout are as before."""
    before, mine, checkout = forge.origin.refs(), forge.work.refs(), forge.work.checkout()
    ended = must(forge, *args, code=code)
    assert forge.origin.refs() == before
    assert forge.work.refs() == mine
    assert forge.work.checkout() == checkout
    assert "Nothing has moved" in ended.out and "Next:" in ended.out
    return ended.out


def test_every_reason_is_named_at_once(forge: Forge) -> None:
    work = forge.work
    forge.origin.git("tag", "topic/empty-mean", "main")
    work.commit("topic/zero-size", "Not pushed", NOTE)
    forge.add_topic("on-local", ("Cut from local", NOTE), start="local")
    forge.add_topic("writes-record", ("Edits the record", {"UPSTREAM.md": "mine\n"}))
    side = work.commit("side", "On the side", {"SIDE": "x\n"}, start="topic/clamp-low~1")
    tree = work.git("rev-parse", "topic/clamp-low^{tree}")
    merge = work.git("commit-tree", "-p", "topic/clamp-low", "-p", side, "-m", "Merge it", tree)
    work.git("push", "-q", "origin", f"{merge}:refs/heads/topic/merged")
    index = f"160000 {side} 0\tvendored\0"
    work.git("read-tree", "--index-output=.git/scratch", "topic/clamp-low")
    environ = dict(work.environ)
    work.environ["GIT_INDEX_FILE"] = str(work.folder / ".git/scratch")
    work.git("update-index", "-z", "--index-info", stdin=index)
    pointer = work.git("commit-tree", "-p", "topic/clamp-low", "-m", "Vendor it", work.git("write-tree"))
    work.environ = environ
    work.git("push", "-q", "origin", f"{pointer}:refs/heads/topic/vendored")
    lightweight = ArchiveTag(label="topic-strip-words", commit=work.sha("topic/strip-words")).name
    work.git("push", "-q", "origin", f"topic/strip-words:refs/tags/{lightweight}")
    elsewhere = ArchiveTag(label="local-pre-recut", commit=work.sha("local^{commit}")).name
    forge.origin.git("update-ref", "refs/heads/archived", forge.origin.sha("local"))
    wrong = ArchiveTag(label="local-pre-recut", commit=forge.origin.sha("refs/heads/local")).name
    forge.origin.tag(wrong, "main", message="points elsewhere")
    work.git("tag", "local", "upstream/main")
    said = _refused(forge, "plan", "--onto", "v0.7.0")
    for reason in (
        "a tag named 'local' is in this clone",
        "the server has a tag named 'topic/empty-mean' beside the branch",
        "your topic/zero-size has 1 commit that the server has not",
        "topic/on-local is cut from local",
        "topic/writes-record changes UPSTREAM.md",
        "topic/merged: " + merge[:12],
        "topic/vendored: " + pointer[:12] + " (Vendor it) moves the submodule 'vendored'",
        f"{lightweight} on the server is a lightweight tag",
        f"{wrong} on the server points at",
    ):
        assert reason in said
    assert elsewhere.startswith("archive/")


def test_a_refusal_as_json_names_the_same(forge: Forge) -> None:
    forge.work.git("tag", "local", "upstream/main")
    refusal = json.loads(must(forge, "plan", "--onto", "v0.7.0", "--json", code=5).out)
    assert refusal["schema"] == "recut.error/1" and refusal["exit_code"] == 5
    assert refusal["outcome"] == "refused" and "Nothing has moved" in refusal["state"]
    assert ["tag named 'local'" in reason for reason in refusal["reasons"]] == [True]


def test_a_record_edited_by_hand_is_noticed(forge: Forge) -> None:
    text = forge.work.show("local", "UPSTREAM.md")
    base = forge.record.base
    moved = text.replace(base, forge.upstream.sha("main~1"))
    forge.work.commit("local", "Edit by hand", {"UPSTREAM.md": moved})
    forge.work.git("push", "-q", "origin", "local")
    assert "edited by hand" in _refused(forge, "plan", "--onto", "v0.7.0")
    broken = text.replace(f"`{base}`", "`nonsense`")
    forge.work.commit("local", "Break by hand", {"UPSTREAM.md": broken})
    forge.work.git("push", "-q", "origin", "local")
    assert "cannot be read" in _refused(forge, "plan", "--onto", "v0.7.0")


def test_a_shallow_clone_is_refused(forge: Forge) -> None:
    shallow = forge.root / "shallow"
    forge.work.git("clone", "-q", "--depth=1", "-b", "local", f"file://{forge.origin.folder}", str(shallow))
    forge.work.folder = shallow
    forge.work.git("remote", "add", "upstream", str(forge.upstream.folder))
    assert "git fetch --unshallow" in _refused(forge, "plan", "--onto", "v0.7.0")


@pytest.mark.parametrize("onto", ["v9.9.9", "desk"])
def test_only_upstreams_commits_can_be_a_base(forge: Forge, onto: str) -> None:
    said = _refused(forge, "plan", "--onto", onto)
    assert "upstream's branch" in said


def test_missing_remotes_are_named_together(forge: Forge) -> None:
    forge.work.git("remote", "remove", "upstream")
    said = _refused(forge, "plan", "--onto", "v0.7.0")
    assert "there is no remote 'upstream'" in said and "git remote add upstream URL" in said
    forge.work.git("remote", "remove", "origin")
    said = _refused(forge, "status")
    assert "no remote 'upstream'" in said and "no remote 'origin'" in said


def test_a_server_without_atomic_pushes_is_refused_and_nothing_moves(forge: Forge) -> None:
    forge.origin.git("config", "receive.advertiseAtomic", "false")
    must(forge, "plan", "--onto", "v0.7.0", "--topic", "empty-mean")
    must(forge, "start")
    before = forge.origin.refs()
    ended = must(forge, "publish", code=5)
    assert "cannot push atomically" in ended.out
    assert forge.origin.refs() == before


def test_a_server_that_rejects_one_tag_gets_none_and_no_branch_moves(forge: Forge) -> None:
    hook = forge.origin.folder / "hooks" / "update"
    hook.write_text('#!/bin/sh\ncase $1 in *topic-empty-mean*) echo "no such tags here"; exit 1;; esac\n')
    hook.chmod(0o755)
    must(forge, "plan", "--onto", "v0.7.0", "--topic", "empty-mean")
    must(forge, "start")
    before = forge.origin.refs()
    ended = must(forge, "publish", code=6)
    assert "hook declined" in ended.out and "topic-empty-mean" in ended.out
    assert forge.origin.refs() == before
    hook.unlink()
    must(forge, "continue")
    assert forge.origin.branches() != before


def test_a_plan_that_was_edited_is_refused(forge: Forge) -> None:
    must(forge, "plan", "--onto", "v0.7.0", "-o", "plan.json")
    path = forge.work.folder / "plan.json"
    old, other = forge.work.sha("topic/empty-mean"), forge.work.sha("upstream/main")
    path.write_text(path.read_text().replace(old, other))
    said = must(forge, "start", "plan.json", code=2).out
    assert "its id does not match" in said
    assert "usage" in must(forge, "start", "nowhere.json", code=2).out


def test_commands_of_a_run_need_a_run_and_a_run_shuts_out_others(forge: Forge) -> None:
    for command in ("continue", "abort"):
        assert "no run is in progress" in must(forge, command, code=5).out
    must(forge, "undo", code=5)
    must(forge, "start", code=5)
    must(forge, "skip", code=2)
    must(forge, "plan", "--onto", "v0.7.0")
    must(forge, "start", code=3)
    for args in (["start"], ["land", "empty-mean"], ["undo"], ["release"]):
        assert "in progress" in must(forge, *args, code=7).out
    assert "not ready to publish" in must(forge, "publish", code=5).out
    must(forge, "abort")


def test_settings_that_are_no_text_are_refused_in_a_checkout_and_on_local(forge: Forge) -> None:
    work = forge.work
    work.git("checkout", "-q", "local")
    (work.folder / "recut.toml").write_bytes(b"\xff")
    assert "recut.toml cannot be read" in must(forge, "status", code=2).out
    work.git("commit", "-q", "-a", "-m", "Break the settings")
    work.git("checkout", "-q", "topic/empty-mean")
    assert "refs/heads/local:recut.toml cannot be read" in must(forge, "status", code=2).out
