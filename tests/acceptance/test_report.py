"""A report keeps what it was told: through JSON, as Markdown, as JUnit, and against another report."""

from __future__ import annotations

from xml.etree import ElementTree

import msgspec
import pytest

from acceptance.compare import compare
from acceptance.expected import Expected, first_difference
from acceptance.junit import render_junit
from acceptance.markdown import cell, render_markdown
from acceptance.report import (
    Artefact,
    Conclusion,
    Difference,
    Ending,
    Machine,
    Report,
    Result,
    Row,
    Side,
    parse,
    render,
)
from acceptance.tally import tally
from command.errors import InputError

FAILED = Result(
    ending=Ending.FAILED,
    detail="another | text <b>",
    difference=Difference(token=3, character=9, context="a\x00b", expected="x", got="`y`"),
    duration_s=1.5,
)
PASSED = Result(ending=Ending.PASSED, detail="ok")


def a_report(*, after: Result = PASSED, version: str = "1") -> Report:
    return Report(
        title="no-batch answers",
        made_by="tools/evidence run",
        made_at="2026-01-02T03:04:05+00:00",
        conclusion=Conclusion(holds=after is PASSED, text="after: passed 1/1"),
        machine=Machine(platform="Linux", processor="x86_64", python="3.11", versions={"mlx": "0.32.4"}),
        inputs={"lengths": "33"},
        before=Side(label="before", subject="old", commit="a" * 40),
        after=Side(
            label="after",
            subject="new",
            commit="b" * 40,
            versions={"version": version},
            artefacts=(Artefact(path="/bin/server", sha256="c" * 64),),
        ),
        shows={"length": "texts", "this machine": "the rest"},
        rows=(
            Row(matrix="length", case="33 tokens", before=FAILED, after=after),
            Row(matrix="this machine", case="Metal", after=Result(ending=Ending.NOT_PROVEN, detail="no Metal")),
        ),
    )


def test_a_report_reads_back_as_it_was_written() -> None:
    assert parse(render(a_report(after=FAILED)), source="x") == a_report(after=FAILED)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "evidence.report/0"}', '{"schema": "evidence.report/1"}'])
def test_what_is_no_report_is_refused_by_name(text: str) -> None:
    with pytest.raises(InputError, match=r"^x is no report of schema 'evidence\.report/1'"):
        parse(text, source="x")


def test_markdown_has_both_columns_the_difference_and_the_rows_that_are_not_proven() -> None:
    text = render_markdown(a_report())
    assert "| matrix | shows | before | after |" in text
    assert "| length | texts | 0/1 | 1/1 |" in text
    assert "| this machine | Metal | not run | ? not proven here | no Metal |" in text
    assert "first difference at token 3 (character 9), after 'a\\x00b'" in text
    assert "before: another \\| text &#60;b&#62;" in text
    assert "a" * 40 in text and "c" * 64 in text


def test_a_cell_can_neither_end_itself_nor_become_markup() -> None:
    assert cell("a|b\n*c* <i>`d`") == "a\\|b \\*c\\* &#60;i&#62;\\`d\\`"


def test_junit_is_valid_xml_and_counts_failures_and_what_was_not_shown() -> None:
    length, machine = ElementTree.fromstring(render_junit(a_report(after=FAILED)))
    assert (length.get("tests"), length.get("failures"), length.get("skipped")) == ("1", "1", "0")
    failure = length.find("testcase/failure")
    assert failure is not None and failure.get("message") == "another | text <b>"
    assert "token 3" in (failure.text or "")
    skipped = machine.find("testcase/skipped")
    assert skipped is not None and skipped.get("message") == "not proven here: no Metal"


def test_a_comparison_names_versions_ids_inputs_and_rows() -> None:
    first = a_report()
    second = msgspec.structs.replace(
        a_report(after=FAILED, version="2"), inputs={"lengths": "33, 64"}, machine=Machine(
            platform="Linux", processor="x86_64", python="3.11", versions={"mlx": "0.33.0"}
        )
    )  # fmt: skip
    found = compare(first, second)
    assert [(c.what, c.was, c.now) for c in found.versions] == [
        ("reference: mlx", "0.32.4", "0.33.0"),
        ("after: version", "1", "2"),
    ]
    assert found.ids == ()
    assert [(c.what, c.was, c.now) for c in found.inputs] == [("lengths", "33", "33, 64")]
    assert [(r.matrix, r.case, r.was, r.now, r.why) for r in found.regressions] == [
        ("length", "33 tokens", "passed", "failed", "another | text <b>")
    ]
    assert found.n_same == 1
    assert compare(second, first).regressions == (), "a row that came right is a change, but none for the worse"
    assert compare(first, first).rows == ()


def test_a_tally_counts_only_what_was_tried() -> None:
    skipped = Result(ending=Ending.DOES_NOT_APPLY)
    assert tally([PASSED, FAILED, skipped, None]) == "1/2, 1 does not apply"
    assert tally([skipped]) == "does not apply"
    assert tally([None]) == "-"


@pytest.mark.parametrize(
    ("got", "token", "character"), [("one twx", 1, 6), ("", 0, 0), ("one", 1, 3), ("one two three", None, 7)]
)
def test_the_first_difference_is_the_token_whose_text_is_left(got: str, token: int | None, character: int) -> None:
    expected = Expected(tokens=(5, 6), pieces=("one", " two"), finish="length", n_prompt_tokens=1)
    found = first_difference(expected, got)
    assert found is not None and (found.token, found.character) == (token, character)
    assert first_difference(expected, "one two") is None
