"""One run: the reference, each side in its turn, and the report of both.

Whatever happens, every process that was started is ended and the machine is free for the next run.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from . import machine
from .checkout import read_artefacts, read_commit, snapshot_id
from .judge import Judge
from .lock import LOCK_FILE, machine_lock
from .matrices import MATRICES
from .matrices.matrix import Case, Inputs, Matrix
from .reference import Reference, open_reference
from .report import Conclusion, Ending, Report, Result, Row, Side
from .server import Target
from .settings import Settings
from .tally import tally

OnRow = Callable[[str, str, str, Result], None]
"""Told of every result as it comes: side, matrix, case, result."""

Results = dict[tuple[str, str], Result]


@dataclass(frozen=True, kw_only=True)
class Party:
    """A side as asked for. source: the checkout that its server was built from."""

    label: str
    target: Target
    source: Path


@dataclass(frozen=True, kw_only=True)
class Wish:
    """A whole run. title: what the report is called. folder: where logs go."""

    settings: Settings
    matrices: Sequence[str]
    after: Party
    before: Party | None
    title: str
    made_by: str
    folder: Path
    lock_wait_s: float = 600.0
    lock_file: Path = LOCK_FILE


def make_evidence(wish: Wish, on_row: OnRow) -> Report:
    """Run everything. Errors: locked; reference-failed; usage where the model is no model folder."""
    wish.folder.mkdir(parents=True, exist_ok=True)
    with (
        machine_lock(wish.lock_file, wait_s=wish.lock_wait_s),
        open_reference(wish.settings.model, wish.folder / "reference.log") as reference,
    ):
        return judge_sides(wish, reference, on_row)


def judge_sides(wish: Wish, reference: Reference, on_row: OnRow) -> Report:
    """Judge before and after against a reference that is running.

    An interrupt (Ctrl-C) ends the server and the judging; the report has the rows made so far and does not hold.
    """
    facts = reference.facts()
    inputs = _describe(wish)
    parties = [party for party in (wish.before, wish.after) if party is not None]
    judged: dict[str, tuple[Side, Results]] = {}
    is_whole = True
    for party in parties:
        if is_whole:
            side, results, is_whole = _judge_party(wish, party, reference, on_row)
            judged[party.label] = side, results
        else:
            judged[party.label] = Side(label=party.label, subject=party.target.subject), {}
    after, results = judged[wish.after.label]
    before, results_before = judged[wish.before.label] if wish.before else (None, {})
    rows = tuple(
        Row(matrix=matrix, case=case, before=results_before.get((matrix, case)), after=results.get((matrix, case)))
        for matrix, case in dict.fromkeys([*results, *results_before])
    )
    unproven = machine.machine_rows(facts, after)
    return Report(
        title=wish.title,
        made_by=wish.made_by,
        made_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        conclusion=_conclude(rows, unproven, is_whole=is_whole),
        machine=machine.read_machine({**facts.versions, "device": facts.device}),
        inputs=inputs,
        before=before,
        after=after,
        shows={name: MATRICES[name].shows for name in wish.matrices} | {machine.MATRIX: machine.SHOWS},
        rows=(*rows, *unproven),
    )


def _judge_party(wish: Wish, party: Party, reference: Reference, on_row: OnRow) -> tuple[Side, Results, bool]:
    """The side, its results, and whether they are all there."""
    results: Results = {}
    is_whole = True
    commit, is_dirty = read_commit(party.source)

    def keep(matrix: Matrix, case: Case, result: Result) -> None:
        results[matrix.name, case.name] = result
        on_row(party.label, matrix.name, case.name, result)

    log = wish.folder / f"{party.label}.log"
    log.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="evidence-") as scratch:
        inputs = Inputs(reference, wish.settings, Path(scratch).resolve(), frozenset(party.target.flags))
        judge = Judge(party.target, inputs, log)
        try:
            asyncio.run(judge.judge([MATRICES[name] for name in wish.matrices], keep))
        except KeyboardInterrupt:
            is_whole = False
    side = Side(
        label=party.label,
        subject=party.target.subject,
        commit=commit,
        is_dirty=is_dirty,
        versions=judge.versions,
        artefacts=read_artefacts(party.target.words or ()),
        notes=tuple(judge.notes),
    )
    return side, results, is_whole


def _describe(wish: Wish) -> dict[str, str]:
    """Everything that the rows depend on, besides the sides and the machine."""
    settings = wish.settings
    made = {
        "model": str(settings.model),
        "model files (sha256 of all)": snapshot_id(settings.model),
        "matrices": ", ".join(wish.matrices),
        "rows": f"those with {settings.only!r} in their name" if settings.only else "all",
        "lengths": ", ".join(map(str, settings.lengths)),
        "no-batch lengths": ", ".join(map(str, settings.no_batch_lengths)),
        "tokens an answer": str(settings.n_tokens),
        "requests at once": str(settings.n_batch),
        "queue depth N": str(settings.n_queue),
        "runs of an eos row": str(settings.n_runs),
        "sampling": "greedy (temperature 0)",
        "seconds a request may take": f"{settings.request_s:g}",
    }
    for party in (wish.before, wish.after):
        for name, flag in party.target.flags.items() if party else ():
            made[f"{party.label}: flag {name}" if party else name] = flag
    return made


def _conclude(rows: Sequence[Row], unproven: Sequence[Row], *, is_whole: bool) -> Conclusion:
    """Good news is a row that passed and none that failed, after; before may be as it likes."""
    after = [row.after for row in rows]
    failed = [f"{row.matrix} ({row.case})" for row in rows if row.after and row.after.ending is Ending.FAILED]
    has_passed = any(result and result.ending is Ending.PASSED for result in after)
    said = f"after: passed {tally([*after, *(row.after for row in unproven)])}"
    if failed:
        said += f"; failed: {_some(failed)}"
    elif not has_passed:
        said += "; no row could be tried, so nothing is shown"
    if any(row.before for row in rows):
        broken = [f"{row.matrix} ({row.case})" for row in rows if row.before and row.before.ending is Ending.FAILED]
        said += f". before: passed {tally(row.before for row in rows)}"
        said += f"; failed: {_some(broken)}" if broken else ""
    if not is_whole:
        said = f"interrupted, so rows are missing. {said}"
    return Conclusion(holds=has_passed and not failed and is_whole, text=f"{said}.")


def _some(names: Sequence[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
