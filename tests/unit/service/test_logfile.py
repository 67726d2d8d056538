"""The server's own log, which is bounded and opened anew."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlxcel.errors import ConfigError
from mlxcel.service.logfile import MAX_BYTES, N_OLD_FILES, LogFile


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogFile]:
    log = LogFile(tmp_path / "mlxcel.log")
    yield log
    log.close()


def write(log: LogFile, text: str) -> None:
    log.handle(logging.LogRecord("mlxcel", logging.INFO, __file__, 1, text, None, None))


def test_after_a_rename_the_log_goes_on_in_the_old_file_until_it_is_opened_anew(log: LogFile, tmp_path: Path) -> None:
    write(log, "one")
    (tmp_path / "mlxcel.log").rename(tmp_path / "old")
    write(log, "two")
    log.reopen()
    write(log, "three")
    assert (tmp_path / "old").read_text() == "one\ntwo\n"
    assert (tmp_path / "mlxcel.log").read_text() == "three\n"


def test_it_stays_bounded_by_itself(log: LogFile, tmp_path: Path) -> None:
    for _ in range(N_OLD_FILES + 3):
        write(log, "x" * (MAX_BYTES - 1))
    files = list(tmp_path.iterdir())
    assert len(files) == N_OLD_FILES + 1
    assert max(file.stat().st_size for file in files) <= MAX_BYTES


def test_a_log_that_cannot_be_opened_is_a_setting_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="log_file"):
        LogFile(tmp_path / "missing" / "mlxcel.log")


def test_a_log_that_is_a_pipe_is_refused_by_name_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="is a pipe"):
        LogFile(tmp_path / "pipe")
