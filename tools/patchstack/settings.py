"""recut.toml: which upstream is followed, where the fork publishes, what its branches are called.

It knows the file's form and nothing of the repository around it. Every refusal names the key.
"""

from __future__ import annotations

import fnmatch
import re
import sys
from typing import Any

import msgspec

from command.errors import usage

from .stack import Value, archive_label, is_upstream_release

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]

FILE = "recut.toml"
SCHEMA = 1


class Upstream(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    remote: str = "upstream"
    branch: str = "main"
    release_tags: str = "v[0-9]*"
    """A glob; `-local`, `-devel` and dated tags never count as upstream's."""

    def is_release(self, tag: str) -> bool:
        return fnmatch.fnmatchcase(tag, self.release_tags) and is_upstream_release(tag)


class Fork(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    remote: str = "origin"
    local: str = "local"
    topics: str = "topic/"
    """Prefix of topic branches."""
    mirror: str = "main"
    """The fork's copy of upstream's branch, fast-forwarded by publish; empty: there is none."""

    def topic_branch(self, name: str) -> str:
        """`no-batch-500` and `topic/no-batch-500` both name the branch topic/no-batch-500."""
        return name if name.startswith(self.topics) else self.topics + name

    def topic_name(self, branch: str) -> str:
        return branch[len(self.topics) :] if branch.startswith(self.topics) else branch


class RecordFile(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    file: str = "UPSTREAM.md"


class Pins(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    file: str = "pyproject.toml"
    names: tuple[str, ...] = ()


class Prove(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    test: str = "python -m pytest -q {tests}"
    """Run in a scratch worktree; {tests} becomes the topic's test files, quoted."""
    tests: tuple[str, ...] = ("tests/**", "test/**", "**/test_*.py", "**/*_test.py")
    """Globs (pathspecs) of test files; everything else is the fix."""


class Evidence(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    files: tuple[str, ...] = ()
    """Globs of files that name the commits things were built from; `archive --scan` reads them."""


class Edit(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line that a release commit rewrites: `find` is a regular expression, `replace` may use {tag},
    {version} (0.7.0+local01), {port} (0.7.0-local01) and {base}."""

    file: str
    find: str
    replace: str


class Release(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    edits: tuple[Edit, ...] = ()


class Settings(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema: int = SCHEMA
    upstream: Upstream = Upstream()
    fork: Fork = Fork()
    record: RecordFile = RecordFile()
    pins: Pins = Pins()
    prove: Prove = Prove()
    evidence: Evidence = Evidence()
    release: Release = Release()


def parse_settings(text: str, *, source: str = FILE) -> Settings:
    """The settings in `text`. Errors: usage, naming the key."""
    try:
        table: dict[str, Any] = tomllib.loads(text)
        settings = msgspec.convert(table, Settings)
    except tomllib.TOMLDecodeError as error:
        raise usage(f"{source} is not TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise usage(f"{source}: {error}") from error
    _check(settings, source)
    return settings


def _check(settings: Settings, source: str) -> None:
    if settings.schema != SCHEMA:
        raise usage(f"{source}: schema = {settings.schema} is not known here (this tool reads {SCHEMA})")
    fork = settings.fork
    if not fork.topics.endswith("/"):
        raise usage(f"{source}: fork.topics = {fork.topics!r} must end with '/'")
    if fork.local in ("", fork.mirror) or fork.local.startswith(fork.topics):
        raise usage(f"{source}: fork.local = {fork.local!r} must be a branch of its own")
    for key, name in (("fork.local", fork.local), ("upstream.branch", settings.upstream.branch)):
        if not re.fullmatch(r"[\w][\w./-]*", name):
            raise usage(f"{source}: {key} = {name!r} is not a branch name")
    archive_label(fork.local)
    for edit in settings.release.edits:
        try:
            re.compile(edit.find)
        except re.error as error:
            raise usage(f"{source}: release.edits find = {edit.find!r}: {error}") from error


def render_settings(settings: Settings) -> str:
    """recut.toml with the keys that a fork has to decide; parse_settings reads it back the same."""
    upstream, fork, pins, prove = settings.upstream, settings.fork, settings.pins, settings.prove
    return f"""\
# What `tools/recut` follows and where it publishes. docs/patch-stack.md explains every key.
schema = {SCHEMA}

[upstream]
remote = {_quoted(upstream.remote)}
branch = {_quoted(upstream.branch)}
release_tags = {_quoted(upstream.release_tags)}

[fork]
remote = {_quoted(fork.remote)}
local = {_quoted(fork.local)}
topics = {_quoted(fork.topics)}
mirror = {_quoted(fork.mirror)}

[record]
file = {_quoted(settings.record.file)}

[pins]
file = {_quoted(pins.file)}
names = {_array(pins.names)}

[prove]
test = {_quoted(prove.test)}
tests = {_array(prove.tests)}

[evidence]
files = {_array(settings.evidence.files)}
"""


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _array(texts: tuple[str, ...]) -> str:
    return "[" + ", ".join(_quoted(text) for text in texts) + "]"
