"""`mlxcel doctor`: what was looked at, what is wrong, and what to do next."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from mlxcel.cli.columns import aligned, show
from mlxcel.cli.exits import FOUND_PROBLEMS, leave
from mlxcel.cli.servicing import own_layout
from mlxcel.cli.systemwide import system_layout
from mlxcel.config.settings import ServeSettings
from mlxcel.doctor.examination import examine
from mlxcel.doctor.finding import Finding, State
from mlxcel.errors import ConfigError


def run(settings: ServeSettings, faults: Sequence[ConfigError], *, file: Path, as_json: bool) -> None:
    """Leaves with FOUND_PROBLEMS where there are some."""
    jobs = (own_layout(file), system_layout(None))
    findings = examine(settings, faults, file=file, environ=os.environ, jobs=jobs)
    has_problems = any(finding.state is State.PROBLEM for finding in findings)
    if as_json:
        show(json.dumps({"is_well": not has_problems, "findings": [asdict(finding) for finding in findings]}))
    else:
        show(_told(findings))
    if has_problems:
        leave(FOUND_PROBLEMS)


def _told(findings: Sequence[Finding]) -> str:
    rows: list[tuple[str, str, str]] = []
    for finding in findings:
        rows.append((finding.state.value, finding.about, finding.told))
        if finding.next_step:
            rows.append(("", "", f"-> {finding.next_step}"))
    n_by_state = {state: sum(finding.state is state for finding in findings) for state in State}
    return f"{aligned(rows)}\n\nproblems: {n_by_state[State.PROBLEM]}, warnings: {n_by_state[State.WARNING]}"
