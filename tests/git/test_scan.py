"""archive --scan: a tip that a force-push gave up, and that evidence names, is found and kept for good."""

from __future__ import annotations

from tests.git.forge import EMPTY_MEAN, Forge


def force_push_another_tip(forge: Forge) -> str:
    """Replace a topic's tip on origin, as an amended review round does; the tip that was given up."""
    given_up = forge.work.sha("topic/empty-mean")
    forge.work.git("fetch", "-q", "origin")
    amended = dict(EMPTY_MEAN) | {"tests/test_more.py": "def test():\n    assert 1 == 1\n"}
    forge.work.git("update-ref", "-d", "refs/heads/topic/empty-mean")
    forge.work.commit("topic/empty-mean", "The mean of nothing is zero", amended, start=forge.record.base)
    forge.work.git("push", "-qf", "origin", "topic/empty-mean")
    return given_up


def collect_garbage(forge: Forge) -> None:
    """The server's gc, which really prunes: an object that nothing reaches goes with it."""
    nothing_reaches = forge.origin.git("commit-tree", "-m", "given up", "local^{tree}")
    forge.origin.git("-c", "gc.pruneExpire=now", "gc", "-q", "--prune=now")
    assert not forge.origin.has(nothing_reaches)


def test_a_lost_intermediate_head_is_pinned_and_survives_the_servers_garbage_collection(forge: Forge) -> None:
    given_up = force_push_another_tip(forge)
    branches, work = forge.origin.branches(), forge.work.checkout()
    dry = forge.recut("archive", "--scan", "--dry-run", "--json")
    assert [tip["commit"] for tip in dry.json["unpinned"]] == [given_up]
    assert forge.origin.tags() == {}

    forge.recut("archive", "--scan")
    name = f"archive/topic-empty-mean-{given_up[:7]}"
    assert set(forge.origin.tags()) == {f"refs/tags/{name}"}
    assert forge.origin.git("cat-file", "-t", name) == "tag"
    collect_garbage(forge)
    assert forge.origin.sha(name) == given_up
    assert (forge.origin.branches(), forge.work.checkout()) == (branches, work)
    assert forge.recut("archive", "--scan", "--json").json["unpinned"] == []


def test_a_tip_named_by_an_evidence_file_is_fetched_from_the_server_and_pinned(forge: Forge) -> None:
    """The clone has never seen it: a colleague pushed it, built from it, and force-pushed it away."""
    built = forge.push_as_colleague("topic/empty-mean", "A test build", {"tally/extra.py": "x = 1\n"})
    forge.origin.git("update-ref", "refs/heads/topic/empty-mean", f"{built}^")
    assert not forge.work.has(built)
    forge.work.commit("local", "Evidence", {"evidence/build.txt": f"wheel built from {built}\n"})
    forge.work.git("push", "-q", "origin", "local")
    forge.recut("archive", "--scan")
    collect_garbage(forge)
    assert forge.origin.sha(f"archive/evidence-{built[:7]}") == built
