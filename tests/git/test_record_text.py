"""UPSTREAM.md as text: what is rendered reads back the same, and a hand edit gone wrong names its line."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command.errors import Outcome, ToolError
from patchstack.record import COLUMNS, parse, render
from patchstack.stack import (
    ArchiveTag,
    CarriedRow,
    CommitKind,
    DropRow,
    EvidenceRow,
    Pin,
    Record,
    RecutRow,
    Sha,
    TopicRow,
    TopicState,
)
from patchstack.table import opening

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.text(
    "\\|<>&`#; \t\n\r\x85\u2028br!-1", max_size=8
)
shas = st.text("0123456789abcdef", min_size=40, max_size=40).map(Sha)
tags = st.from_regex(r"archive/[a-z][a-z.-]{0,9}-[0-9a-f]{7}", fullmatch=True)
records = st.builds(
    Record,
    base=shas,
    describe=texts,
    base_date=texts,
    pins=st.lists(st.builds(Pin, name=texts, requirement=texts), max_size=2).map(tuple),
    topics=st.lists(
        st.builds(
            TopicRow,
            topic=texts,
            issue=texts,
            pull_request=texts,
            old=st.none() | shas,
            new=st.none() | shas,
            archive_tag=st.just("") | tags,
            state=st.sampled_from(TopicState),
            note=texts,
        ),
        max_size=2,
    ).map(tuple),
    carried=st.lists(
        st.builds(CarriedRow, commit=shas, kind=st.sampled_from(CommitKind), topic=texts, subject=texts),
        max_size=2,
    ).map(tuple),
    recuts=st.lists(
        st.builds(
            RecutRow,
            date=texts,
            base_old=shas,
            base_new=shas,
            local_old=shas,
            archive_tags=st.lists(tags, max_size=3).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
    archive=st.lists(
        st.builds(ArchiveTag, label=st.from_regex(r"[a-z][a-z0-9.-]{0,9}", fullmatch=True), commit=shas),
        max_size=2,
    ).map(tuple),
    drops=st.lists(
        st.builds(
            DropRow,
            patch=shas,
            topic=texts,
            subject=texts,
            upstream=st.none() | shas,
            pull_request=texts,
            reason=texts,
        ),
        max_size=2,
    ).map(tuple),
    evidence=st.lists(st.builds(EvidenceRow, what=texts, commit=shas, sha256=shas), max_size=2).map(tuple),
)


@settings(max_examples=40, deadline=None)
@given(records)
def test_a_record_reads_back_the_same(record: Record) -> None:
    page = render(record)
    assert parse(page) == record
    assert render(record, page) == page
    assert parse(page.replace("\n", "\r\n")) == record


@settings(max_examples=40, deadline=None)
@given(records, records)
def test_only_the_tables_change_when_a_page_is_rendered_again(old: Record, new: Record) -> None:
    prose = render(old).replace("## Topics", "## Topics\n\nOur own words: `a|b`, <!-- a comment -->, caf\u00e9.")
    again = render(new, prose)
    assert parse(again) == new
    assert _prose(again) == _prose(prose)


def _prose(page: str) -> list[str]:
    kept, inside = [], False
    for line in page.split("\n"):
        inside = inside or line in {opening(name) for name in COLUMNS}
        if not inside:
            kept.append(line)
        inside = inside and not line.startswith("<!-- /recut:")
    return kept


ONE = Record(
    base=Sha("a" * 40),
    describe="v0.6.0-2-gaaaaaaa",
    base_date="2026-01-31",
    topics=(TopicRow(topic="no-batch-500", new=Sha("b" * 40), archive_tag="archive/topic-x-bbbbbbb"),),
    archive=(ArchiveTag(label="topic-y", commit=Sha("c" * 40)),),
)


@pytest.mark.parametrize(
    ("change", "line_of", "said"),
    [
        (
            ("`" + "b" * 40 + "`", "bbbbbbb"),
            "no-batch-500",
            "'new tip' is 'bbbbbbb', expected a full commit id",
        ),
        (("| open |", "| opened |"), "no-batch-500", "expected one of open, landed, superseded, withdrawn"),
        (("| open |", "| open | open |"), "no-batch-500", "9 cells where the table 'topics' has 8"),
        (("| package | requirement |", "| package | version |"), "| package", "must begin with its heading"),
        (("<!-- /recut:topics -->", ""), "<!-- recut:topics", "has no closing line <!-- /recut:topics -->"),
        (("## Topics", "<!-- recut:topics -->"), "<!-- recut:topics", "a second marker"),
        (("| `" + "a" * 40 + "` | v0.6.0-2-gaaaaaaa | 2026-01-31 |\n", ""), "", "has 0 rows where one base"),
        (("archive/topic-y-ccccccc", "archive/topic-y-ddddddd"), "topic-y", "after the commit beside it"),
        (("<!-- recut:evidence -->", "<!-- recut:proof -->"), "<!-- /recut:evidence", "has no opening line"),
    ],
)
def test_a_hand_edit_gone_wrong_names_its_line_and_the_way_on(change: tuple[str, str], line_of: str, said: str) -> None:
    page = render(ONE).replace(*change)
    with pytest.raises(ToolError) as refusal:
        parse(page)
    lines = [at for at, line in enumerate(page.split("\n"), 1) if line_of in line]
    reason = refusal.value.reasons[0]
    assert said in reason
    if line_of:
        assert any(f"UPSTREAM.md line {line}:" in reason for line in lines), (reason, lines)
    assert refusal.value.outcome is Outcome.REFUSED
    assert any("git checkout HEAD -- UPSTREAM.md" in step for step in refusal.value.next_steps)


def test_a_table_that_a_person_aligned_by_hand_still_reads() -> None:
    page = (
        render(ONE)
        .replace("|---|---|---|", "|:--|:-:|--:|")
        .replace("| no-batch-500 | open |", "|no-batch-500|\topen  |")
    )
    assert parse(page) == ONE
