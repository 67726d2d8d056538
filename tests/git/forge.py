"""Three real repositories on disk: upstream, origin (the fork's server) and work (a maintainer's clone).

Sealed: a home of its own, no user or system configuration, a clock of its own; the tool runs as a subprocess.
`build_forge` makes the standard scene: upstream `tally`, a small Python package, with releases v0.6.0
(annotated) and v0.7.0 (lightweight) and one commit more; a fork that sits on v0.6.0 with four topics:

    empty-mean    applies cleanly to v0.7.0
    zero-size     conflicts with v0.7.0
    strip-words   upstream has the fix, with another test
    clamp-low     upstream took it whole

Commits are made with `git fast-import`, which touches no index and no checkout.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchstack.record import parse, render
from patchstack.stack import CarriedRow, CommitKind, Pin, Record, Sha, TopicRow

LAUNCHER = Path(__file__).resolve().parents[2] / "tools" / "recut"
Files = Mapping[str, str | bytes | None]
"""Path -> content; None deletes."""

UPSTREAM_AUTHOR = "Una Upstream <una@upstream.example>"
FORK_AUTHOR = "Fay Fork <fay@fork.example>"
COLLEAGUE = "Cole Colleague <cole@fork.example>"
FIRST_COMMIT_S = 1_767_603_600  # 2026-01-05 09:00 UTC
COMMIT_INTERVAL_S = 3_600

RECUT_TOML = """\
schema = 1

[upstream]
remote = "upstream"
branch = "main"
release_tags = "v[0-9]*"

[fork]
remote = "origin"
local = "local"
topics = "topic/"
mirror = "main"

[record]
file = "UPSTREAM.md"

[pins]
file = "pyproject.toml"
names = ["arrays"]

[prove]
test = "python -m pytest -q -p no:cacheprovider {tests}"
tests = ["tests/**"]

[evidence]
files = ["evidence/**"]
"""


@dataclass(frozen=True)
class Run:
    """One finished run of the tool."""

    args: tuple[str, ...]
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def text(self) -> str:
        return f"$ recut {' '.join(self.args)}\n{self.out}{self.err}exit {self.code}"


@dataclass(frozen=True)
class Checkout:
    """Everything of a clone that the tool must leave alone."""

    head: str
    index: str
    status: str
    config: str
    hooks: tuple[str, ...]
    files: tuple[tuple[str, bytes], ...]


class Repository:
    """A repository and a git that ignores every configuration but the repository's own."""

    def __init__(self, folder: Path, clock: Clock, environ: Mapping[str, str]) -> None:
        self.folder = folder
        self.clock = clock
        self.environ = dict(environ)

    def git(self, *args: str, stdin: str | bytes = b"", ok: Iterable[int] = (0,)) -> str:
        """Standard output without the last newline. A failure raises with git's words."""
        done = subprocess.run(
            ["git", *args],
            cwd=self.folder,
            env=self.environ,
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            timeout=60,
        )
        if done.returncode not in ok:
            raise AssertionError(f"git {' '.join(args)} in {self.folder}: {done.stderr.decode()}")
        return done.stdout.decode(errors="surrogateescape").removesuffix("\n")

    def commit(self, branch: str, subject: str, files: Files, *, start: str = "", author: str = FORK_AUTHOR) -> Sha:
        """A commit on `branch` (made at `start`, a revision, if it is new); the commit's id."""
        ref = f"refs/heads/{branch}"
        stamp = f"{author} {self.clock.tick()} +0000"
        message = f"{subject}\n".encode()
        parent = start or (ref if self.has(ref) else "")
        script = [f"commit {ref}\nauthor {stamp}\ncommitter {stamp}\ndata {len(message)}\n".encode(), message]
        if parent:
            script.append(f"from {self.sha(parent)}\n".encode())
        for path, content in files.items():
            name = _quoted(path)
            if content is None:
                script.append(b"D " + name + b"\n")
            else:
                data = content.encode() if isinstance(content, str) else content
                script.append(b"M 100644 inline " + name + b"\ndata %d\n" % len(data) + data + b"\n")
        self.git("fast-import", "--quiet", "--force", stdin=b"".join(script))
        return self.sha(ref)

    def tag(self, name: str, commit: str, *, message: str = "") -> None:
        """A tag: annotated with a message, lightweight without."""
        if message:
            stamp = f"@{self.clock.tick()} +0000"
            self.environ["GIT_COMMITTER_DATE"] = stamp
            self.git("tag", "-a", "-m", message, name, commit)
            del self.environ["GIT_COMMITTER_DATE"]
        else:
            self.git("tag", name, commit)

    def sha(self, revision: str) -> Sha:
        return Sha(self.git("rev-parse", "--verify", f"{revision}^{{commit}}"))

    def has(self, revision: str) -> bool:
        """Whether the revision names a commit that is here."""
        return bool(self.git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", ok=(0, 1, 128)))

    def refs(self, *prefixes: str) -> dict[str, str]:
        """Full name -> object id (the tag object's for an annotated tag): for 'nothing moved' assertions."""
        rows = self.git("for-each-ref", "--format=%(refname) %(objectname)", *prefixes).split("\n")
        return dict(row.split(" ") for row in rows if row)

    def branches(self) -> dict[str, str]:
        return self.refs("refs/heads/")

    def tags(self) -> dict[str, str]:
        return self.refs("refs/tags/")

    def subjects(self, revisions: str) -> list[str]:
        """Subjects of base..tip, oldest first."""
        return [row for row in self.git("log", "--reverse", "--format=%s", revisions).split("\n") if row]

    def show(self, revision: str, path: str) -> str:
        return self.git("show", f"{revision}:{path}") + "\n"

    def checkout(self) -> Checkout:
        """HEAD, index, status, configuration, hooks and file contents, to compare before and after."""
        git_dir = self.folder / ".git"
        names = self.git("ls-files", "-z", "--cached", "--others").split("\0")
        return Checkout(
            head=(git_dir / "HEAD").read_text(),
            index=self.git("ls-files", "--stage"),
            status=self.git("status", "--porcelain"),
            config=(git_dir / "config").read_text(),
            hooks=tuple(sorted(path.name for path in (git_dir / "hooks").glob("*"))),
            files=tuple((n, (self.folder / n).read_bytes()) for n in names if (self.folder / n).is_file()),
        )


def _quoted(path: str) -> bytes:
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'.encode()


class Clock:
    """Every commit and tag is an hour younger than the one before."""

    def __init__(self, now_s: int = FIRST_COMMIT_S) -> None:
        self.now_s = now_s

    def tick(self) -> int:
        self.now_s += COMMIT_INTERVAL_S
        return self.now_s


class Forge:
    """The three repositories under `root`, and the tool."""

    def __init__(self, root: Path, *, now_s: int = FIRST_COMMIT_S) -> None:
        self.root = root
        self.home = root / "home"
        self.clock = Clock(now_s)
        sealed = self.environ | {"GIT_CONFIG_GLOBAL": str(root / "no-config")}
        for role in ("COMMITTER", "AUTHOR"):
            sealed |= {f"GIT_{role}_NAME": "Fay Fork", f"GIT_{role}_EMAIL": "fay@fork.example"}
        self.upstream = Repository(root / "upstream.git", self.clock, sealed)
        self.origin = Repository(root / "origin.git", self.clock, sealed)
        self.work = Repository(root / "work", self.clock, sealed)

    @property
    def environ(self) -> dict[str, str]:
        """What the tool runs with: the maintainer's home and configuration, nothing of the machine's."""
        return {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "COLUMNS": "120",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }

    # The tool

    def recut(
        self,
        *args: str,
        expect: int | None = 0,
        at: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        timeout_s: float = 120,
    ) -> Run:
        """Run `tools/recut *args` in the clone and assert its exit code (`expect=None`: any)."""
        done = subprocess.run(
            [str(LAUNCHER), *args],
            cwd=at or self.work.folder,
            env=self.environ | dict(env or {}),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        run = Run(args, done.returncode, done.stdout, done.stderr)
        assert expect is None or run.code == expect, f"expected exit {expect}\n{run.text}"
        return run

    def start(self, *args: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """The same, not waited for: for a second run, or for one that is to be killed."""
        return subprocess.Popen(
            [str(LAUNCHER), *args],
            cwd=self.work.folder,
            env=self.environ | dict(env or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    # Configuration

    def configure(self, key: str, value: str) -> None:
        """A line in the maintainer's own ~/.gitconfig, which the tool sees and the fixture does not."""
        self.work.git("config", "--file", str(self.home / ".gitconfig"), key, value)

    def make_configuration_hostile(self) -> None:
        """Everything a user's configuration can do to a rebase, a diff, a tag or a push."""
        hooks = self.home / "hooks"
        hooks.mkdir()
        for name in HOOKS:
            hook = hooks / name
            hook.write_text("#!/bin/sh\necho 'a failing hook' >&2\nexit 1\n")
            hook.chmod(0o755)
        for key, value in HOSTILE_SETTINGS.items():
            self.configure(key, value)
        self.configure("core.hooksPath", str(hooks))

    # The stack

    @property
    def record(self) -> Record:
        """The record on the clone's local branch."""
        return parse(self.work.show("local", "UPSTREAM.md"))

    def add_topic(self, name: str, *commits: tuple[str, Files], start: str = "") -> Sha:
        """A topic of the commits, cut from the base (or `start`), here and on origin; its tip."""
        branch = f"topic/{name}"
        start = start or self.record.base
        for subject, files in commits:
            self.work.commit(branch, subject, files, start=start)
            start = ""
        self.work.git("push", "-q", "origin", branch)
        return self.work.sha(branch)

    def amend_topic(self, name: str, subject: str, files: Files) -> Sha:
        """One more commit on a topic, pushed; its tip. The record still has the old one."""
        tip = self.work.commit(f"topic/{name}", subject, files)
        self.work.git("push", "-q", "origin", f"topic/{name}")
        return tip

    def write_record(self, record: Record, *, subject: str = "Record the patch stack") -> Sha:
        """Commit the record on local, here and on origin; local's tip."""
        text = self.work.show("local", "UPSTREAM.md") if self.work.has("local:UPSTREAM.md") else ""
        tip = self.work.commit("local", subject, {"UPSTREAM.md": render(record, text)})
        self.work.git("push", "-q", "origin", "local")
        return tip

    def record_topics(self) -> Sha:
        """Enter every topic branch that the record does not know, or has another tip of."""
        known = {row.topic: row for row in self.record.topics}
        rows = dict(known)
        for ref, tip in self.work.refs("refs/heads/topic/").items():
            name = ref.removeprefix("refs/heads/topic/")
            row = known.get(name, TopicRow(topic=name))
            rows[name] = _replace(row, new=Sha(tip))
        return self.write_record(_replace(self.record, topics=tuple(rows.values())))

    def push_as_colleague(self, branch: str, subject: str, files: Files) -> Sha:
        """A colleague's commit on top of a branch of origin, unknown to the clone; origin's new tip."""
        return self.origin.commit(branch, subject, files, author=COLLEAGUE)

    def release_upstream(self, tag: str, *commits: tuple[str, Files], annotated: bool = True) -> Sha:
        """More commits on upstream's main, the last one tagged."""
        for subject, files in commits:
            self.upstream.commit("main", subject, files, author=UPSTREAM_AUTHOR)
        self.upstream.tag(tag, "main", message=f"tally {tag}" if annotated else "")
        return self.upstream.sha("main")


def _replace(value: Any, **changes: Any) -> Any:
    fields = {name: getattr(value, name) for name in value.__struct_fields__}
    return type(value)(**{**fields, **changes})


HOOKS = (
    "pre-rebase", "post-checkout", "prepare-commit-msg", "commit-msg", "pre-commit", "post-commit",
    "post-rewrite", "reference-transaction", "pre-push", "applypatch-msg", "pre-applypatch", "post-merge",
)  # fmt: skip

HOSTILE_SETTINGS = {
    "rebase.updateRefs": "true",
    "rebase.autoStash": "true",
    "rebase.autoSquash": "true",
    "rebase.backend": "apply",
    "rebase.forkPoint": "true",
    "commit.gpgSign": "true",
    "tag.gpgSign": "true",
    "tag.forceSignAnnotated": "true",
    "gpg.program": "/bin/false",
    "push.followTags": "true",
    "push.default": "nothing",
    "color.ui": "always",
    "diff.noprefix": "true",
    "diff.external": "/bin/false",
    "diff.context": "9",
    "diff.algorithm": "patience",
    "diff.renames": "false",
    "merge.conflictStyle": "diff3",
    "merge.ff": "only",
    "versionsort.suffix": "-local",
    "core.commentChar": ";",
    "core.abbrev": "4",
    "core.autocrlf": "true",
    "core.pager": "/bin/false",
    "core.editor": "/bin/false",
    "rerere.enabled": "true",
    "rerere.autoUpdate": "true",
    "log.showSignature": "true",
    "fetch.prune": "true",
    "fetch.pruneTags": "true",
    "status.showUntrackedFiles": "no",
}

# The standard scene.

BASE_FILES: Files = {
    "pyproject.toml": '[project]\nname = "tally"\nversion = "0.6.0"\ndependencies = ["arrays>=2.1"]\n',
    "tally/__init__.py": '"""Counting and summarising small lists."""\n',
    "tally/stats.py": (
        "def mean(values):\n    return sum(values) / len(values)\n\n\n"
        "def spread(values):\n    return max(values) - min(values)\n"
    ),
    "tally/batch.py": (
        "def split(items, size):\n    return [items[at : at + size] for at in range(0, len(items), size)]\n"
    ),
    "tally/words.py": 'def count(text):\n    return len(text.split(" "))\n',
    "tally/limits.py": "def clamp(value, low, high):\n    return min(value, high)\n",
    "tests/test_tally.py": (
        "from tally.batch import split\nfrom tally.stats import mean\n\n\n"
        "def test_mean():\n    assert mean([1, 3]) == 2\n\n\n"
        "def test_split():\n    assert split([1, 2, 3], 2) == [[1, 2], [3]]\n"
    ),
}

EMPTY_MEAN: Files = {
    "tally/stats.py": (
        "def mean(values):\n    if not values:\n        return 0.0\n    return sum(values) / len(values)\n"
        "\n\ndef spread(values):\n    return max(values) - min(values)\n"
    ),
    "tests/test_empty_mean.py": (
        "from tally.stats import mean\n\n\ndef test_the_mean_of_nothing_is_zero():\n    assert mean([]) == 0.0\n"
    ),
}

ZERO_SIZE: Files = {
    "tally/batch.py": (
        "def split(items, size):\n"
        "    size = max(size, 1)\n"
        "    return [items[at : at + size] for at in range(0, len(items), size)]\n"
    ),
    "tests/test_zero_size.py": (
        "from tally.batch import split\n\n\n"
        "def test_a_size_of_zero_means_one():\n    assert split([1, 2], 0) == [[1], [2]]\n"
    ),
}
ZERO_SIZE_RESOLVED = (
    "def split(items, size):\n"
    '    """Cut `items` into lists of at most `size`."""\n'
    "    size = max(size, 1)\n"
    "    starts = range(0, len(items), size)\n"
    "    return [items[start : start + size] for start in starts]\n"
)

WORDS_FIXED = "def count(text):\n    return len(text.split())\n"
STRIP_WORDS: Files = {
    "tally/words.py": WORDS_FIXED,
    "tests/test_strip_words.py": (
        'from tally.words import count\n\n\ndef test_spaces_are_not_words():\n    assert count(" a  b ") == 2\n'
    ),
}

CLAMP_LOW: Files = {
    "tally/limits.py": "def clamp(value, low, high):\n    return max(low, min(value, high))\n",
    "tests/test_clamp_low.py": (
        "from tally.limits import clamp\n\n\ndef test_clamp_has_a_lower_limit():\n    assert clamp(-1, 0, 9) == 0\n"
    ),
}

UPSTREAM_SINCE: tuple[tuple[str, Files], ...] = (
    (
        "Name the starts of a batch",
        {
            "tally/batch.py": (
                "def split(items, size):\n"
                '    """Cut `items` into lists of at most `size`."""\n'
                "    starts = range(0, len(items), size)\n"
                "    return [items[start : start + size] for start in starts]\n"
            )
        },
    ),
    (
        "Count words, not spaces (#41)",
        {
            "tally/words.py": WORDS_FIXED,
            "tests/test_words.py": (
                'from tally.words import count\n\n\ndef test_two_spaces():\n    assert count("a  b") == 2\n'
            ),
        },
    ),
    ("Clamp at the lower limit too (#42)", CLAMP_LOW),
    (
        "Release 0.7.0",
        {"pyproject.toml": ('[project]\nname = "tally"\nversion = "0.7.0"\ndependencies = ["arrays>=2.1"]\n')},
    ),
)


RELEASE_EDITS = """
[[release.edits]]
file = "pyproject.toml"
find = '^version = ".*"$'
replace = 'version = "{version}"'
"""


def build_bare_forge(root: Path, *, settings: str = RECUT_TOML, files: Files = BASE_FILES) -> Forge:
    """Upstream at v0.6.0, a fork of it whose local holds recut.toml and a record without topics, a clone.

    The clone's checkout is a branch of the maintainer's own, `desk`, one commit past local.
    """
    forge = Forge(root)
    upstream, origin, work = forge.upstream, forge.origin, forge.work
    for folder in (upstream.folder, origin.folder, work.folder, forge.home):
        folder.mkdir(parents=True)
    (root / "no-config").touch()
    forge.upstream.git("init", "-q", "--bare", "-b", "main")
    forge.origin.git("init", "-q", "--bare", "-b", "main")
    forge.work.git("init", "-q", "-b", "main")
    forge.configure("user.name", "Fay Fork")
    forge.configure("user.email", "fay@fork.example")

    upstream.commit("main", "Tally small lists", files, author=UPSTREAM_AUTHOR)
    forge.upstream.tag("v0.6.0", "main", message="tally v0.6.0")
    base = upstream.sha("main")

    work.git("remote", "add", "origin", str(origin.folder))
    work.git("remote", "add", "upstream", str(upstream.folder))
    work.git("fetch", "-q", "upstream")
    plain = work.commit("local", "Say what this fork follows", {"recut.toml": settings}, start=base)
    work.git("push", "-q", "origin", f"{base}:refs/heads/main", "local")
    forge.write_record(
        Record(
            base=base,
            describe="v0.6.0",
            base_date="2026-01-05",
            pins=(Pin(name="arrays", requirement="arrays>=2.1"),),
            carried=(CarriedRow(commit=plain, kind=CommitKind.PLAIN, subject="Say what this fork follows"),),
        )
    )
    work.commit("desk", "Notes of my own", {"notes.txt": "half a thought\n"}, start="local")
    work.git("checkout", "-q", "desk")
    return forge


def build_forge(root: Path, *, settings: str = RECUT_TOML) -> Forge:
    """The standard scene (see the module's docstring)."""
    forge = build_bare_forge(root, settings=settings)
    forge.add_topic("empty-mean", ("The mean of nothing is zero", EMPTY_MEAN))
    forge.add_topic("zero-size", ("A batch size of zero means one", ZERO_SIZE))
    forge.add_topic("strip-words", ("Spaces are not words", STRIP_WORDS))
    forge.add_topic("clamp-low", ("Clamp at the lower limit", CLAMP_LOW))
    forge.record_topics()
    forge.release_upstream("v0.7.0", *UPSTREAM_SINCE, annotated=False)
    readme: Files = {"README": "Small lists only.\n"}
    forge.upstream.commit("main", "Say what it is for", readme, author=UPSTREAM_AUTHOR)
    return forge


def copy_forge(template: Forge, root: Path) -> Forge:
    """The same scene in another folder, a fifth of the time that building it takes."""
    shutil.copytree(template.root, root, symlinks=True, dirs_exist_ok=True)
    config = root / "work" / ".git" / "config"
    config.write_text(config.read_text().replace(str(template.root), str(root)))
    return Forge(root, now_s=template.clock.now_s)


def resolve(worktree: Path, files: Mapping[str, str], environ: Mapping[str, str]) -> None:
    """What a person does at a conflict: write the files and `git add` them."""
    for path, content in files.items():
        (worktree / path).write_text(content)
    add: Sequence[str] = ["git", "add", "--", *files]
    subprocess.run(add, cwd=worktree, env=dict(environ), check=True, timeout=60)
