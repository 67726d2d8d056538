"""Our server passes every matrix on the tiny model, and the tool says so in three files."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from acceptance.report import Ending, parse
from tests.acceptance.conftest import FLAGS, OURS, ROOT, Judged


@pytest.mark.parametrize(
    ("matrix", "only"),
    [
        pytest.param("abort", "in decode, whole", marks=pytest.mark.long),
        ("eos", "nested config"),
        ("bos", "both write it"),
        pytest.param("queue", "depth 2", marks=pytest.mark.long),
    ],
)
def test_our_server_passes(judged: Judged, matrix: str, only: str) -> None:
    report = judged(OURS, matrix, only=only)
    assert report.conclusion.holds, report.conclusion.text
    assert report.after.versions["version"]


def test_a_run_writes_markdown_json_and_junit_and_exits_0(tiny_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    flags = [word for name, flag in FLAGS.items() for word in ("--flag", f"{name}={flag}")]
    amount = "--matrix batch,length,no-batch --lengths 1,257 --no-batch-lengths 33 --tokens 12 --batch-size 4".split()
    limits = ["--request-timeout", "30", "--start-timeout", "60", "--lock-file", str(tmp_path / "lock")]
    done = subprocess.run(
        [ROOT / "tools/evidence", "run", "--server", OURS, "--model", tiny_model, *flags, *amount, *limits, "-o", out],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = parse((out / "evidence.json").read_text(), source="evidence.json")
    in_order = [row.matrix for row in report.rows]
    assert in_order == ["length"] * 2 + ["no-batch"] * 2 + ["batch"] * 5 + ["this machine"] * 3
    assert all(row.after and row.after.ending is Ending.PASSED for row in report.rows[:-3])
    assert len(report.after.commit) == 40 and report.after.artefacts
    assert {"mlx", "mlx-lm"} <= report.machine.versions.keys()
    assert json.loads((out / "evidence.json").read_text())["schema"] == "evidence.report/1"
    suites = {suite.get("name"): suite for suite in ElementTree.parse(out / "junit.xml").getroot()}
    assert suites["length"].get("tests") == "2" and suites["length"].get("failures") == "0"
    markdown = (out / "evidence.md").read_text()
    assert "| length | " in markdown and "| 2/2 |" in markdown
    assert "| this machine | started by launchctl | ? not proven here |" in markdown
