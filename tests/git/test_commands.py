"""The smaller commands, and what every command does with a wish it cannot understand."""

from __future__ import annotations

import json

from tests.git.forge import Forge, resolve
from tests.git.forked import must


def test_init_writes_settings_once(forge: Forge) -> None:
    forge.work.git("checkout", "-q", "topic/empty-mean")
    out = must(forge, "init", "--upstream", "elsewhere", "--pin", "arrays").out
    text = (forge.work.folder / "recut.toml").read_text()
    assert 'remote = "elsewhere"' in text and 'names = ["arrays"]' in text
    assert "there is no remote 'elsewhere' yet" in out
    assert "is here already" in must(forge, "init", code=5).out
    assert (forge.work.folder / "recut.toml").read_text() == text


def test_without_settings_the_way_on_is_init(forge: Forge) -> None:
    forge.work.git("checkout", "-q", "--detach", "upstream/main")
    for ref in ("refs/heads/local", "refs/remotes/origin/local"):
        forge.work.git("update-ref", "-d", ref)
    assert "tools/recut init" in must(forge, "status", code=2).out


def test_usage_errors_end_with_2_and_name_the_help(forge: Forge) -> None:
    for args in (
        ["nope"],
        ["plan"],
        ["status", "--nope"],
        ["archive"],
        ["skip", "--withdraw", "x", "--superseded-by", "y"],
    ):
        out = must(forge, *args, code=2).out
        assert out.startswith("usage: ") and "Next:" in out
    assert "Commands:" in must(forge).out


def test_archive_pins_a_branch_or_a_labelled_commit_once(forge: Forge) -> None:
    before = forge.origin.branches()
    must(forge, "archive", "topic/empty-mean")
    must(forge, "archive", "topic/empty-mean")
    commit = forge.work.sha("desk")
    assert "needs a label" in must(forge, "archive", commit, code=2).out
    shown = must(forge, "archive", commit, "--label", "evidence", "--dry-run").out
    assert f"archive/evidence-{commit[:7]}" in shown
    must(forge, "archive", commit, "--label", "evidence")
    pinned = {ref: forge.origin.sha(ref) for ref in forge.origin.tags() if "/archive/" in ref}
    assert pinned == {
        f"refs/tags/archive/evidence-{commit[:7]}": commit,
        f"refs/tags/archive/topic-empty-mean-{forge.work.sha('topic/empty-mean')[:7]}": forge.work.sha(
            "topic/empty-mean"
        ),
    }
    assert forge.origin.branches() == before
    log = json.loads(must(forge, "log", "--json").out)
    assert [run["kind"] for run in log["runs"]] == ["archive", "archive", "archive"]


def test_landing_stops_at_a_conflict_and_publishes_once_it_is_resolved(forge: Forge) -> None:
    base = forge.record.base
    for name, line in (("one", "a\n"), ("two", "b\n")):
        forge.add_topic(name, (f"Add {name}", {"same.txt": line}), start=base)
    must(forge, "land", "one")
    before = forge.origin.branches()
    assert "in conflict: same.txt" in must(forge, "land", "two", code=3).out
    assert forge.origin.branches() == before
    (worktree,) = (forge.work.folder / ".git/recut/runs").glob("*/worktree")
    resolve(worktree, {"same.txt": "a\nb\n"}, forge.environ)
    assert "two has landed" in must(forge, "continue").out
    assert forge.origin.show("local", "same.txt") == "a\nb\n"
    assert forge.origin.git("log", "-1", "--format=%B", "local~1").endswith("Recut-Topic: two\n")
    must(forge, "undo")
    assert forge.origin.branches() == before


def test_a_server_that_moved_elsewhere_stops_publish(forge: Forge) -> None:
    must(forge, "plan", "--onto", "v0.7.0", "--topic", "empty-mean")
    must(forge, "start")
    forge.work.git("remote", "set-url", "origin", str(forge.root / "other.git"))
    before = forge.origin.refs()
    assert "the plan says" in must(forge, "publish", code=5).out
    assert forge.origin.refs() == before


def test_without_a_name_nothing_is_planned(forge: Forge) -> None:
    (forge.home / ".gitconfig").write_text("[user]\n\tuseConfigOnly = true\n")
    assert "git config user.name" in must(forge, "plan", "--onto", "v0.7.0", code=5).out
