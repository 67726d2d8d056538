"""Runs one test command in a folder and tells a failing test from a test that could not run.

A test has failed if it was imported, ran, and said no. An import error, a collection error, a missing
program is no test failure: it says nothing about the fix. What happened is read from a JUnit report, which
pytest is made to write by PYTEST_ADDOPTS and which any other runner may write to $RECUT_JUNIT; else from
unittest's summary; else from the traceback at the end.
It knows nothing of git or patches.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from acceptance.report import Ending

from .stack import Value

TIMEOUT_S = 1800
_TAIL_LINES = 25

# Failures of these kinds mean that the test, not the code under test, did not get to run.
_BROKEN = re.compile(
    r"(?:\w+\.)*(?:ImportError|ModuleNotFoundError|SyntaxError|IndentationError)\b"
    r"|AttributeError: module '[^']*' has no attribute"
)


class TestCase(Value, frozen=True, kw_only=True):
    """One test. `message`: the first line of why it did not pass."""

    __test__ = False
    name: str
    ending: Ending
    message: str = ""


class TestRun(Value, frozen=True, kw_only=True):
    """The end of the command. `cases` is empty where no report named the tests; `tail`: its last lines."""

    __test__ = False
    ending: Ending
    exit_code: int
    cases: tuple[TestCase, ...]
    tail: str
    reason: str = ""


def run_tests(command: str, folder: Path, report: Path, environ: Mapping[str, str]) -> TestRun:
    """Run `command` with a shell in `folder`. `report`: where a JUnit report may be written, outside of it.

    Changes: only what the command itself does.
    """
    code, output = _run(command, folder, _environment(folder, report, environ))
    tail = "\n".join(output.splitlines()[-_TAIL_LINES:])
    cases = _read_report(report)
    if cases:
        ending, reason = _from_cases(cases, code)
    else:
        ending, reason = _from_output(output, code)
    return TestRun(ending=ending, exit_code=code, cases=cases, tail=tail, reason=reason)


def _environment(folder: Path, report: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment, with this folder's modules first, and without git's redirections."""
    redirections = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX")
    kept = {name: value for name, value in environ.items() if name not in redirections}
    sources = [str(path) for path in (folder / "src", folder) if path.is_dir()]
    return kept | {
        "PYTHONPATH": os.pathsep.join([*sources, *filter(None, [environ.get("PYTHONPATH")])]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_ADDOPTS": f"{environ.get('PYTEST_ADDOPTS', '')} --junitxml='{report}'".strip(),
        "RECUT_JUNIT": str(report),
    }


def _run(command: str, folder: Path, environ: Mapping[str, str]) -> tuple[int, str]:
    with subprocess.Popen(
        ["/bin/sh", "-c", command],
        cwd=folder,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=TIMEOUT_S)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            output += f"\nstopped after {TIMEOUT_S} s\n".encode()
    return process.returncode, output.decode(errors="replace")


def _read_report(report: Path) -> tuple[TestCase, ...]:
    try:
        root = ElementTree.fromstring(report.read_bytes())
    except (FileNotFoundError, ElementTree.ParseError):
        return ()
    cases: dict[str, TestCase] = {}
    for case in map(_case, root.iter("testcase")):
        known = cases.setdefault(case.name, case)
        if _WEIGHT.index(case.ending) > _WEIGHT.index(known.ending):
            cases[case.name] = case
    return tuple(cases.values())


# A test that failed may be reported once more for what broke when its fixtures were taken down: it has said no.
_WEIGHT = (Ending.SKIPPED, Ending.PASSED, Ending.BROKEN, Ending.FAILED)


def _case(element: ElementTree.Element) -> TestCase:
    name = "::".join(filter(None, (element.get("classname"), element.get("name"))))
    for tag, ending in (("error", Ending.BROKEN), ("failure", Ending.FAILED), ("skipped", Ending.SKIPPED)):
        found = element.find(tag)
        if found is not None:
            said = f"{found.get('type', '')} {found.get('message', '')}\n{found.text or ''}"
            message = _first_line(found.get("message") or "") or _first_line(found.text or "")
            if ending is Ending.BROKEN:
                message = _last_error(found.text or "") or message
            elif ending is Ending.FAILED and _is_broken(found.get("message") or said):
                ending = Ending.BROKEN
            return TestCase(name=name, ending=ending, message=message)
    return TestCase(name=name, ending=Ending.PASSED)


def _is_broken(message: str) -> bool:
    return _BROKEN.match(message.strip()) is not None


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0].strip()


def _last_error(text: str) -> str:
    """The exception line of a traceback, with or without pytest's leading E."""
    found = re.findall(r"^(?:E\s+)?((?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b.*)$", text, re.MULTILINE)
    return str(found[-1]).strip() if found else ""


def _from_cases(cases: tuple[TestCase, ...], code: int) -> tuple[Ending, str]:
    for ending in (Ending.FAILED, Ending.BROKEN):
        bad = [case for case in cases if case.ending is ending]
        if bad:
            return ending, bad[0].message
    if not any(case.ending is Ending.PASSED for case in cases):
        return Ending.BROKEN, "every test was skipped"
    if code:
        return Ending.BROKEN, f"the tests pass, yet the command ends with exit {code}"
    return Ending.PASSED, ""


_UNITTEST_END = re.compile(r"^(OK|FAILED)(?: \((.*)\))?$", re.MULTILINE)
_UNITTEST_RAN = re.compile(r"^Ran (\d+) tests?\b", re.MULTILINE)


def _from_output(output: str, code: int) -> tuple[Ending, str]:
    ran, end = _UNITTEST_RAN.search(output), _UNITTEST_END.search(output)
    error = _last_error(output)
    if ran and end:
        if ran[1] == "0":
            return Ending.BROKEN, "no test ran"
        if "failures=" in (end[2] or ""):
            return Ending.FAILED, error
        return (Ending.PASSED, "") if end[1] == "OK" and not code else (Ending.BROKEN, error)
    if not code:
        return Ending.PASSED, ""
    if error.startswith("AssertionError"):
        return Ending.FAILED, error
    return Ending.BROKEN, error or f"exit {code}, and no report in $RECUT_JUNIT that says a test failed"
