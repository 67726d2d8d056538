"""The tool's package on the path, and one reference process for all tests of servers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from acceptance.evidence import Party, Wish, judge_sides  # noqa: E402
from acceptance.reference import Reference, open_reference  # noqa: E402
from acceptance.report import Report  # noqa: E402
from acceptance.server import parse_target  # noqa: E402
from acceptance.settings import Settings  # noqa: E402

FLAGS = {
    "no_batch": "--no-batch",
    "max_batch": "--max-batch-size {n}",
    "queue_depth": "--max-queue-depth {n}",
    "queue_unbounded": "--max-queue-depth unbounded",
}
SOUND = f"{sys.executable} -m tests.support.broken_server {{model}} --port {{port}} {{args}}"
OURS = f"{sys.executable} -m mlxcel serve {{model}} --port {{port}} {{args}}"

Judged = Callable[..., Report]


@pytest.fixture(scope="session")
def reference(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reference]:
    with open_reference(tiny_model, tmp_path_factory.mktemp("reference") / "log", job_s=60) as process:
        yield process


@pytest.fixture
def judged(reference: Reference, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judged:
    """Judge a command with short limits, as `tools/evidence run` does with long ones."""
    monkeypatch.chdir(ROOT)

    def judge(command: str, *matrices: str, **wanted: object) -> Report:
        given: dict[str, object] = {"request_s": 15.0, "start_s": 30.0, "stop_s": 10.0, "lengths": (33,)}
        given |= {"no_batch_lengths": (33,), "n_tokens": 16, "n_batch": 3, "n_queue": 2, **wanted}
        wish = Wish(
            settings=Settings(model=tiny_model, **given),  # type: ignore[arg-type]
            matrices=matrices,
            after=Party(label="after", target=parse_target(command, FLAGS), source=ROOT),
            before=None,
            title="a test",
            made_by="tests",
            folder=tmp_path,
        )
        return judge_sides(wish, reference, lambda *_: None)

    return judge
