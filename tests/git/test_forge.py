"""The fixture itself: the scene is what it says, the same every time, and a copy is a scene of its own."""

from __future__ import annotations

from pathlib import Path

from tests.git.forge import Forge, build_forge


def test_the_scene_is_four_topics_on_an_older_release(forge: Forge) -> None:
    base = forge.upstream.sha("v0.6.0")
    assert forge.record.base == base
    assert [row.topic for row in forge.record.topics] == [
        "clamp-low", "empty-mean", "strip-words", "zero-size",
    ]  # fmt: skip
    for row in forge.record.topics:
        assert row.new == forge.origin.sha(f"topic/{row.topic}") == forge.work.sha(f"topic/{row.topic}")
        assert forge.work.sha(f"topic/{row.topic}~1") == base
    assert forge.origin.sha("local") == forge.work.sha("local")
    assert forge.upstream.git("cat-file", "-t", "v0.6.0") == "tag"
    assert forge.upstream.git("cat-file", "-t", "v0.7.0") == "commit"
    assert forge.work.checkout().status == ""


def test_building_it_twice_gives_the_same_ids_and_a_copy_is_apart(forge: Forge, tmp_path: Path) -> None:
    again = build_forge(tmp_path / "again")
    assert again.work.refs() == forge.work.refs()
    assert again.origin.refs() == forge.origin.refs()
    before = again.origin.refs()
    forge.amend_topic("empty-mean", "A second thought", {"tally/stats.py": "mean = None\n"})
    assert forge.origin.refs() != before
    assert again.origin.refs() == before
