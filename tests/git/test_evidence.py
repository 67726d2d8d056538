"""prove -o writes a report as tools/evidence does; record --evidence takes only one that can be made again."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from acceptance import report as page
from acceptance.report import Artefact, Conclusion, Ending, Machine, Report, Result, Row, Side
from patchstack.record import parse
from tests.git.forge import Forge

SHA256 = "5d" * 32


def evidence(forge: Forge, *, holds: bool = True, **after: Any) -> Report:
    """A report of one row about local's tip; `after` replaces what it says of that side."""
    side = Side(
        label="after",
        subject="bin/tally",
        commit=forge.origin.sha("local"),
        artefacts=(Artefact(path="bin/tally", sha256=SHA256), Artefact(path="bin/tally|x", sha256=SHA256)),
    )
    return Report(
        title="tally",
        made_by="tools/evidence run",
        made_at="2026-01-01T00:00:00+00:00",
        conclusion=Conclusion(holds=holds, text="one row."),
        machine=Machine(platform="any", processor="any", python="3"),
        inputs={},
        after=msgspec.structs.replace(side, **after),
        shows={"count": "that it counts"},
        rows=(Row(matrix="count", case="one", after=Result(ending=Ending.PASSED)),),
    )


def write(forge: Forge, report: Report) -> str:
    file = forge.root / "evidence.json"
    file.write_text(page.render(report))
    return str(file)


def test_a_proof_is_written_as_a_report_with_the_tree_without_the_fix_before(forge: Forge, tmp_path: Path) -> None:
    before = forge.work.refs(), forge.work.checkout()
    forge.recut("prove", "empty-mean", "-o", str(tmp_path / "out"))
    assert (forge.work.refs(), forge.work.checkout()) == before
    text = (tmp_path / "out" / "evidence.json").read_text()
    report = page.parse(text, source="evidence.json")
    assert page.render(report) == text
    tip = forge.work.sha("topic/empty-mean")
    assert report.before is not None
    assert [(side.label, side.commit) for side in report.sides] == [("without the fix", tip), ("with the fix", tip)]
    assert (report.before.is_dirty, report.after.is_dirty) == (True, False)
    (row,) = report.rows
    assert (row.matrix, row.case) == ("prove", "tests.test_empty_mean::test_the_mean_of_nothing_is_zero")
    assert row.before == Result(ending=Ending.FAILED, detail="ZeroDivisionError: division by zero")
    assert row.after == Result(ending=Ending.PASSED)
    assert report.conclusion == Conclusion(
        holds=True, text="proved: the test fails without the fix and passes with it."
    )
    assert report.made_by == "tools/recut prove empty-mean"
    assert report.inputs["fix files"] == "tally/stats.py"
    assert "| prove | tests.test" in (tmp_path / "out" / "evidence.md").read_text()
    suites = ElementTree.fromstring((tmp_path / "out" / "junit.xml").read_bytes())
    assert [case.get("name") for case in suites.iter("testcase")] == [row.case]


def test_a_proof_that_fails_is_written_too_and_does_not_hold(bare_forge: Forge, tmp_path: Path) -> None:
    bare_forge.add_topic("only-test", ("Test", {"tests/test_one.py": "def test():\n    assert 1 == 1\n"}))
    bare_forge.recut("prove", "only-test", "-o", str(tmp_path), expect=1)
    report = page.parse((tmp_path / "evidence.json").read_text(), source="evidence.json")
    assert not report.conclusion.holds
    assert report.conclusion.text.startswith("no fix: ")


def test_each_artefact_of_a_report_becomes_a_row_once(forge: Forge) -> None:
    forge.work.git("checkout", "-q", "local")
    old = forge.record
    file = write(forge, evidence(forge))
    refs = forge.work.refs(), forge.origin.refs()
    forge.recut("record", "--evidence", file)
    text = (forge.work.folder / "UPSTREAM.md").read_text()
    new = parse(text)
    tip = forge.origin.sha("local")
    assert [(row.what, row.commit, row.sha256) for row in new.evidence[len(old.evidence) :]] == [
        ("bin/tally", tip, SHA256),
        ("bin/tally|x", tip, SHA256),
    ]
    assert msgspec.structs.replace(new, evidence=old.evidence) == old
    assert "says what the repository says" in forge.recut("record", "--evidence", file).out
    assert (forge.work.folder / "UPSTREAM.md").read_text() == text
    assert (forge.work.refs(), forge.origin.refs()) == refs


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"holds": False}, "the report does not hold: one row."),
        ({"is_dirty": True}, "the tree of 'after' had changes that no commit holds"),
        ({"commit": ""}, "the report does not say which commit 'after' was made from"),
        ({"commit": "ab" * 20}, f"reaches {'ab' * 20}"),
        ({"artefacts": ()}, "names no artefact"),
    ],
)
def test_a_report_that_cannot_be_made_again_is_refused(forge: Forge, change: dict[str, Any], reason: str) -> None:
    forge.work.git("checkout", "-q", "local")
    before = forge.work.checkout()
    run = forge.recut("record", "--evidence", write(forge, evidence(forge, **change)), expect=5)
    assert reason in run.err
    assert forge.work.checkout() == before


def test_what_is_no_report_and_a_check_that_would_write_are_the_callers_errors(forge: Forge) -> None:
    forge.work.git("checkout", "-q", "local")
    before = forge.work.checkout()
    file = write(forge, evidence(forge))
    assert "--check writes nothing" in forge.recut("record", "--check", "--evidence", file, expect=2).err
    Path(file).write_text("{}")
    assert "is no report of schema" in forge.recut("record", "--evidence", file, expect=2).err
    assert "cannot be read" in forge.recut("record", "--evidence", f"{file}.gone", expect=2).err
    assert forge.work.checkout() == before
