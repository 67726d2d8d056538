"""What every command works with: the repository, its settings, its runs, and the two ways to answer.

A command builds a value and hands it to `answer`: as JSON for a script (`--json`), else as a short text for a
person. Colour only on a terminal. It decides nothing.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import msgspec

from command.edge import print_json
from command.errors import Outcome, usage
from command.paper import Paper
from command.text_file import read_text_file, text_of

from .git import Git, open_git
from .journal import Observer, Runs, ignore_entries
from .settings import FILE, Settings, parse_settings


class Desk:
    """Reads lazily, so that a command pays only for what it uses."""

    def __init__(self, *, environ: Mapping[str, str], folder: Path, observer: Observer = ignore_entries) -> None:
        self.environ = environ
        self.folder = folder
        self._observer = observer

    @cached_property
    def git(self) -> Git:
        """Errors: usage outside a repository."""
        return open_git(self.folder, self.environ)

    @cached_property
    def settings(self) -> Settings:
        """recut.toml of the checkout, else of the branch `local`, which a topic's checkout does not have.

        Errors: usage where there is none.
        """
        if self.git.top and (self.git.top / FILE).is_file():
            return parse_settings(read_text_file(self.git.top / FILE))
        for branch in ("refs/heads/local", "refs/remotes/origin/local"):
            content = self.git.file_at(branch, FILE)
            if content is not None:
                source = f"{branch}:{FILE}"
                return parse_settings(text_of(content, source=source), source=source)
        raise usage(f"there is no {FILE} in this checkout or on the branch local", "tools/recut init")

    @cached_property
    def runs(self) -> Runs:
        return Runs(self.git.common_dir, self._observer)

    @cached_property
    def paper(self) -> Paper:
        return Paper()

    @contextmanager
    def progress(self) -> Iterator[Callable[[str], None]]:
        """A count of replayed patches on a terminal, gone when the block ends; silence anywhere else."""
        if not sys.stderr.isatty():
            yield lambda _branch: None
            return
        count = itertools.count(1)

        def show(branch: str) -> None:
            sys.stderr.write(f"\rreplaying patch {next(count)}, {branch}\033[K")
            sys.stderr.flush()

        try:
            yield show
        finally:
            sys.stderr.write("\r\033[K")

    def answer(
        self,
        value: msgspec.Struct,
        *,
        schema: str,
        as_json: bool,
        show: Callable[[Paper], None],
        outcome: Outcome = Outcome.DONE,
    ) -> Outcome:
        """Print `value` as JSON with its schema and outcome, or `show` it; the outcome is handed through."""
        if as_json:
            fields = msgspec.to_builtins(value)
            print_json({"schema": schema, "outcome": outcome.value, **fields})
        else:
            show(self.paper)
        return outcome
