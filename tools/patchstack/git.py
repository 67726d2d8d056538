"""The only place that starts git: a scrubbed environment, fixed settings, typed answers.

Commands run sealed: with the repository's object store and refs, but without the user's checkout, index,
hooks or .gitattributes, so that the same inputs give the same objects. `at=` runs one in a worktree instead.
It knows nothing of patch stacks. Floor: git 2.39.
"""

from __future__ import annotations

import copy
import os
import re
import subprocess
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import IO, NamedTuple

from command.errors import BugError, Outcome, StateError, refused, usage

from .stack import Commit, FileChange, Identity, Sha, sha

# A user's configuration must not decide what a re-cut does. Names and credentials still come from it.
FIXED_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.attributesFile=/dev/null",
    "core.fsmonitor=false",
    "core.quotePath=false",
    "core.commentChar=#",
    "core.abbrev=auto",
    "rebase.updateRefs=false",
    "rebase.autoStash=false",
    "rebase.autoSquash=false",
    "commit.gpgSign=false",
    "tag.gpgSign=false",
    "tag.forceSignAnnotated=false",
    "push.gpgSign=false",
    "push.followTags=false",
    "push.recurseSubmodules=no",
    "push.pushOption=",
    "fetch.recurseSubmodules=no",
    "fetch.writeCommitGraph=false",
    "fetch.prune=false",
    "fetch.pruneTags=false",
    "submodule.recurse=false",
    "rerere.autoUpdate=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "color.ui=false",
    "diff.noprefix=false",
    "diff.mnemonicPrefix=false",
    "diff.renames=true",
    "diff.algorithm=myers",
    "diff.orderFile=/dev/null",
    "merge.renames=true",
    "merge.directoryRenames=conflict",
    "merge.renormalize=false",
    "merge.renameLimit=7000",
    "merge.conflictStyle=merge",
    "log.showSignature=false",
    "i18n.commitEncoding=UTF-8",
    "i18n.logOutputEncoding=UTF-8",
    "versionsort.suffix=",
    "advice.detachedHead=false",
)

# The GIT_* variables that say who the user is or how to reach a server; every other one is dropped.
_KEPT_VARIABLES = re.compile(
    r"GIT_(SSH|SSH_COMMAND|SSH_VARIANT|ASKPASS|PROXY_.*|SSL_.*|HTTP_.*|EXEC_PATH|TEMPLATE_DIR"
    r"|CONFIG_GLOBAL|CONFIG_SYSTEM|CONFIG_NOSYSTEM|CEILING_DIRECTORIES"
    r"|(AUTHOR|COMMITTER)_(NAME|EMAIL))"
)


class Result(NamedTuple):
    """One git command's end."""

    code: int
    out: bytes
    err: str


def scrubbed(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` without anything that could redirect git, with editors, prompts and pagers disarmed."""
    kept = {
        name: value for name, value in environ.items() if not name.startswith("GIT_") or _KEPT_VARIABLES.fullmatch(name)
    }
    return kept | {
        "LC_ALL": "C",
        "LANGUAGE": "",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_EDITOR": "true",
        "GIT_SEQUENCE_EDITOR": "true",
        "GIT_PAGER": "cat",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_MERGE_AUTOEDIT": "no",
    }


class Git:
    """One repository.

    common_dir: where refs and objects are (shared by all worktrees); top: the checkout's root, None if bare.
    Errors: StateError(git-failed) with git's own words, unless the exit code is listed in `ok`.
    """

    def __init__(self, *, common_dir: Path, top: Path | None, environ: Mapping[str, str]) -> None:
        self.common_dir = common_dir
        self.top = top
        self._environ = scrubbed(environ)
        # A folder every repository has and where no .gitattributes can be: the work tree of sealed commands.
        self._sealed = common_dir / "objects"
        self._objects = ObjectStore()

    def with_work_tree(self, folder: Path) -> Git:
        """The same repository, whose sealed commands see `folder` as their work tree."""
        other = copy.copy(self)
        other._sealed = folder
        return other

    def start(
        self,
        args: Sequence[str],
        *,
        at: Path | None = None,
        env: Mapping[str, str] | None = None,
        settings: Sequence[str] = (),
        pass_fds: Sequence[int] = (),
    ) -> subprocess.Popen[bytes]:
        """A running git with pipes on all three streams, for commands that answer line by line."""
        command = ["git"]
        for setting in (*FIXED_SETTINGS, *settings):
            command += ["-c", setting]
        full = dict(self._environ)
        if at is None:
            command += [f"--git-dir={self.common_dir}", f"--work-tree={self._sealed}"]
            full["GIT_INDEX_FILE"] = str(self._sealed / "no-index")
        full.update(env or {})
        try:
            return subprocess.Popen(
                [*command, *args],
                cwd=at or self._sealed,
                env=full,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=pass_fds,
            )
        except FileNotFoundError as error:
            raise StateError(
                Outcome.GIT_FAILED,
                f"git cannot be started: {error}",
                next_steps=["install git 2.39 or newer"],
            ) from error

    def run(
        self,
        *args: str,
        stdin: bytes = b"",
        ok: Iterable[int] = (0,),
        at: Path | None = None,
        env: Mapping[str, str] | None = None,
        settings: Sequence[str] = (),
        state: str = "",
    ) -> Result:
        """Run `git *args` to its end. An exit code outside `ok` is a StateError that says `state`."""
        with self.start(args, at=at, env=env, settings=settings) as process:
            out, err = process.communicate(stdin)
        result = Result(process.returncode, out, err.decode(errors="replace").strip())
        if result.code not in ok:
            said = result.err or "(no message)"
            raise StateError(Outcome.GIT_FAILED, f"git {args[0]} failed with exit {result.code}: {said}", state=state)
        return result

    def text(self, *args: str, stdin: bytes = b"", at: Path | None = None) -> str:
        """Standard output without its last newline; bytes that are not UTF-8 survive as surrogates."""
        return os.fsdecode(self.run(*args, stdin=stdin, at=at).out).rstrip("\n")

    def lines(self, *args: str, stdin: bytes = b"", at: Path | None = None) -> list[str]:
        """Standard output by lines, for output that cannot hold file names."""
        return [line for line in self.text(*args, stdin=stdin, at=at).split("\n") if line]

    # Refs and configuration

    def config(self, key: str) -> str | None:
        result = self.run("config", "--get", "--end-of-options", key, ok=(0, 1))
        return os.fsdecode(result.out).rstrip("\n") if result.code == 0 else None

    def identity(self) -> Identity:
        """The user's name and address, as git would write them into a commit."""
        said = os.fsdecode(self.run("var", "GIT_COMMITTER_IDENT", ok=(0, 128)).out).strip()
        found = re.fullmatch(r"(.+) <(.*)> \d+ [+-]\d+", said)
        if not found:
            raise refused("git does not know who you are", 'git config user.name "..." && git config user.email "..."')
        return Identity(name=found[1], email=found[2])

    def refs(self, *prefixes: str) -> dict[str, Sha]:
        """Full ref name -> object id, of all refs under the prefixes (refs/heads/, say)."""
        rows = self.lines("for-each-ref", "--format=%(objectname) %(refname)", *prefixes)
        return {name: Sha(value) for value, _, name in (row.partition(" ") for row in rows)}

    def require_version(self, *floor: int) -> None:
        """Errors: refused where git is older than `floor`."""
        said = self.text("version")
        found = tuple(map(int, re.findall(r"\d+", said)[: len(floor)]))
        if found < floor:
            wanted = ".".join(map(str, floor))
            raise refused(f"{said} is too old: git {wanted} or newer is needed", f"install git {wanted}")

    def remotes(self) -> list[str]:
        return self.lines("remote")

    def checked_out(self) -> dict[str, Path]:
        """Full branch ref -> the worktree where it is checked out (or being rebased)."""
        found: dict[str, Path] = {}
        for block in self.run("worktree", "list", "--porcelain", "-z").out.split(b"\0\0"):
            fields = {key: value for key, _, value in (os.fsdecode(line).partition(" ") for line in block.split(b"\0"))}
            if "branch" in fields and "worktree" in fields:
                found[fields["branch"]] = Path(fields["worktree"])
        return found

    def update_refs(self, changes: Mapping[str, tuple[Sha | None, Sha | None]], *, reason: str) -> bool:
        """Set every ref from its old to its new value (None: absent), all or nothing. False: none was set."""
        zero = "0" * self.hash_length
        script = "".join(f"update {ref}\0{new or zero}\0{old or zero}\0" for ref, (old, new) in changes.items())
        if not script:
            return True
        result = self.run("update-ref", "-m", reason, "--stdin", "-z", stdin=os.fsencode(script), ok=(0, 128))
        return result.code == 0

    def keep(self, ref: str, commit: Sha) -> None:
        """Point one of this tool's own refs at a commit, wherever it was, so that gc leaves the commit."""
        self.run("update-ref", "-m", "recut: keep", ref, commit)

    @cached_property
    def hash_length(self) -> int:
        """Hex digits of an object id here."""
        return 64 if self.config("extensions.objectformat") == "sha256" else 40

    # Objects

    @property
    def is_shallow(self) -> bool:
        return (self.common_dir / "shallow").exists()

    def resolve(self, revision: str) -> Sha | None:
        """The commit that `revision` names, None if there is none."""
        result = self.run(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}", ok=(0, 1, 128)
        )
        return sha(result.out.decode().strip()) if result.code == 0 else None

    def missing(self, commits: Iterable[Sha]) -> list[Sha]:
        """Those of `commits` that are not in the object store as commits."""
        wanted = list(dict.fromkeys(commits))
        rows = self.lines(
            "cat-file",
            "--batch-check=%(objecttype)",
            stdin="".join(f"{c}^{{commit}}\n" for c in wanted).encode(),
        )
        return [commit for commit, row in zip(wanted, rows, strict=True) if row != "commit"]

    def commits(self, wanted: Sequence[Sha]) -> list[Commit]:
        """The commits in the order asked for."""
        known = self._objects.commits
        new = [commit for commit in dict.fromkeys(wanted) if commit not in known]
        for commit, raw in zip(new, self._read(new), strict=True):
            known[commit] = read_commit(commit, raw)
        return [known[commit] for commit in wanted]

    def _read(self, wanted: Sequence[str]) -> Iterator[bytes]:
        if not wanted:
            return
        out = self.run("cat-file", "--batch", stdin="".join(f"{name}\n" for name in wanted).encode()).out
        at = 0
        for name in wanted:
            end = out.index(b"\n", at)
            header = out[at:end].split(b" ")
            if len(header) != 3 or not header[2].isdigit():
                raise StateError(Outcome.GIT_FAILED, f"object {name} is not in this repository")
            start = end + 1
            at = start + int(header[2]) + 1
            yield out[start : at - 1]

    def range(self, base: Sha, tip: Sha) -> list[Sha]:
        """Commits of base..tip, oldest first, parents before children."""
        return [Sha(row) for row in self.lines("rev-list", "--reverse", "--topo-order", f"{base}..{tip}")]

    def graph(self, tips: Iterable[Sha], *, without: Iterable[Sha]) -> dict[Sha, tuple[Sha, ...]]:
        """Commit -> parents, of everything that the tips reach and `without` does not, in one walk."""
        names = "".join(f"{name}\n" for name in (*tips, *(f"^{tip}" for tip in without)))
        rows = (row.split(" ") for row in self.lines("rev-list", "--parents", "--stdin", stdin=names.encode()))
        return {Sha(commit): tuple(map(Sha, parents)) for commit, *parents in rows}

    def is_ancestor(self, ancestor: Sha, commit: Sha) -> bool:
        """Whether `commit` contains `ancestor`. Errors: an absent object; a shallow clone, where git lies."""
        if self.is_shallow:
            raise refused("this clone is shallow, so git cannot tell ancestors", "git fetch --unshallow")
        return self.run("merge-base", "--is-ancestor", ancestor, commit, ok=(0, 1)).code == 0

    def merge_base(self, one: Sha, other: Sha) -> Sha | None:
        """The newest common commit, None for unrelated histories."""
        result = self.run("merge-base", one, other, ok=(0, 1))
        return sha(result.out.decode().split("\n")[0]) if result.code == 0 else None

    def changes(self, commits: Sequence[Sha]) -> dict[Sha, tuple[FileChange, ...]]:
        """What each commit changes against its first parent, renames as a removal and an addition."""
        if not commits:
            return {}
        out = self.run(
            "diff-tree", "--stdin", "--always", "--root", "-r", "-z", "--raw", "--no-renames", "-m",
            "--first-parent",
            stdin="".join(f"{commit}\n" for commit in commits).encode(),
        ).out  # fmt: skip
        found: dict[Sha, list[FileChange]] = {}
        current: list[FileChange] = []
        fields = iter(out.split(b"\0"))
        for field in fields:
            if field.startswith(b":"):
                old_mode, new_mode, _, _, status = field[1:].decode().split(" ")
                current.append(FileChange(os.fsdecode(next(fields)), old_mode, new_mode, status))
            elif field.strip():
                current = found.setdefault(Sha(field.decode().strip()), [])
        return {commit: tuple(found.get(commit, ())) for commit in commits}

    def tree_changes(self, old: Sha, new: Sha) -> tuple[FileChange, ...]:
        """What differs between two commits or trees."""
        out = self.run("diff-tree", "-r", "-z", "--raw", "--no-renames", old, new).out
        fields = iter(out.split(b"\0"))
        return tuple(
            FileChange(os.fsdecode(next(fields)), *_modes_and_status(field))
            for field in fields
            if field.startswith(b":")
        )

    def diffs(self, commits: Sequence[Sha], *, exclude: Sequence[str] = ()) -> bytes:
        """`-U0` patches of the commits, each after a line with its id, without paths matching `exclude`."""
        if not commits:
            return b""
        return self.run(
            "diff-tree", "--stdin", "--root", "-r", "-p", "-U0", "--full-index", "--binary", "--no-renames",
            "--no-ext-diff", "--no-textconv", "--no-color", "--", ".",
            *(f":(exclude,glob){pattern}" for pattern in exclude),
            stdin="".join(f"{commit}\n" for commit in commits).encode(),
        ).out  # fmt: skip

    def patch_ids(self, commits: Sequence[Sha], *, exclude: Sequence[str] = ()) -> dict[Sha, str]:
        """Stable `-U0` patch id of each commit, "" for one without changes (outside `exclude`).

        Source: git-patch-id(1). Context is left out because a change nearby would alter the id.
        """
        rows = self.lines("patch-id", "--stable", stdin=self.diffs(commits, exclude=exclude))
        found = {Sha(commit): patch for patch, _, commit in (row.partition(" ") for row in rows)}
        return {commit: found.get(commit, "") for commit in commits}

    def file(self, commit: Sha, path: str) -> bytes | None:
        """The content of `path` in a commit or tree, None where it has none."""
        return self.file_at(commit, path)

    def file_at(self, revision: str, path: str) -> bytes | None:
        """The same for any revision, None also where there is no such revision."""
        result = self.run("cat-file", "blob", f"{revision}:{path}", ok=(0, 128))
        return result.out if result.code == 0 else None

    def write_commit(self, data: bytes) -> Sha:
        """Store a commit, through one git that stays: a replay writes hundreds."""
        if self._objects.writer is None:
            self._objects.writer = CommitWriter(self, self._objects)
        return self._objects.writer.write(data)

    def write_object(self, kind: str, data: bytes) -> Sha:
        """Store an object (blob, tree, tag); git checks its form."""
        return sha(self.text("hash-object", "-w", "-t", kind, "--stdin", stdin=data))

    def with_file(self, tree: Sha, path: str, content: bytes, *, mode: str = "100644") -> Sha:
        """`tree` (or a commit's) with `path` set to `content`: the id of the new tree."""
        return self.with_files(tree, {path: content}, mode=mode)

    def with_files(self, tree: Sha, files: Mapping[str, bytes], *, mode: str = "100644") -> Sha:
        """Changes: only the object store; the index it needs is a scratch file."""
        index = self.common_dir / f"recut-index-{os.getpid()}"
        env = {"GIT_INDEX_FILE": str(index)}
        try:
            self.run("read-tree", tree, env=env)
            rows = b"".join(
                f"{mode} {self.write_object('blob', content)} 0\t".encode() + os.fsencode(path) + b"\0"
                for path, content in files.items()
            )
            self.run("update-index", "-z", "--index-info", stdin=rows, env=env)
            return sha(self.run("write-tree", env=env).out.decode().strip())
        finally:
            index.unlink(missing_ok=True)


class ObjectStore:
    """What has been read of an object store, which never changes, and the one process that writes to it."""

    def __init__(self) -> None:
        self.commits: dict[Sha, Commit] = {}
        self.writer: CommitWriter | None = None


class CommitWriter:
    """`git hash-object` kept running; it reads one nameless file again and again, and ends with its owner."""

    def __init__(self, git: Git, owner: ObjectStore) -> None:
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed with its owner
        args = ("hash-object", "-w", "-t", "commit", "--no-filters", "--stdin-paths")
        self._process = git.start(args, pass_fds=(self._file.fileno(),))
        weakref.finalize(owner, _end_writer, self._process, self._file)

    def write(self, data: bytes) -> Sha:
        """Errors: git-failed where git does not accept it as a commit."""
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin and stdout and stderr
        self._file.seek(0)
        self._file.truncate()
        self._file.write(data)
        self._file.seek(0)
        try:
            stdin.write(f"/dev/fd/{self._file.fileno()}\n".encode())
            stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, and says why below
        answer = stdout.readline().decode().strip()
        if not answer:
            raise StateError(Outcome.GIT_FAILED, f"git hash-object failed: {stderr.read().decode().strip()}")
        return sha(answer)


def _end_writer(process: subprocess.Popen[bytes], file: IO[bytes]) -> None:
    process.communicate()
    file.close()


def _modes_and_status(field: bytes) -> tuple[str, str, str]:
    old_mode, new_mode, _, _, status = field[1:].decode().split(" ")
    return old_mode, new_mode, status


_IDENT = re.compile(r"(?P<who>.*?) ?(?P<date>-?\d+) (?P<zone>[+-]\d+)$")


def read_commit(commit: Sha, raw: bytes) -> Commit:
    """A commit object's bytes as a value."""
    headers: list[tuple[str, str]] = []
    for line in raw.partition(b"\n\n")[0].decode(errors="surrogateescape").split("\n"):
        key, _, value = line.partition(" ")
        if key:
            headers.append((key, value))
    fields = dict(reversed(headers))
    author, committer = _IDENT.match(fields.get("author", "")), _IDENT.match(fields.get("committer", ""))
    if not author or not committer:
        raise BugError(f"commit {commit} has no author or committer line that can be read")
    return Commit(
        sha=commit,
        tree=sha(fields["tree"]),
        parents=tuple(sha(value) for key, value in headers if key == "parent"),
        author=author["who"],
        author_date_s=int(author["date"]),
        author_zone=author["zone"],
        committer=committer["who"],
        committer_date_s=int(committer["date"]),
        raw=raw,
    )


def open_git(folder: Path, environ: Mapping[str, str]) -> Git:
    """The repository that `folder` lies in.

    Errors: usage where there is none; git-failed with git's own words where its configuration is broken.
    """
    probe = Git(common_dir=folder, top=None, environ=environ)
    result = probe.run(
        "rev-parse", "--path-format=absolute", "--git-common-dir", "--is-bare-repository", "--show-toplevel",
        at=folder, ok=range(256),
    )  # fmt: skip
    rows = os.fsdecode(result.out).split("\n")
    if result.code and not (len(rows) > 1 and rows[1] == "true"):
        if "not a git repository" in result.err:
            raise usage(f"{folder} is not inside a git repository", "cd into your clone of the fork")
        raise StateError(Outcome.GIT_FAILED, f"git cannot read this repository: {result.err}")
    top = Path(rows[2]) if len(rows) > 2 and rows[1] == "false" else None
    return Git(common_dir=Path(rows[0]), top=top, environ=environ)
