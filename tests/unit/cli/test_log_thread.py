"""A log that cannot be written is told of in one line, and so is its return."""

from __future__ import annotations

import io
import logging

import pytest

from mlxcel.cli.log_thread import LogThread


class Disk(io.StringIO):
    """A file that may be full."""

    is_full = False

    def write(self, text: str) -> int:
        if self.is_full:
            raise OSError(28, "No space left on device")
        return super().write(text)


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("mlxcel", logging.INFO, "", 0, text, None, None)


def test_a_full_disk_is_one_line_on_stderr_and_its_end_another(capsys: pytest.CaptureFixture[str]) -> None:
    disk = Disk()
    log = LogThread(logging.StreamHandler(disk))
    for is_full, texts in ((False, "a"), (True, "bcd"), (False, "ef"), (True, "g"), (False, "h")):
        disk.is_full = is_full
        for text in texts:
            log.handle(record(text))
        log.flush()
    assert disk.getvalue().split() == ["a", "e", "f", "h"]
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "the log cannot be written: [Errno 28] No space left on device; the server goes on" in lines[0]
    assert "the log is written again; up to 3 lines of it are missing" in lines[1]
