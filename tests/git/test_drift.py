"""drift: what upstream did since the base, and which patch it concerns."""

from __future__ import annotations

import msgspec

from tests.git.forge import CLAMP_LOW, UPSTREAM_AUTHOR, Forge


def test_it_names_what_touches_and_what_supersedes_a_patch(forge: Forge) -> None:
    before = forge.origin.refs(), forge.work.refs(), forge.work.checkout()
    run = forge.recut("drift", "--json", expect=11)
    assert run.json["schema"] == "recut.drift/1"
    assert run.json["n_behind"] == 5
    touches = {commit["subject"]: commit["touches"] for commit in run.json["commits"]}
    assert touches["Name the starts of a batch"] == {"zero-size": ["tally/batch.py"]}
    assert "Say what it is for" not in touches
    superseded = {row["topic"]: (row["upstream_subject"], row["why"]) for row in run.json["superseded"]}
    assert superseded == {
        "clamp-low": ("Clamp at the lower limit too (#42)", "the same change"),
        "strip-words": ("Count words, not spaces (#41)", "the same fix, with other tests"),
    }
    assert "Count words, not spaces (#41)" in forge.recut("drift", expect=11).out
    assert (forge.origin.refs(), forge.work.refs(), forge.work.checkout()) == before


def test_a_topic_that_nothing_touches_is_unrelated_drift(forge: Forge) -> None:
    run = forge.recut("drift", "--topic", "empty-mean", expect=10)
    assert "None of them touches a patch (empty-mean)." in run.out
    assert "no branch 'topic/nothing'" in forge.recut("drift", "--topic", "nothing", expect=5).err


def test_no_drift_on_the_newest_base_and_a_file_that_upstream_moves_counts(bare_forge: Forge) -> None:
    forge = bare_forge
    forge.add_topic("clamp-low", ("Clamp at the lower limit", CLAMP_LOW))
    assert "The base is upstream's newest commit." in forge.recut("drift").out
    old = forge.upstream.show("main", "tally/limits.py")
    moved = {"tally/limits.py": None, "tally/bounds.py": old}
    forge.upstream.commit("main", "Rename limits to bounds", moved, author=UPSTREAM_AUTHOR)
    (commit,) = forge.recut("drift", "--json", expect=11).json["commits"]
    assert commit["touches"] == {"clamp-low": ["tally/limits.py"]}


def test_a_landed_patch_is_watched_like_a_topic(forge: Forge) -> None:
    message = "A batch size of zero means one\n\nRecut-Topic: batches"
    commit = forge.work.commit("local", message, {"tally/batch.py": "split = None\n"})
    forge.work.git("push", "-q", "origin", "local", "--delete", "topic/zero-size")
    forge.work.git("push", "-q", "origin", "local")
    forge.write_record(msgspec.structs.replace(forge.record))
    run = forge.recut("drift", "--json", expect=11)
    assert {"batches": ["tally/batch.py"]} in [row["touches"] for row in run.json["commits"]]
    assert forge.origin.git("merge-base", "--is-ancestor", commit, "local") == ""
