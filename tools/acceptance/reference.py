"""The reference from the judge's side: starts the process, asks it, remembers its answers, ends it.

Every wait is bounded. A reference that fails is no verdict on a server: it ends the run with an error.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from command.errors import Outcome, StateError, usage

from .expected import Expected, Prompt
from .report import Value

_TAIL_LINES = 12


class SnapshotFacts(Value, frozen=True, kw_only=True):
    """What mlx_lm makes of a model folder, and mlx of this machine."""

    versions: dict[str, str]
    has_metal: bool
    device: str
    has_chat_template: bool
    has_tools: bool
    eos_ids: tuple[int, ...]
    bos_token: str | None
    context_tokens: int | None


class Reference:
    """mlx_lm in another process. Units: `job_s` bounds one job, the load included in the first."""

    def __init__(self, model: Path, process: subprocess.Popen[str], log: Path, *, job_s: float) -> None:
        self.model = model
        self._process = process
        self._log = log
        self._job_s = job_s
        self._answers: queue.Queue[str] = queue.Queue()
        self._memory: dict[str, Any] = {}
        threading.Thread(target=self._read, daemon=True, name="reference").start()

    def facts(self, snapshot: Path | None = None) -> SnapshotFacts:
        made = self._ask("describe", snapshot)
        return SnapshotFacts(**{**made, "eos_ids": tuple(made["eos_ids"])})

    def prompt(self, n_tokens: int, *, is_chat: bool = False, seed: int = 0) -> Prompt | None:
        """A text that mlx_lm turns into exactly `n_tokens` ids; None where there is none (a short chat, say)."""
        text = self._ask("prompt", None, n_tokens=n_tokens, is_chat=is_chat, seed=seed)["text"]
        return Prompt(text=text, n_tokens=n_tokens, is_chat=is_chat) if text is not None else None

    def ids(self, prompt: Prompt, snapshot: Path | None = None) -> list[int]:
        ids: list[int] = self._ask("tokens", snapshot, text=prompt.text, is_chat=prompt.is_chat)["ids"]
        return ids

    def generate(
        self,
        prompt: Prompt,
        max_tokens: int,
        *,
        snapshot: Path | None = None,
        eos_ids: Sequence[int] = (),
        tools: Sequence[dict[str, Any]] = (),
    ) -> Expected:
        """The greedy answer. eos_ids: obeyed beside those that the snapshot declares."""
        made = self._ask(
            "generate",
            snapshot,
            text=prompt.text,
            is_chat=prompt.is_chat,
            max_tokens=max_tokens,
            eos_ids=sorted(eos_ids),
            tools=list(tools),
        )
        return Expected(**{**made, "tokens": tuple(made["tokens"]), "pieces": tuple(made["pieces"])})

    def token_names(self, ids: Sequence[int]) -> list[str]:
        """Tokens as the tokenizer's files spell them."""
        names: list[str] = self._ask("token_names", None, ids=list(ids))["names"]
        return names

    def _ask(self, op: str, snapshot: Path | None, **fields: Any) -> Any:
        job = json.dumps({"op": op, "snapshot": str(snapshot or self.model), **fields})
        if job not in self._memory:
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(job + "\n")
                self._process.stdin.flush()
                answer = self._answers.get(timeout=self._job_s)
            except (OSError, queue.Empty) as error:
                raise self._failed(f"gave no answer to {op!r} within {self._job_s:g} s") from error
            if not answer:
                raise self._failed(f"ended with exit code {self._process.wait(10)} in {op!r}")
            self._memory[job] = json.loads(answer)
        return self._memory[job]

    def _failed(self, what: str) -> StateError:
        tail = self._log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        return StateError(
            Outcome.REFERENCE_FAILED,
            [f"the reference (mlx_lm, {self.model}) {what}", *tail],
            next_steps=[f"python -m mlx_lm generate --model {self.model} --prompt hello   # must work by itself"],
        )

    def _read(self) -> None:
        assert self._process.stdout is not None
        stdout: IO[str] = self._process.stdout
        for line in stdout:
            self._answers.put(line)
        self._answers.put("")


@contextmanager
def open_reference(model: Path, log: Path, *, job_s: float = 900.0) -> Iterator[Reference]:
    """Start the process; it is ended when the block is left. log: where its standard error goes.

    Errors: usage where `model` is no folder with a config.json.
    """
    if not (model / "config.json").is_file():
        raise usage(f"{model} is no model folder: it has no config.json", "--model DIR, a folder mlx_lm can load")
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from acceptance.reference_process import main; main()"
    command = [sys.executable, "-I", "-c", code, str(Path(__file__).resolve().parents[1]), str(model)]
    with log.open("w") as stderr:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True, start_new_session=True
        )
        with process:
            try:
                yield Reference(model, process, log, job_s=job_s)
            finally:
                process.kill()
