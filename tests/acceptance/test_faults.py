"""Every fault of a server is found, by the matrix that is there for it, and none stops the tool."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from acceptance.report import Ending, Report, Row, parse
from tests.acceptance.conftest import ROOT, SOUND, Judged

FAULTS = {
    "wrong-eos": ("eos", "nested config", "the text goes on after token"),
    "doubled-bos": ("bos", "both write it", "a chat: 25 prompt tokens, not 24"),
    "batch-text": ("batch", "2 at once", "at once against alone: another text from token"),
    "leaked-slots": ("abort", "in decode, streamed", "places were still taken"),
    "deaf": ("abort", "in decode, whole", "after 3 clients had left"),
    "forgetful-queue": ("queue", "depth 2", "was accepted and then lost: no whole answer within 4 s"),
    "bare-refusal": ("queue", "depth 0", "refused with 500, not with 503 or 429"),
    "zero-capacity": ("no-batch", "33", "CachePool: max capacity (0) reached"),
    "wrong-tile": ("length", "257", "another text from token"),
    "hang": ("length", "", "no whole answer within 2 s"),
    "crash": ("length", "", "the server died: signal SIGABRT"),
}
LIMITS: dict[str, dict[str, object]] = {
    "batch-text": {"n_tokens": 96},  # long enough that two requests meet on a busy machine
    "forgetful-queue": {"request_s": 4.0},
    "wrong-tile": {"lengths": (255, 257)},
    "hang": {"lengths": (33, 129, 200, 255), "request_s": 2.0, "stop_s": 0.5},
    "crash": {"lengths": (33, 129, 200, 255)},
}


def tried(report: Report) -> list[Row]:
    return [row for row in report.rows if row.after and row.after.ending in (Ending.PASSED, Ending.FAILED)]


def details(report: Report, ending: Ending) -> dict[str, str]:
    return {row.case: row.after.detail for row in report.rows if row.after and row.after.ending is ending}


WAITS = ("forgetful-queue", "deaf")
"""Shown by waiting in vain, again and again."""


@pytest.mark.parametrize(
    "fault", [pytest.param(fault, marks=[pytest.mark.long] if fault in WAITS else []) for fault in FAULTS]
)
def test_a_fault_is_found_by_its_matrix_and_said_in_words(judged: Judged, fault: str) -> None:
    matrix, only, words = FAULTS[fault]
    report = judged(f"{SOUND} --fault {fault}", matrix, only=only, **LIMITS.get(fault, {}))
    failed = details(report, Ending.FAILED)
    assert not report.conclusion.holds
    assert any(words in detail for detail in failed.values()), failed
    assert f"failed: {matrix} (" in report.conclusion.text
    if fault == "batch-text":
        found = next(row.after.difference for row in report.rows if row.after and row.after.difference)
        assert found.token and 0 < len(found.context) <= found.character and found.expected[0] != found.got[0]
    if fault in ("hang", "crash"):
        assert "33 tokens" not in failed, "the row before the fault passed, and still counts"
        assert "not tried" in failed["255 tokens"], "a server that is lost twice is not tried for ever"


@pytest.mark.parametrize(
    ("matrix", "only"),
    [
        ("eos", "nested config"),
        ("bos", "both write it"),
        ("abort", "in decode, whole"),
        pytest.param("queue", "depth 2", marks=pytest.mark.long),
    ],
)
def test_the_same_rows_pass_where_the_server_is_sound(judged: Judged, matrix: str, only: str) -> None:
    report = judged(SOUND, matrix, only=only)
    assert report.conclusion.holds, details(report, Ending.FAILED)
    assert [row.case for row in tried(report)] == [row.case for row in tried(report) if only in row.case] != []


def test_a_server_that_cannot_start_is_a_failed_row(judged: Judged) -> None:
    report = judged("sh -c 'echo no such model >&2; exit 78' {port} {args}", "length")
    assert details(report, Ending.FAILED) == {"33 tokens": "the server died: exit code 78; its log ends: no such model"}


def test_a_server_that_never_answers_is_a_failed_row_and_is_ended(judged: Judged) -> None:
    report = judged(
        "sh -c 'trap \"\" TERM; while :; do sleep 1; done' {port} {args}", "length", start_s=0.5, stop_s=0.2
    )
    assert "was not ready within 0.5 s" in details(report, Ending.FAILED)["33 tokens"]
    assert report.after.notes == ("killed, since it had not ended 0.2 s after SIGTERM",)


def test_what_a_server_has_no_flag_for_does_not_apply_and_what_this_machine_cannot_show_is_listed(
    judged: Judged,
) -> None:
    report = judged("http://127.0.0.1:9", "no-batch", "eos", "queue")
    assert not report.conclusion.holds, "nothing was tried, so nothing is shown"
    assert not tried(report)
    assert set(details(report, Ending.NOT_PROVEN)) >= {"started by launchctl", "a binary built by the port"}
    reasons = set(details(report, Ending.DOES_NOT_APPLY).values())
    assert "the server is a URL, so it cannot be started with other flags" in reasons
    assert "the server cannot be started with another model folder" in reasons


def test_an_interrupted_run_ends_its_server_and_keeps_the_rows_that_it_made(tiny_model: Path, tmp_path: Path) -> None:
    limits = ["--request-timeout", "60", "--stop-timeout", "0.5", "--lock-file", str(tmp_path / "lock")]
    amount = ["--matrix", "length", "--lengths", "33,129", "-o", str(tmp_path / "out")]
    words = [
        "run",
        "--server",
        f"{SOUND} --fault hang".replace("{args}", ""),
        "--model",
        str(tiny_model),
        *amount,
        *limits,
    ]
    tool = subprocess.Popen(
        [str(ROOT / "tools/evidence"), *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with tool:
        assert tool.stderr is not None
        assert "33 tokens" in tool.stderr.readline()
        tool.send_signal(signal.SIGINT)
        out, _ = tool.communicate(timeout=60)
    assert tool.returncode == 1, out
    report = parse((tmp_path / "out" / "evidence.json").read_text(), source="evidence.json")
    assert details(report, Ending.PASSED).keys() == {"33 tokens"}
    assert not report.conclusion.holds and report.conclusion.text.startswith("interrupted, so rows are missing")
