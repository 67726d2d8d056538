"""`prove`: a topic's tests must fail when only its fix is taken back, and pass with it.

Two scratch worktrees of the same commit, one with the changes outside the test files reversed; the same
command runs in both. The user's checkout is not involved.
"""

from __future__ import annotations

import re
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path

from acceptance.machine import read_machine
from acceptance.report import Conclusion, Ending, Report, Result, Row, Side
from command.errors import Outcome, refused

from .git import Git
from .settings import Settings
from .stack import Sha, Value
from .subject import Subject, find_subject
from .testrun import TestCase, TestRun, run_tests
from .worktree import scratch_worktree

SCHEMA = "recut.prove/1"


class Verdict(Enum):
    PROVED = "proved"
    NOT_DISCRIMINATING = "does not discriminate"
    NOT_A_TEST_FAILURE = "not a test failure"
    FAILS_WITH_FIX = "fails with the fix"
    NO_FIX = "no fix"


MEANING = {
    Verdict.PROVED: "the test fails without the fix and passes with it",
    Verdict.NOT_DISCRIMINATING: "the test passes without the fix too, so it shows nothing of the fix",
    Verdict.NOT_A_TEST_FAILURE: "without the fix the test cannot even run, so it shows nothing of the fix",
    Verdict.FAILS_WITH_FIX: "the test does not pass with the fix",
    Verdict.NO_FIX: "nothing but test files changes: the fix is missing, upstream may have taken it",
}


class ProofRow(Value, frozen=True, kw_only=True):
    """One test before and after; `why` is what it said without the fix."""

    test: str
    without_fix: Ending | None
    with_fix: Ending | None
    why: str = ""


class Proof(Value, frozen=True, kw_only=True):
    subject: Subject
    command: str
    fix_files: tuple[str, ...]
    test_files: tuple[str, ...]
    verdict: Verdict
    rows: tuple[ProofRow, ...]
    without_fix: TestRun | None
    with_fix: TestRun | None

    @property
    def outcome(self) -> Outcome:
        return Outcome.DONE if self.verdict is Verdict.PROVED else Outcome.CHECK_FAILED

    @property
    def meaning(self) -> str:
        return MEANING[self.verdict]


def prove(
    git: Git,
    settings: Settings,
    what: str,
    *,
    environ: Mapping[str, str],
    test: str | None = None,
    at: str | None = None,
) -> Proof:
    """Prove a topic (open, or landed in local) or a single commit.

    environ: what the test command runs with. test: instead of the command in recut.toml.
    at: the tree to prove a landed topic in, a release tag say; else local's tip.
    Errors: usage where `what` is nothing; refused where no test can be named or the fix cannot be reversed.
    """
    subject = find_subject(git, settings, what, at=at)
    tests = settings.prove.tests
    test_files = _paths(git, subject.patches, [f":(glob){pattern}" for pattern in tests])
    fix_files = _paths(git, subject.patches, [".", *_excluded(tests)])
    command = _command(git, settings, subject, test, test_files)
    if not fix_files:
        return Proof(
            subject=subject,
            command=command,
            fix_files=(),
            test_files=test_files,
            verdict=Verdict.NO_FIX,
            rows=(),
            without_fix=None,
            with_fix=None,
        )
    with tempfile.TemporaryDirectory(prefix="recut-prove-") as scratch:
        folder = Path(scratch).resolve()
        with scratch_worktree(git, folder / "with-fix", subject.tip) as worktree:
            with_fix = run_tests(command, worktree, folder / "with-fix.xml", environ)
        with scratch_worktree(git, folder / "without-fix", subject.tip) as worktree:
            _reverse_fix(git, subject, tests, worktree)
            without_fix = run_tests(command, worktree, folder / "without-fix.xml", environ)
    rows = _rows(without_fix, with_fix)
    return Proof(
        subject=subject,
        command=command,
        fix_files=fix_files,
        test_files=test_files,
        verdict=_verdict(without_fix, with_fix, rows),
        rows=rows,
        without_fix=without_fix,
        with_fix=with_fix,
    )


MATRIX = "prove"


def to_report(proof: Proof, *, made_by: str) -> Report:
    """The proof as a piece of evidence, the tree without the fix before the tree with it.

    made_by: the command line that makes it again.
    """
    subject = proof.subject
    return Report(
        title=f"{subject.name}, proved by its tests",
        made_by=made_by,
        made_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        conclusion=Conclusion(holds=proof.verdict is Verdict.PROVED, text=f"{proof.verdict.value}: {proof.meaning}."),
        machine=read_machine({}),
        inputs={
            "command": proof.command,
            "patches": ", ".join(subject.patches),
            "fix files": ", ".join(proof.fix_files),
            "test files": ", ".join(proof.test_files),
        },
        before=Side(
            label="without the fix",
            subject=f"{subject.name} with its fix taken back",
            commit=subject.tip,
            is_dirty=bool(proof.fix_files),
        ),
        after=Side(label="with the fix", subject=subject.name, commit=subject.tip),
        shows={MATRIX: MEANING[Verdict.PROVED]},
        rows=tuple(
            Row(
                matrix=MATRIX,
                case=row.test,
                before=_result(row.without_fix, row.why),
                after=_result(row.with_fix, _why(proof.with_fix, row.test)),
            )
            for row in proof.rows
        ),
    )


def _result(ending: Ending | None, why: str) -> Result | None:
    return Result(ending=ending, detail=why) if ending else None


def _why(run: TestRun | None, test: str) -> str:
    """What the run said of one test; of the whole command where no report named the tests."""
    if run is None:
        return ""
    return next((case.message for case in run.cases if case.name == test), "" if run.cases else run.reason)


# Among a topic's test files, those that a runner takes; the others are data and helpers that they use.
_TEST_NAME = re.compile(r"(?:test_.*|.*_test|.*Tests?|.*[.](?:test|spec))[.][^.]+")


def _excluded(tests: Sequence[str]) -> list[str]:
    return [f":(exclude,glob){pattern}" for pattern in tests]


def _paths(git: Git, patches: Sequence[Sha], pathspecs: Sequence[str]) -> tuple[str, ...]:
    out = git.run(
        "diff-tree", "--stdin", "--no-commit-id", "--name-only", "-r", "-z", "--no-renames", "--",
        *pathspecs, stdin="".join(f"{patch}\n" for patch in patches).encode(),
    ).out  # fmt: skip
    return tuple(sorted({path.decode(errors="surrogateescape") for path in out.split(b"\0") if path}))


def _command(git: Git, settings: Settings, subject: Subject, test: str | None, test_files: Sequence[str]) -> str:
    template = test or settings.prove.test
    present = [path for path in test_files if git.file(subject.tip, path) is not None]
    if "{tests}" in template and not present:
        raise refused(
            f"{subject.name} changes no test file, so nothing can prove it (test files are "
            f"{', '.join(settings.prove.tests)})",
            f"tools/recut prove {subject.name} --test 'COMMAND'",
        )
    runnable = [path for path in present if _TEST_NAME.fullmatch(path.rpartition("/")[2])] or present
    quoted = " ".join(shlex.quote(path) for path in runnable)
    return template.replace("{tests}", quoted).replace("{python}", shlex.quote(sys.executable))


def _reverse_fix(git: Git, subject: Subject, tests: Sequence[str], worktree: Path) -> None:
    """Take back, newest first, what the patches change outside the test files."""
    for patch in reversed(subject.patches):
        diff = git.run(
            "diff-tree", "-p", "--binary", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv",
            "--no-color", f"{patch}^", patch, "--", ".", *_excluded(tests),
        ).out  # fmt: skip
        if not diff:
            continue
        done = git.run("apply", "--reverse", "--3way", "--whitespace=nowarn", at=worktree, stdin=diff, ok=range(256))
        if done.code:
            raise refused(
                f"{patch[:12]} cannot be taken back from {subject.tip[:12]} alone: later commits changed the "
                f"same lines ({done.err.splitlines()[-1] if done.err else 'git apply failed'})",
                f"tools/recut prove {patch}   (on its own tree)",
            )


def _rows(without_fix: TestRun, with_fix: TestRun) -> tuple[ProofRow, ...]:
    before = {case.name: case for case in without_fix.cases}
    after = {case.name: case for case in with_fix.cases}
    if not before and not after:
        return (
            ProofRow(
                test="the command",
                without_fix=without_fix.ending,
                with_fix=with_fix.ending,
                why=without_fix.reason,
            ),
        )
    covered = {name: _whole_file(name, before) for name in after if name not in before}
    shown = set(covered.values())
    return tuple(
        _row(name, before.get(name) or before.get(covered.get(name, "")), after.get(name))
        for name in dict.fromkeys([*after, *before])
        if name not in shown
    )


def _row(name: str, before: TestCase | None, after: TestCase | None) -> ProofRow:
    return ProofRow(
        test=name,
        without_fix=before.ending if before else None,
        with_fix=after.ending if after else None,
        why=before.message if before else "",
    )


def _whole_file(name: str, cases: Mapping[str, TestCase]) -> str:
    """The case that stands for the whole test file of `name`, not collected; "" if none does."""
    return next((other for other in cases if other and name.startswith((f"{other}::", f"{other}."))), "")


def _verdict(without_fix: TestRun, with_fix: TestRun, rows: Sequence[ProofRow]) -> Verdict:
    if with_fix.ending is not Ending.PASSED:
        return Verdict.FAILS_WITH_FIX
    if any(row.without_fix is Ending.FAILED and row.with_fix is Ending.PASSED for row in rows):
        return Verdict.PROVED
    if without_fix.ending is Ending.PASSED:
        return Verdict.NOT_DISCRIMINATING
    return Verdict.NOT_A_TEST_FAILURE
