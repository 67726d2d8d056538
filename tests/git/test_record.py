"""record: the tables follow the repository, the page around them and the rest of the checkout stay."""

from __future__ import annotations

from patchstack.record import parse
from patchstack.stack import TopicState
from tests.git.forge import Forge


def at_local(forge: Forge) -> None:
    forge.work.git("checkout", "-q", "local")


def test_a_current_record_is_left_alone_and_check_writes_nothing(forge: Forge) -> None:
    at_local(forge)
    before = forge.work.checkout()
    assert "says what the repository says" in forge.recut("record", "--check").out
    assert forge.recut("record", "--json").json["written"] is None
    forge.amend_topic("empty-mean", "Say why", {"tally/why.txt": "because\n"})
    run = forge.recut("record", "--check", expect=1)
    assert forge.work.sha("topic/empty-mean") in run.out
    assert "Nothing was changed." in run.out
    assert forge.work.checkout() == before


def test_it_brings_the_tables_up_to_date_and_keeps_what_people_wrote(forge: Forge) -> None:
    at_local(forge)
    page = forge.work.folder / "UPSTREAM.md"
    text = page.read_text().replace("## Topics\n", "## Topics\n\nOur own words.\n")
    text = text.replace("| empty-mean | open |  |  |", "| empty-mean | open | #7 | #8 |")
    page.write_bytes(text.replace("\n", "\r\n").encode())
    tip = forge.amend_topic("empty-mean", "Say why", {"tally/why.txt": "because\n"})
    new = forge.work.commit("topic/fresh", "A fresh topic", {"fresh": "x\n"}, start=forge.record.base)
    forge.work.git("push", "-q", "origin", "topic/fresh")
    before, refs = forge.work.checkout(), (forge.work.refs(), forge.origin.refs())
    run = forge.recut("record")
    assert "is up to date again" in run.out
    record = parse(page.read_text())
    rows = {row.topic: row for row in record.topics}
    assert rows["empty-mean"].new == tip
    assert (rows["empty-mean"].issue, rows["empty-mean"].pull_request) == ("#7", "#8")
    assert (rows["fresh"].new, rows["fresh"].state) == (new, TopicState.OPEN)
    assert "Our own words." in page.read_text()
    assert page.read_bytes().count(b"\n") == page.read_bytes().count(b"\r\n")
    after = forge.work.checkout()
    assert (after.head, after.index, after.config) == (before.head, before.index, before.config)
    assert [file for file in after.files if file not in before.files] == [("UPSTREAM.md", page.read_bytes())]
    assert (forge.work.refs(), forge.origin.refs()) == refs


def test_a_tag_that_pins_this_very_record_is_not_missed(forge: Forge) -> None:
    forge.recut("archive", "local")
    assert "says what the repository says" in forge.recut("record", "--check").out
    forge.recut("archive", "topic/zero-size")
    assert "+| `archive/topic-zero-size-" in forge.recut("record", "--check", expect=1).out


def test_a_broken_page_is_refused_and_not_overwritten(forge: Forge) -> None:
    at_local(forge)
    page = forge.work.folder / "UPSTREAM.md"
    text = page.read_text()
    line = text.split("\n").index("<!-- recut:pins -->") + 1
    page.write_text(text.replace("<!-- /recut:pins -->\n", ""))
    before = forge.work.checkout()
    run = forge.recut("record", expect=5)
    assert f"UPSTREAM.md line {line}: the table 'pins' has no closing line <!-- /recut:pins -->" in run.err
    assert "git checkout HEAD -- UPSTREAM.md" in run.err
    assert forge.work.checkout() == before


def test_a_checkout_without_local_is_refused(forge: Forge) -> None:
    forge.work.git("checkout", "-q", "--detach", "topic/empty-mean")
    before = forge.work.checkout()
    run = forge.recut("record", expect=5)
    assert "your checkout does not contain local's tip" in run.err
    assert forge.work.checkout() == before


def test_a_fork_without_a_record_gets_its_first_page(bare_forge: Forge) -> None:
    forge = bare_forge
    forge.work.commit("local", "Lose the record", {"UPSTREAM.md": None})
    forge.work.git("push", "-q", "origin", "local")
    at_local(forge)
    forge.recut("record")
    record = parse((forge.work.folder / "UPSTREAM.md").read_text())
    assert record.base == forge.upstream.sha("v0.6.0")
    assert [row.subject for row in record.carried] == ["Say what this fork follows"]
