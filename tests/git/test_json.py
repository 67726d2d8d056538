"""--json: what is printed has the form that docs/recut.schema.json says, and that file is up to date."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from command.errors import EXIT_CODES
from patchstack.schema import ANSWERS, OUTCOMES, encoded
from tests.git.forge import Forge, Run

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_schema_in_docs_is_the_programs_own_and_every_form_is_in_the_manual() -> None:
    assert (DOCS / "recut.schema.json").read_bytes() == encoded(), "see patchstack/schema.py for how to renew it"
    manual = (DOCS / "recut-json.md").read_text()
    assert set(re.findall(r"`(recut\.\w+/\d+)`", manual)) == set(ANSWERS)
    for outcome in OUTCOMES:
        assert f"{outcome.value} {EXIT_CODES[outcome]}" in manual.replace("\n ", "")


def read(run: Run, schema: str) -> None:
    """The answer has exactly the fields of its type, whatever the outcome."""
    fields = dict(run.json)
    assert fields["schema"] == schema
    if schema != "recut.plan/1":
        del fields["schema"]
        assert EXIT_CODES_BY_NAME[fields.pop("outcome")] == run.code
    value = msgspec.convert(fields, ANSWERS[schema])
    assert msgspec.json.decode(msgspec.json.encode(value)) == fields


EXIT_CODES_BY_NAME = {outcome.value: code for outcome, code in EXIT_CODES.items()}


def test_every_command_answers_in_its_form(forge: Forge) -> None:
    read(forge.recut("status", "--json"), "recut.status/1")
    read(forge.recut("drift", "--json", expect=11), "recut.drift/1")
    read(forge.recut("verify", "--no-remote", "--json"), "recut.verify/1")
    read(forge.recut("record", "--check", "--json"), "recut.record/1")
    read(forge.recut("plan", "--onto", "v0.7.0", "--topic", "empty-mean", "--json"), "recut.plan/1")
    read(forge.recut("start", "--json"), "recut.run/1")
    read(forge.recut("start", "--json", expect=7), "recut.error/1")
    read(forge.recut("log", "--json"), "recut.log/1")
    read(forge.recut("abort", "--json"), "recut.run/1")
    read(forge.recut("integrate", "--json"), "recut.integrate/1")
    read(forge.recut("archive", "--scan", "--dry-run", "--json"), "recut.archive/1")
    read(forge.recut("plan", "--json", expect=2), "recut.error/1")
