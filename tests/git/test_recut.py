"""A re-cut from plan to publish: exact ids, every patch accounted for, names and bytes kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.git.forge import ZERO_SIZE_RESOLVED, Forge, copy_forge, resolve
from tests.git.forked import must

AWKWARD = {
    "two words.txt": "one\ntwo\nthree\n",
    "line\nbreak.txt": "one\n",
    "Übergröße.txt": "groß\n",
    "windows.txt": "one\r\ntwo\r\nthree\r\n",
}


def _plan(forge: Forge, *args: str) -> dict[str, Any]:
    plan: dict[str, Any] = json.loads(must(forge, "plan", *args, "--json").out)
    return plan


def _worktree(forge: Forge) -> Path:
    (worktree,) = (forge.work.folder / ".git/recut/runs").glob("*/worktree")
    return worktree


def test_the_plan_names_each_fate_and_moves_nothing(forge: Forge) -> None:
    before, mine, checkout = forge.origin.refs(), forge.work.refs(), forge.work.checkout()
    plan = _plan(forge, "--onto", "v0.7.0")
    fates = {branch["branch"]: [patch["fate"] for patch in branch["patches"]] for branch in plan["branches"]}
    assert fates == {
        "topic/clamp-low": ["superseded"],
        "topic/empty-mean": ["untouched"],
        "topic/strip-words": ["partly superseded"],
        "topic/zero-size": ["conflict"],
        "local": ["untouched"],
    }
    (clamp,) = plan["branches"][0]["patches"]
    assert clamp["upstream"] == forge.upstream.sha("main~2")
    assert clamp["upstream_subject"] == "Clamp at the lower limit too (#42)"
    assert plan["branches"][3]["new"] is None and plan["branches"][4]["new"] is None
    assert plan["branches"][3]["patches"][0]["conflicts"] == ["tally/batch.py"]
    assert (forge.origin.refs(), forge.work.refs(), forge.work.checkout()) == (before, mine, checkout)


def test_a_published_recut_is_what_the_plan_said_and_loses_nothing(forge: Forge, tmp_path: Path) -> None:
    other = copy_forge(forge, tmp_path / "other")
    results = []
    for each in (forge, other):
        old = each.origin.branches()
        plan = _plan(each, "--onto", "v0.7.0")
        must(each, "start", code=3)
        resolve(_worktree(each), {"tally/batch.py": ZERO_SIZE_RESOLVED}, each.environ)
        must(each, "continue")
        must(each, "publish")
        new = each.origin.branches()
        for branch in plan["branches"]:
            ref = f"refs/heads/{branch['branch']}"
            assert branch["new"] in (None, new[ref]) or not branch["moves"]
        pinned = {each.origin.sha(name) for name in each.origin.tags() if "/archive/" in name}
        assert {old[f"refs/heads/{b['branch']}"] for b in plan["branches"]} <= pinned
        assert new["refs/heads/topic/clamp-low"] == old["refs/heads/topic/clamp-low"]
        assert new["refs/heads/main"] == each.upstream.sha("main")
        results.append(each.origin.refs())
    assert results[0] == results[1]
    base = forge.upstream.sha("v0.7.0")
    assert forge.origin.subjects(f"{base}..topic/zero-size") == ["A batch size of zero means one"]
    assert forge.origin.show("topic/zero-size", "tally/batch.py") == ZERO_SIZE_RESOLVED
    assert forge.origin.subjects(f"{base}..local") == [
        "Say what this fork follows",
        "Record the re-cut onto v0.7.0",
    ]


def test_the_same_tree_as_git_rebase(forge: Forge) -> None:
    must(forge, "plan", "--onto", "v0.7.0", "--topic", "empty-mean")
    must(forge, "start")
    must(forge, "publish")
    forge.work.git("worktree", "add", "-q", "--detach", str(forge.root / "rebased"), "origin/topic/clamp-low")
    base, tag = forge.upstream.sha("v0.6.0"), forge.upstream.sha("v0.7.0")
    (archived,) = [name for name in forge.work.tags() if "topic-empty-mean" in name]
    rebase = ("-C", str(forge.root / "rebased"), "rebase", "-q", "--committer-date-is-author-date")
    forge.work.git(*rebase, "--onto", tag, base, forge.work.sha(archived))
    assert forge.work.git("-C", str(forge.root / "rebased"), "rev-parse", "HEAD") == forge.origin.sha(
        "topic/empty-mean"
    )


def test_attributes_of_the_new_base_count_as_they_would_in_a_checkout(bare_forge: Forge) -> None:
    forge = bare_forge
    lines = {".gitattributes": "CHANGES merge=union\n", "CHANGES": "a\nb\n"}
    forge.upstream.commit("main", "Join changes", lines)
    forge.work.git("fetch", "-q", "upstream")
    forge.add_topic("entry", ("Ours", {"CHANGES": "a\nb\nours\n"}), start="upstream/main")
    forge.release_upstream("v0.7.0", ("Theirs", {"CHANGES": "a\nb\ntheirs\n"}))
    plan = _plan(forge, "--onto", "v0.7.0")
    assert [patch["fate"] for patch in plan["branches"][0]["patches"]] == ["untouched"]
    must(forge, "start")
    must(forge, "publish")
    assert forge.origin.show("topic/entry", "CHANGES") == "a\nb\ntheirs\nours\n"


def test_upstream_may_go_on_between_plan_and_start(forge: Forge) -> None:
    plan = _plan(forge, "--onto", "v0.7.0", "--topic", "empty-mean")
    forge.release_upstream("v0.8.0", ("More", {"more.txt": "x\n"}))
    must(forge, "start")
    must(forge, "publish")
    assert forge.origin.sha("topic/empty-mean") == plan["branches"][0]["new"]
    assert forge.origin.sha("local") == plan["branches"][1]["new"]
    assert forge.origin.sha("main") == plan["mirror"]["new"]
    said = must(forge, "plan", "--onto", "v0.7.0", "--topic", "empty-mean", code=5).out
    assert "there is nothing to move" in said


def test_awkward_names_and_line_ends_survive(bare_forge: Forge) -> None:
    forge = bare_forge
    forge.add_topic("awkward", ("Names of all kinds", AWKWARD), ("CRLF too", {"windows.txt": "one\r\n2\r\n"}))
    forge.add_topic("clash", ("Same name", {"two words.txt": "ours\n", "line\nbreak.txt": "ours\n"}))
    theirs = {"two words.txt": "theirs\n", "unrelated.txt": "x\r\n"}
    forge.release_upstream("v0.7.0", ("Two words", theirs))
    plan = _plan(forge, "--onto", "v0.7.0")
    patches = {p["subject"]: p for branch in plan["branches"] for p in branch["patches"]}
    assert patches["Same name"]["conflicts"] == ["two words.txt"]
    assert patches["Names of all kinds"]["conflicts"] == ["two words.txt"]
    must(forge, "start", code=3)
    resolve(_worktree(forge), {"two words.txt": "both\n"}, forge.environ)
    must(forge, "continue", code=3)
    resolve(_worktree(forge), {"two words.txt": "both again\n"}, forge.environ)
    must(forge, "continue")
    must(forge, "publish")
    for path, content in (AWKWARD | {"windows.txt": "one\r\n2\r\n", "two words.txt": "both\n"}).items():
        blob = forge.origin.git("cat-file", "blob", f"topic/awkward:{path}")
        assert blob + "\n" == content
    assert forge.origin.git("cat-file", "blob", "topic/clash:line\nbreak.txt") == "ours"


def test_a_resolution_is_checked_before_it_is_taken(forge: Forge) -> None:
    must(forge, "plan", "--onto", "v0.7.0")
    must(forge, "start", code=3)
    worktree = _worktree(forge)
    marked = (worktree / "tally/batch.py").read_text()
    assert "<<<<<<<" in marked
    resolve(worktree, {"tally/batch.py": marked}, forge.environ)
    assert "conflict markers are still in tally/batch.py" in must(forge, "continue", code=3).out
    resolve(worktree, {"tally/batch.py": ZERO_SIZE_RESOLVED}, forge.environ)
    (worktree / "more.py").write_text("x = 1\n")
    assert "new, neither added nor deleted: more.py" in must(forge, "continue", code=3).out
    (worktree / "more.py").unlink()
    (worktree / "tally/words.py").write_text("not added\n")
    assert "changed, but not added: tally/words.py" in must(forge, "continue", code=3).out
    forge.work.git("-C", str(worktree), "checkout", "-q", "--", "tally/words.py")
    forge.work.git("-C", str(worktree), "-c", "user.name=Me", "-c", "user.email=me@x", "commit", "-qm", "Mine")
    must(forge, "continue")
    must(forge, "publish")
    author, subject = forge.origin.git("log", "-1", "--format=%an|%s", "topic/zero-size").split("|")
    assert (author, subject) == ("Fay Fork", "Mine")


def test_skip_needs_a_reason_that_holds_and_the_record_keeps_it(forge: Forge) -> None:
    must(forge, "plan", "--onto", "v0.7.0")
    must(forge, "start", code=3)
    outside, unrelated = forge.upstream.sha("main"), forge.upstream.sha("v0.7.0")
    said = must(forge, "skip", "--superseded-by", outside, code=5).out
    assert "is not part of the base" in said and "touches none of the files" in said
    assert "touches none of the files" in must(forge, "skip", "--superseded-by", unrelated, code=5).out
    names_starts = forge.upstream.sha("v0.7.0~3")
    must(forge, "skip", "--superseded-by", names_starts)
    must(forge, "publish")
    record = forge.work.show("local", "UPSTREAM.md")
    assert names_starts in record and "| zero-size | superseded |" in record
    old = forge.work.sha("topic/zero-size")
    assert forge.origin.sha("topic/zero-size") == old


def test_withdrawing_gives_up_the_whole_topic_and_says_why(forge: Forge) -> None:
    forge.amend_topic("zero-size", "And a note", {"NOTE": "n\n"})
    must(forge, "plan", "--onto", "v0.7.0")
    must(forge, "start", code=3)
    must(forge, "skip", "--withdraw", "nobody needs it")
    must(forge, "publish")
    record = forge.work.show("local", "UPSTREAM.md")
    assert "| zero-size | withdrawn |" in record and record.count("nobody needs it") >= 2
    assert forge.origin.sha("topic/zero-size") == forge.work.sha("topic/zero-size")
    later = _plan(forge, "--onto", "upstream/main")
    assert "topic/zero-size" not in [branch["branch"] for branch in later["branches"]]
    assert any("topic/zero-size is withdrawn" in note for note in later["notes"])


@pytest.mark.long
def test_two_hundred_topics_move_together(bare_forge: Forge) -> None:
    forge = bare_forge
    base = forge.record.base
    stamp = "Fay Fork <fay@fork.example> 1767700000 +0000"
    script = "".join(
        f"commit refs/heads/topic/t{n:03}\nauthor {stamp}\ncommitter {stamp}\ndata 8\nTopic {n:02x}\n"
        f"from {base}\nM 100644 inline f{n}.txt\ndata 2\nx\n\n"
        for n in range(200)
    )
    forge.work.git("fast-import", "--quiet", stdin=script)
    forge.work.git("push", "-q", "origin", "refs/heads/topic/*:refs/heads/topic/*")
    old = forge.origin.branches()
    forge.release_upstream("v0.7.0", ("More", {"more.txt": "x\n"}))
    plan = _plan(forge, "--onto", "v0.7.0")
    must(forge, "start")
    must(forge, "publish")
    new = forge.origin.branches()
    assert len(plan["archive"]) == 201
    assert {branch["branch"]: branch["new"] for branch in plan["branches"]} == {
        ref.removeprefix("refs/heads/"): tip for ref, tip in new.items() if ref != "refs/heads/main"
    }
    pinned = {row.split()[0] for row in forge.origin.git("show-ref", "-d").split("\n") if "^{}" in row}
    assert {tip for ref, tip in old.items() if ref != "refs/heads/main"} <= pinned
