"""A topic lands, a release carries it, the next re-cut carries it on and leaves the release commit behind."""

from __future__ import annotations

import json

from tests.git.forge import RECUT_TOML, Forge
from tests.git.forked import must

EDITS = """
[[release.edits]]
file = "pyproject.toml"
find = '^version = ".*"$'
replace = 'version = "{version}"'
"""


def _landed(forge: Forge) -> None:
    forge.work.commit("local", "Write versions on release", {"recut.toml": RECUT_TOML + EDITS})
    forge.work.git("push", "-q", "origin", "local")
    forge.work.git("checkout", "-q", "-B", "desk", "local")
    must(forge, "record")
    forge.work.git("commit", "-qam", "Record it")
    forge.work.git("push", "-q", "origin", "desk:local")
    forge.work.git("branch", "-q", "-f", "local", "desk")
    must(forge, "plan", "--onto", "v0.7.0", "--topic", "empty-mean")
    must(forge, "start")
    must(forge, "publish")
    must(forge, "land", "empty-mean")


def test_landing_is_a_fast_forward_that_pins_both_tips(forge: Forge) -> None:
    before = forge.origin.branches()
    assert "nothing has landed" in must(forge, "release", code=5).out
    planned = json.loads(must(forge, "land", "empty-mean", "--dry-run", "--json").out)
    assert forge.origin.branches() == before
    checkout = forge.work.checkout()
    must(forge, "land", "empty-mean")
    after = forge.origin.branches()
    assert after == {**before, "refs/heads/local": planned["branches"][0]["new"]}
    forge.origin.git("merge-base", "--is-ancestor", before["refs/heads/local"], after["refs/heads/local"])
    pinned = {forge.origin.sha(name) for name in forge.origin.tags() if "/archive/" in name}
    assert {before["refs/heads/local"], before["refs/heads/topic/empty-mean"]} <= pinned
    body = forge.origin.git("log", "-1", "--format=%B", "local~1")
    assert body == "The mean of nothing is zero\n\nRecut-Topic: empty-mean\n"
    assert "| empty-mean | landed |" in forge.origin.show("local", "UPSTREAM.md")
    assert "is landed already" in must(forge, "land", "empty-mean", code=5).out
    assert forge.work.checkout() == checkout


def test_a_release_is_numbered_by_the_server_and_the_next_recut_drops_its_commit_by_name(
    forge: Forge,
) -> None:
    _landed(forge)
    shown = must(forge, "release", "--dry-run").out
    assert "v0.7.0-local01" in shown and "refs/tags/v0.7.0-local01" not in forge.origin.tags()
    local = forge.origin.sha("local")
    must(forge, "release")
    tip = forge.origin.sha("local")
    assert forge.origin.git("cat-file", "-t", "v0.7.0-local01") == "tag"
    assert forge.origin.sha("v0.7.0-local01") == tip and forge.origin.sha("local~1") == local
    assert 'version = "0.7.0+local01"' in forge.origin.show("local", "pyproject.toml")
    assert "return 0.0" in forge.origin.show("v0.7.0-local01", "tally/stats.py")
    assert "released as v0.7.0-local01 already" in must(forge, "release", code=5).out
    forge.origin.git("tag", "-a", "-m", "by another clone", "v0.7.0-local07", "main")
    plan = json.loads(must(forge, "plan", "--onto", "upstream/main", "--topic", "strip-words", "--json").out)
    local_plan = plan["branches"][-1]
    assert [(row["kind"], row["subject"]) for row in local_plan["replaced"]][-1] == (
        "release",
        "Release v0.7.0-local01",
    )
    assert [patch["topic"] for patch in local_plan["patches"] if patch["kind"] == "landed"] == ["empty-mean"]
    must(forge, "start")
    must(forge, "publish")
    assert "return 0.0" in forge.origin.show("local", "tally/stats.py")
    assert 'version = "0.7.0"' in forge.origin.show("local", "pyproject.toml")
    assert forge.origin.sha("v0.7.0-local01") == tip
    assert tip in {forge.origin.sha(name) for name in forge.origin.tags() if "local-pre-recut" in name}
    record = forge.origin.show("local", "UPSTREAM.md")
    assert "| empty-mean | landed |" in record
    assert "v0.7.0-local08" in must(forge, "release", "--dry-run").out


def test_a_devel_release_tags_the_base_without_local_patches(forge: Forge) -> None:
    before = forge.origin.branches()
    must(forge, "release", "--devel")
    base = forge.upstream.sha("v0.6.0")
    (name,) = [ref for ref in forge.origin.tags() if ref.startswith("refs/tags/v0.6.0.")]
    assert forge.origin.sha(name) == base
    assert forge.origin.branches() == before
    assert "on the server already" in must(forge, "release", "--devel", code=5).out


def test_integrate_joins_local_and_open_topics_without_a_branch(forge: Forge) -> None:
    before, mine, checkout = forge.origin.refs(), forge.work.refs("refs/heads/"), forge.work.checkout()
    made = json.loads(must(forge, "integrate", "--json").out)
    again = json.loads(must(forge, "integrate", "--json").out)
    assert made == again and len(made["topics"]) == 4
    for tip in (made["local"], *made["tips"]):
        forge.work.git("merge-base", "--is-ancestor", tip, made["commit"])
    assert forge.origin.refs() == before
    assert (forge.work.refs("refs/heads/"), forge.work.checkout()) == (mine, checkout)
    must(forge, "archive", made["commit"], "--label", "integrate")
    (tag,) = [ref for ref in forge.origin.tags() if "/archive/integrate-" in ref]
    assert forge.origin.sha(tag) == made["commit"]
