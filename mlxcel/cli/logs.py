"""The log: one line a record, as text or as JSON, and nothing in it that a client could forge a line with."""

from __future__ import annotations

import json
import logging
import re
import time
from typing import Any

from mlxcel.api.access_log import FIELDS
from mlxcel.cli.log_thread import LogThread

_PLAIN = re.compile(r"[!#-<>-\[\]-~]+")


def set_up_logs(handler: logging.Handler, log_format: str) -> LogThread:
    """Write every log of the process to the handler, as "text" or "json"; flush what is returned at the end."""
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    thread = LogThread(handler)
    logging.basicConfig(level=logging.INFO, handlers=[thread])
    # uvicorn tells of each start, stop and refusal, which our own lines do.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    return thread


class TextFormatter(logging.Formatter):
    """`TIME LEVEL NAME: message key=value ...`; a traceback follows, each line of it indented."""

    def format(self, record: logging.LogRecord) -> str:
        parts = [f"{_time_of(record)} {record.levelname} {record.name}: {escaped(record.getMessage())}"]
        parts += [f"{name}={_text_value(value)}" for name, value in _fields_of(record).items()]
        trace = "".join(f"\n    {escaped(line)}" for line in _trace_of(record, self).splitlines())
        return " ".join(parts) + trace


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, logger, message, the record's fields, and exception where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {"time": _time_of(record), "level": record.levelname, "logger": record.name}
        line |= {"message": record.getMessage(), **_fields_of(record)}
        if trace := _trace_of(record, self):
            line["exception"] = trace
        return json.dumps(line, default=str)


def escaped(text: str) -> str:
    """Text without control characters, lone surrogates, or anything else that a terminal would act on."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _text_value(value: Any) -> str:
    if value is None:
        return "-"
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _time_of(record: logging.LogRecord) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z"


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = getattr(record, FIELDS, {})
    return fields


def _trace_of(record: logging.LogRecord, formatter: logging.Formatter) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info else ""
