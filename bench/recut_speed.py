"""How fast tools/recut is on a large synthetic repository, against its three promises.

    .venv/bin/python bench/recut_speed.py [--commits 10000] [--topics 20] [--patches 10] [--json]

Upstream: 1,000 files of 200 lines, one line changed per commit. The fork sits 500 commits behind; every patch
changes a line of a file that upstream has changed elsewhere, so each needs a real merge and none conflicts.
`git rebase` runs over the same commits in the same run, in a clone of its own. Exit 1 if a promise is broken.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

TOP = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TOP), str(TOP / "tools")]

from patchstack.record import render  # noqa: E402
from patchstack.stack import CarriedRow, CommitKind, Record, TopicRow  # noqa: E402
from tests.git.forge import RECUT_TOML, Forge  # noqa: E402

N_FILES = 1_000
N_LINES = 200
N_BEHIND = 500
PATCHED_LINE = 150
STATUS_S = 0.5
PLAN_RATIO = 2.0
RUN_S = 20.0


def main() -> int:
    parser = argparse.ArgumentParser(description="The speed of tools/recut.")
    parser.add_argument("--commits", type=int, default=10_000)
    parser.add_argument("--topics", type=int, default=20)
    parser.add_argument("--patches", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="recut-speed-") as folder:
        forge = Forge(Path(folder).resolve())
        build(forge, n_commits=asked.commits, n_topics=asked.topics, n_patches=asked.patches)
        numbers = measure(forge)
    wall = {name: timing.wall_s for name, timing in numbers.items()}
    promises = {
        f"status < {STATUS_S} s": wall["status"] < STATUS_S,
        f"plan <= {PLAN_RATIO} x git rebase": wall["plan"] <= PLAN_RATIO * wall["rebase"],
        f"start + publish < {RUN_S} s": wall["start"] + wall["publish"] < RUN_S,
    }
    if asked.json:
        timings = {name: timing._asdict() for name, timing in numbers.items()}
        print(json.dumps({"shape": vars(asked), "timings": timings, "promises": promises}, indent=2))
    else:
        print(f"{asked.commits} commits, {asked.topics} topics of {asked.patches} commits, {N_BEHIND} behind")
        print(f"  {'':8} {'wall':>9} {'cpu':>9}")
        for name, timing in numbers.items():
            print(f"  {name:8} {timing.wall_s:7.2f} s {timing.cpu_s:7.2f} s")
        print(f"  plan / rebase {wall['plan'] / wall['rebase']:.2f}")
        for promise, is_kept in promises.items():
            print(f"  {'kept  ' if is_kept else 'BROKEN'} {promise}")
    return 0 if all(promises.values()) else 1


class Timing(NamedTuple):
    """Seconds on the wall, and of CPU in all subprocesses: on a busy machine the first says little."""

    wall_s: float
    cpu_s: float


def measure(forge: Forge) -> dict[str, Timing]:
    """Each command once; status five times, of which the fastest counts, the machine being shared."""
    return {
        "status": min(timed(forge, "status") for _ in range(5)),
        "rebase": timed_rebase(forge),
        "plan": timed(forge, "plan", "--onto", "v1.1.0"),
        "start": timed(forge, "start"),
        "publish": timed(forge, "publish"),
        "verify": timed(forge, "verify"),
    }


@contextmanager
def stopwatch() -> Iterator[list[Timing]]:
    """A list that holds the block's Timing when it ends."""
    found: list[Timing] = []
    wall, cpu = time.perf_counter(), children_cpu_s()
    yield found
    found.append(Timing(time.perf_counter() - wall, children_cpu_s() - cpu))


def children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed(forge: Forge, *args: str) -> Timing:
    with stopwatch() as found:
        forge.recut(*args, timeout_s=600)
    return found[0]


def timed_rebase(forge: Forge) -> Timing:
    """`git rebase` of every topic in a clone with a checkout, keeping dates as the tool does."""
    clone = forge.root / "rebase"
    forge.work.git("clone", "-q", "--no-checkout", str(forge.origin.folder), str(clone))
    git = ["git", "-C", str(clone)]
    run = {"env": forge.work.environ, "check": True, "capture_output": True, "timeout": 600}
    subprocess.run([*git, "fetch", "-q", "--tags", str(forge.upstream.folder), "main"], **run)  # type: ignore[call-overload]
    subprocess.run([*git, "checkout", "-q", "--detach", "v1.0.0"], **run)  # type: ignore[call-overload]
    tips = [tip for ref, tip in forge.origin.branches().items() if "/topic/" in ref]
    with stopwatch() as found:
        for tip in tips:
            onto = ["--onto", "v1.1.0", "v1.0.0", tip]
            subprocess.run([*git, "rebase", "-q", "--committer-date-is-author-date", *onto], **run)  # type: ignore[call-overload]
    return found[0]


# The repository, as one fast-import stream


def build(forge: Forge, *, n_commits: int, n_topics: int, n_patches: int) -> None:
    for folder in (forge.upstream.folder, forge.origin.folder, forge.work.folder, forge.home):
        folder.mkdir(parents=True)
    (forge.root / "no-config").touch()
    forge.upstream.git("init", "-q", "--bare", "-b", "main")
    forge.origin.git("init", "-q", "--bare", "-b", "main")
    forge.configure("user.name", "Fay Fork")
    forge.configure("user.email", "fay@fork.example")
    forge.upstream.git("fast-import", "--quiet", stdin=b"".join(history(n_commits)))
    base = forge.upstream.sha(f"main~{N_BEHIND}")
    forge.upstream.git("tag", "v1.0.0", base)
    forge.upstream.git("tag", "v1.1.0", "main")
    forge.work.git("init", "-q", "-b", "main")
    forge.work.git("remote", "add", "origin", str(forge.origin.folder))
    forge.work.git("remote", "add", "upstream", str(forge.upstream.folder))
    forge.work.git("fetch", "-q", "upstream")
    topics = b"".join(topic_commits(base, n_topics, n_patches, state_at(n_commits - N_BEHIND)))
    forge.work.git("fast-import", "--quiet", stdin=topics)
    settings = RECUT_TOML.replace('names = ["arrays"]', "names = []")
    plain = forge.work.commit("local", "Say what this fork follows", {"recut.toml": settings}, start=base)
    rows = tuple(TopicRow(topic=f"t{topic:03}", new=forge.work.sha(f"topic/t{topic:03}")) for topic in range(n_topics))
    carried = (CarriedRow(commit=plain, kind=CommitKind.PLAIN, subject="Say what this fork follows"),)
    record = Record(base=base, describe="v1.0.0", base_date="2026-01-05", topics=rows, carried=carried)
    forge.work.commit("local", "Record the patch stack", {"UPSTREAM.md": render(record)})
    forge.work.git("push", "-q", "origin", f"{base}:refs/heads/main", "local", "refs/heads/topic/*")
    forge.work.git("checkout", "-q", "-b", "desk", "local")


Lines = list[list[str]]


def path(file: int) -> str:
    return f"d{file % 10}/d{file // 10 % 10}/f{file:03}.txt"


def state_at(n_commits: int) -> Lines:
    """What upstream's files hold after so many commits."""
    lines = [[f"file {file} line {line}" for line in range(N_LINES)] for file in range(N_FILES)]
    for commit in range(1, n_commits):
        change(lines, commit)
    return lines


def change(lines: Lines, commit: int) -> int:
    """One upstream commit: a line in the upper half of one file; the file."""
    file = commit * 7 % N_FILES
    lines[file][commit // N_FILES % (N_LINES // 2)] = f"file {file} commit {commit}"
    return file


def history(n_commits: int) -> Iterator[bytes]:
    lines = state_at(0)
    yield header("main", 0, "Import", start="")
    for file in range(N_FILES):
        yield content(file, lines)
    for commit in range(1, n_commits):
        file = change(lines, commit)
        yield header("main", commit, f"Change file {file}", start="")
        yield content(file, lines)


def topic_commits(base: str, n_topics: int, n_patches: int, lines: Lines) -> Iterator[bytes]:
    for topic in range(n_topics):
        for patch in range(n_patches):
            file = (topic * n_patches + patch) * 7 % N_FILES
            text = [*lines[file]]
            text[PATCHED_LINE] = f"topic {topic} patch {patch}"
            first = base if patch == 0 else ""
            yield header(f"topic/t{topic:03}", 20_000 + topic * 100 + patch, f"Patch {patch}", start=first)
            yield content(file, {file: text})


def header(branch: str, minute: int, subject: str, *, start: str) -> bytes:
    stamp = f"Una Upstream <una@upstream.example> {1_700_000_000 + 60 * minute} +0000"
    message = f"{subject}\n"
    text = f"commit refs/heads/{branch}\nauthor {stamp}\ncommitter {stamp}\ndata {len(message)}\n{message}"
    return (text + (f"from {start}\n" if start else "")).encode()


def content(file: int, lines: Lines | dict[int, list[str]]) -> bytes:
    data = "\n".join([*lines[file], ""]).encode()
    return f"M 100644 inline {path(file)}\ndata {len(data)}\n".encode() + data + b"\n"


if __name__ == "__main__":
    sys.exit(main())
