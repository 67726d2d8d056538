"""No text that reaches the log can look like a line of it."""

from __future__ import annotations

import io
import json
import logging
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.api.access_log import FIELDS
from mlxcel.cli.logs import JsonFormatter, TextFormatter

HOSTILE = 'a\n2026-01-01T00:00:00.000Z INFO mlxcel: forged\r\x1b[2J\u2028\x85\x00\u202e\ud800 "b" = c'


def written(formatter: logging.Formatter, message: str, fields: dict[str, object], *, fails: bool = False) -> str:
    """What a stream gets of one record."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    try:
        raise ValueError(message if fails else "")
    except ValueError:
        failure = sys.exc_info() if fails else None
    record = logging.LogRecord("mlxcel", logging.INFO, "", 0, "%s", (message,), failure)
    setattr(record, FIELDS, fields)
    handler.emit(record)
    return stream.getvalue()


@given(st.text(), st.text())
def test_a_record_is_one_line_of_printable_text(message: str, value: str) -> None:
    for text in (HOSTILE, message):
        line = written(TextFormatter(), text, {"field": value, "other": text})
        assert line.endswith("\n") and line[:-1].isprintable()
        line = written(JsonFormatter(), text, {"field": value, "other": text})
        assert line.isascii() and line.count("\n") == 1
        read = json.loads(line)
        assert (read["message"], read["field"], read["other"]) == (text, value, text)


def test_a_traceback_follows_indented_or_inside_the_object() -> None:
    first, *rest = written(TextFormatter(), HOSTILE, {}, fails=True).splitlines()
    assert first.isprintable() and len(rest) > 2
    assert all(line.startswith("    ") and line.isprintable() for line in rest)
    read = json.loads(written(JsonFormatter(), HOSTILE, {}, fails=True))
    assert "Traceback" in read["exception"] and "forged" in read["exception"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "-"), (7, "7"), (1.5, "1.5"), ("plain/value:1", "plain/value:1"), ("", '""'), ("a b", '"a b"'),
     ("a=b", '"a=b"'), ('"', r'"\""'), ("\u00e9", r'"\u00e9"')],
)  # fmt: skip
def test_a_value_that_could_be_read_as_another_is_quoted(value: object, shown: str) -> None:
    assert written(TextFormatter(), "m", {"x": value, "y": 1}).endswith(f" INFO mlxcel: m x={shown} y=1\n")
