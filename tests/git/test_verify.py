"""verify: every claim of the record and the tags is checked against the repository, and each lie is named."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from command.errors import EXIT_CODES
from patchstack.audit import CHECKS
from patchstack.audit import verify as audit_stack
from patchstack.git import open_git
from patchstack.settings import parse_settings
from patchstack.stack import (
    CarriedRow,
    CommitKind,
    DropRow,
    EvidenceRow,
    Pin,
    Sha,
    TopicRow,
    TopicState,
)
from tests.git.forge import CLAMP_LOW, EMPTY_MEAN, RECUT_TOML, Forge, Run


def failed(run: Run) -> dict[str, str]:
    """Check -> its details, of the checks that failed."""
    assert run.json["schema"] == "recut.verify/1"
    return {c["id"]: "\n".join(c["details"]) for c in run.json["checks"] if c["status"] == "failed"}


def verify(forge: Forge, *, expect: int = 1) -> dict[str, str]:
    """What failed, asked in this process to save its start; nothing may have changed on any side."""
    before = forge.origin.refs(), forge.work.refs(), forge.work.checkout()
    audit = audit_stack(open_git(forge.work.folder, forge.environ), parse_settings(RECUT_TOML))
    assert EXIT_CODES[audit.outcome] == expect
    assert (forge.origin.refs(), forge.work.refs(), forge.work.checkout()) == before
    return {check.id: "\n".join(check.details) for check in audit.failed}


def rewrite(forge: Forge, **fields: object) -> None:
    forge.write_record(msgspec.structs.replace(forge.record, **fields))


def test_the_scene_passes_on_the_server_and_offline(forge: Forge) -> None:
    before = forge.origin.refs(), forge.work.refs(), forge.work.checkout()
    run = forge.recut("verify")
    assert (forge.origin.refs(), forge.work.refs(), forge.work.checkout()) == before
    assert "No check failed." in run.out
    forge.origin.folder.rename(forge.root / "away")
    assert failed(forge.recut("verify", "--no-remote", "--json")) == {}
    forge.recut("verify", expect=6)


def test_a_record_edited_by_hand_names_its_line(forge: Forge) -> None:
    text = forge.work.show("local", "UPSTREAM.md")
    line = next(at for at, row in enumerate(text.split("\n"), 1) if "| zero-size |" in row)
    broken = text.replace("| zero-size | open |", "| zero-size | almost done |")
    forge.work.commit("local", "Edit the record by hand", {"UPSTREAM.md": broken})
    forge.work.git("push", "-q", "origin", "local")
    problems = failed(forge.recut("verify", "--json", expect=1))
    assert set(problems) == {"record-reads"}
    assert f"UPSTREAM.md line {line}: 'state' is 'almost done'" in problems["record-reads"]
    assert "git checkout HEAD -- UPSTREAM.md" in problems["record-reads"]


def test_a_record_that_claims_another_base_or_commit_fails(forge: Forge) -> None:
    stranger = CarriedRow(commit=Sha("0" * 39 + "1"), kind=CommitKind.PLAIN, subject="Never there")
    rewrite(forge, carried=(*forge.record.carried, stranger))
    assert "is listed in its record and not there" in verify(forge)["local"]
    rewrite(forge, carried=())
    assert "(Say what this fork follows) is not listed in its record" in verify(forge)["local"]


def test_a_merge_in_local_fails(forge: Forge) -> None:
    local, topic = forge.work.sha("local"), forge.work.sha("topic/empty-mean")
    tree = forge.work.git("rev-parse", "local^{tree}")
    merge = forge.work.git("commit-tree", "-p", local, "-p", topic, "-m", "Merge a topic", tree)
    forge.work.git("push", "-q", "origin", f"{merge}:refs/heads/local")
    assert "(Merge a topic) is a merge" in verify(forge)["local"]


def test_a_lightweight_archive_tag_fails(forge: Forge) -> None:
    tip = forge.origin.sha("topic/zero-size")
    forge.origin.tag(f"archive/topic-zero-size-{tip[:7]}", tip)
    problems = verify(forge)
    assert f"archive/topic-zero-size-{tip[:7]} is a lightweight tag" in problems["archive-annotated"]


def test_an_archive_tag_that_points_elsewhere_fails(forge: Forge) -> None:
    tip, other = forge.origin.sha("topic/zero-size"), forge.origin.sha("topic/empty-mean")
    name = f"archive/topic-zero-size-{tip[:7]}"
    forge.origin.tag(name, other, message="a mistake")
    problems = verify(forge)
    assert f"{name} points at {other[:12]}" in problems["archive-named"]
    assert f"{name} is not in the record" in problems["archive-recorded"]


def test_a_recorded_archive_tag_that_the_server_lost_fails(forge: Forge) -> None:
    forge.recut("archive", "topic/zero-size", "--label", "kept")
    (name,) = [ref for ref in forge.origin.tags() if "archive/kept-" in ref]
    problems = verify(forge)
    assert "is not in the record" in problems["archive-recorded"]
    forge.work.git("checkout", "-q", "local")
    forge.recut("record")
    forge.work.git("commit", "-qam", "Bring the record up to date")
    forge.work.git("push", "-q", "origin", "local")
    assert verify(forge, expect=0) == {}
    forge.origin.git("tag", "-d", name.removeprefix("refs/tags/"))
    assert "does not have it" in verify(forge)["archive-recorded"]


def test_a_landed_topic_must_be_in_local_and_an_open_one_must_not(forge: Forge) -> None:
    rows = tuple(
        msgspec.structs.replace(row, state=TopicState.LANDED, old=row.new) if row.topic == "zero-size" else row
        for row in forge.record.topics
    )
    rewrite(forge, topics=rows)
    assert "is not in local, though the topic has landed" in verify(forge)["landed"]
    forge.work.commit("local", "The mean of nothing is zero", EMPTY_MEAN)
    forge.work.git("push", "-q", "origin", "local")
    problems = verify(forge)
    assert "of the open topic empty-mean is in local as" in problems["open"]
    assert "(The mean of nothing is zero) is not listed" in problems["local"]


@pytest.mark.parametrize(
    ("upstream", "pull_request", "said"),
    [
        ("v0.7.0", "#42", "is not in the base"),
        ("v0.6.0", "#42", "the subject of"),
        ("v0.6.0", "", ""),
        ("1" * 40, "", "is not to be found"),
        (None, "", "the record names neither a commit nor a reason"),
    ],
)
def test_a_dropped_patch_must_be_in_the_base_by_the_commit_named(
    forge: Forge, upstream: str | None, pull_request: str, said: str
) -> None:
    commit = Sha(upstream) if upstream == "1" * 40 else forge.upstream.sha(upstream) if upstream else None
    row = DropRow(
        patch=forge.work.sha("topic/clamp-low"),
        topic="clamp-low",
        subject="Clamp at the lower limit",
        upstream=commit,
        pull_request=pull_request,
    )
    rewrite(forge, drops=(row,))
    problems = verify(forge, expect=1 if said else 0)
    assert said in problems.get("superseded", "")
    assert set(problems) <= {"superseded"}


def test_a_superseding_commit_that_touches_other_files_fails(bare_forge: Forge) -> None:
    tip = bare_forge.add_topic("notes", ("Add notes", {"NOTES": "a\n"}))
    row = DropRow(patch=tip, subject="Add notes", upstream=bare_forge.upstream.sha("v0.6.0"))
    rewrite(bare_forge, drops=(row,))
    assert "touches none of its files (NOTES)" in verify(bare_forge)["superseded"]


def test_evidence_must_be_reachable_from_a_ref(forge: Forge) -> None:
    lost = forge.work.git("commit-tree", "-p", "local", "-m", "a test build", "local^{tree}")
    good = "a" * 64
    row = EvidenceRow(what="wheel.whl", commit=Sha(lost), sha256=good)
    evidence = {"evidence/run.json": f'{{"commit": "{lost}", "sha1": "{"1" * 40}"}}\n'}
    plain = forge.work.commit("local", "Evidence", evidence)
    listed = CarriedRow(commit=plain, kind=CommitKind.PLAIN, subject="Evidence")
    rows = (row, EvidenceRow(what="b", commit=forge.record.base, sha256="b"))
    rewrite(forge, evidence=rows, carried=(*forge.record.carried, listed))
    problems = verify(forge)
    assert f"wheel.whl was made from {lost[:12]}, which no ref reaches" in problems["evidence"]
    assert f"an evidence file names {lost[:12]}, which no ref reaches" in problems["evidence"]
    assert "b: 'b' is no SHA-256" in problems["evidence"]
    assert "1" * 12 not in problems["evidence"]
    assert set(problems) == {"evidence"}


def test_pins_must_be_those_of_the_project_file(forge: Forge) -> None:
    rewrite(forge, pins=(Pin(name="arrays", requirement="arrays>=2.2"),))
    problem = verify(forge)["pins"]
    assert "pyproject.toml requires 'arrays>=2.1', not in the record" in problem
    assert "the record pins 'arrays>=2.2', which pyproject.toml does not require" in problem


def test_release_tags_must_say_what_they_are(forge: Forge) -> None:
    local, base = forge.origin.sha("local"), forge.record.base
    forge.origin.tag("v0.6.0-local01", local, message="good")
    forge.origin.tag("v0.6.0.20260801", base, message="good")
    forge.origin.tag("nightly", local)
    for side in (forge.upstream, forge.origin):
        side.git("fetch", "-q", str(forge.work.folder), base)
        side.tag("v1-legacy", base)
    assert verify(forge, expect=0) == {}
    forge.origin.tag("v0.7.0-local01", local, message="wrong base")
    forge.origin.tag("v0.6.0-local02", local)
    forge.origin.tag("v0.6.0.20260801-local01", local, message="mixed")
    forge.origin.tag("v0.6.0.20260802", local, message="devel with patches")
    forge.origin.tag("v9.9", base, message="not upstream's")
    problem = verify(forge)["tags"]
    assert "'v9.9' is no release of this fork" in problem
    assert "v1-legacy" not in problem
    assert "v0.7.0-local01 says v0.7.0, but" in problem
    assert "v0.6.0-local02 is a lightweight tag" in problem
    assert "'v0.6.0.20260801-local01' mixes a devel date with local patches" in problem
    assert "v0.6.0.20260802 is a devel release, but" in problem


def test_an_intermediate_tip_may_differ_in_tests_only(bare_forge: Forge) -> None:
    forge = bare_forge
    first = forge.add_topic("clamp-low", ("Clamp at the lower limit", CLAMP_LOW))
    forge.record_topics()
    forge.recut("archive", "topic/clamp-low")
    forge.amend_topic("clamp-low", "Test more", {"tests/test_more.py": "def test():\n    assert True\n"})
    run = forge.recut("verify", "--json", expect=1)
    assert set(failed(run)) == {"archive-recorded"}
    (check,) = [check for check in run.json["checks"] if check["id"] == "intermediate"]
    assert "1:  " in check["reading"] and "Clamp at the lower limit" in check["reading"]
    forge.amend_topic("clamp-low", "Think again", {"tally/limits.py": "clamp = None\n"})
    problem = verify(forge)["intermediate"]
    assert f"archive/topic-clamp-low-{first[:7]} and the final tip" in problem
    assert "differ outside tests" in problem


def test_a_topic_that_moved_on_since_the_record_is_a_note_and_no_failure(forge: Forge) -> None:
    forge.amend_topic("empty-mean", "Say why", {"tally/why.txt": "because\n"})
    run = forge.recut("verify", "--json")
    (check,) = [check for check in run.json["checks"] if check["id"] == "open"]
    assert any("empty-mean has moved on since the record" in detail for detail in check["details"])


def test_a_shallow_clone_and_a_missing_remote_are_refused(forge: Forge) -> None:
    (forge.work.folder / ".git" / "shallow").write_text(forge.record.base + "\n")
    assert "git fetch --unshallow" in forge.recut("verify", expect=5).err
    (forge.work.folder / ".git" / "shallow").unlink()
    forge.work.git("remote", "remove", "upstream")
    run = forge.recut("verify", expect=5)
    assert "there is no remote 'upstream'" in run.err


def test_a_topic_unknown_to_the_record_is_a_note(forge: Forge) -> None:
    rewrite(forge, topics=(TopicRow(topic="empty-mean", new=forge.work.sha("topic/empty-mean")),))
    run = forge.recut("verify", "--json")
    assert "zero-size is not in the record yet" in run.out


def test_the_manual_lists_every_check() -> None:
    manual = (Path(__file__).resolve().parents[2] / "docs" / "patch-stack.md").read_text()
    table = manual.partition("## Review")[2].partition("\n## ")[0]
    listed = [row.split(" | ")[0].removeprefix("| ") for row in table.split("\n") if row.startswith("| ")]
    assert listed == ["check", *CHECKS]
