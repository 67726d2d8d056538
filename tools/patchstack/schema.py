"""The JSON Schema of everything that `--json` prints: docs/recut.schema.json is this module's output.

    .venv/bin/python -m patchstack.schema > docs/recut.schema.json    (with tools/ on the path)

A name ends in its version. A field may be added within a version; one that goes or changes its meaning makes
a new version.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from command.edge import ErrorReport
from command.errors import Outcome

from . import audit, bookkeeping, drift, integrate, plan, prove, report, scan, status

ANSWERS: dict[str, type[msgspec.Struct]] = {
    plan.SCHEMA: plan.Plan,
    report.RUN_SCHEMA: report.RunReport,
    report.LOG_SCHEMA: report.Log,
    report.ERROR_SCHEMA: ErrorReport,
    status.SCHEMA: status.Status,
    scan.SCHEMA: scan.Scan,
    integrate.SCHEMA: integrate.Integration,
    audit.SCHEMA: audit.Audit,
    drift.SCHEMA: drift.Drift,
    bookkeeping.SCHEMA: bookkeeping.RecordReport,
    prove.SCHEMA: prove.Proof,
}

OUTCOMES = tuple(outcome for outcome in Outcome if outcome is not Outcome.REFERENCE_FAILED)
"""How a command of this tool may end: it makes no reference."""


def json_schema() -> dict[str, Any]:
    """One schema for any answer, told apart by its `schema`; a plan is its own file and has no `outcome`."""
    references, definitions = msgspec.json.schema_components(ANSWERS.values(), ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What tools/recut --json prints",
        "type": "object",
        "oneOf": [
            {"allOf": [{"properties": _envelope(name), "required": list(_envelope(name))}, reference]}
            for name, reference in zip(ANSWERS, references, strict=True)
        ],
        "$defs": definitions,
    }


def _envelope(name: str) -> dict[str, Any]:
    marks: dict[str, Any] = {"schema": {"const": name}}
    if name != plan.SCHEMA:
        marks["outcome"] = {"enum": [outcome.value for outcome in OUTCOMES]}
    return marks


def encoded() -> bytes:
    return msgspec.json.format(msgspec.json.encode(json_schema()), indent=2) + b"\n"


if __name__ == "__main__":
    sys.stdout.buffer.write(encoded())
