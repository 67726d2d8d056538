"""Runners for tests of everything around the real one: one that needs no model, and some that misbehave on cue.

The faulty ones wrap any runner, so that a test starts the product through its own composition root:

    make_engine(..., runner_of=lambda model: FailingRunner(ModelRunner(model), decode_calls={5}))
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Collection, Container, Iterable
from collections.abc import Sequence as SequenceOf

from mlxcel.core import Request, Sampled, Sequence, State, TokenLogprobs
from mlxcel.engine.chunk import Chunk, Fork, Keep
from mlxcel.engine.runner import Results, Runner
from mlxcel.errors import MlxcelError
from mlxcel.kv.prefix import Prefix

PRETEND_VOCABULARY = 50
"""Token ids of a PretendRunner: 0 to 49."""


def _digest(tokens: Iterable[int], digest: int = 0) -> int:
    for token in tokens:
        digest = zlib.crc32(token.to_bytes(4, "little"), digest)
    return digest


def _next_token(digest: int, position: int) -> int:
    return zlib.crc32(position.to_bytes(4, "little"), digest) % PRETEND_VOCABULARY


def pretend_alone(request: Request, *, eos_ids: Collection[int] = (), complete_after: int | None = None) -> list[int]:
    """The tokens that a request gets from a PretendRunner, computed without an engine.

    `complete_after` counts the tokens that complete its constraint.
    """
    digest, tokens = _digest(request.prompt), list[int]()
    ends = set(request.sampling.stop_token_ids) | (set() if request.ignore_eos else set(eos_ids))
    while len(tokens) < min(request.max_tokens, complete_after or request.max_tokens):
        tokens.append(_next_token(digest, len(tokens)))
        digest = _digest(tokens[-1:], digest)
        if tokens[-1] in ends:
            break
    return tokens


class _Cached:
    """One row's stand-in for keys and values: what was cached, in a digest."""

    def __init__(self, tokens: SequenceOf[int] = ()) -> None:
        self.tokens: list[int] = []
        self.digest = 0
        self.next_input = -1
        self.append(tokens)

    @property
    def n_tokens(self) -> int:
        return len(self.tokens)

    def append(self, tokens: SequenceOf[int]) -> None:
        self.tokens += tokens
        self.digest = _digest(tokens, self.digest)


class PretendRunner:
    """A model without tensors: a row's next token is a digest of everything cached and of its position.

    It keeps ModelRunner's contract: one step behind, rows in the order in which they joined, the input of a row
    that stays is the token of its step before, a constraint hears each token once. Whoever plans a wrong chunk,
    fork, order or position gets an assertion or another token. `can_go_back` says whether a source that has gone
    on can still be forked.
    """

    def __init__(self, *, can_go_back: bool = True) -> None:
        self.can_go_back = can_go_back
        self._prefilled: dict[str, _Cached] = {}
        self._rows: dict[str, _Cached] = {}
        self._kept: dict[str, _Cached] = {}
        self._landing: Results | None = None

    @property
    def n_cached(self) -> dict[str, int]:
        """Cached tokens by sequence id, of ended rows too until they are dropped."""
        return {i: cached.n_tokens for held in (self._prefilled, self._rows) for i, cached in held.items()}

    @property
    def n_kept(self) -> dict[str, int]:
        """Cached tokens by prefix id."""
        return {i: cached.n_tokens for i, cached in self._kept.items()}

    def prefill(self, chunk: Chunk) -> SequenceOf[TokenLogprobs]:
        cached = self._prefilled.setdefault(chunk.sequence.id, _Cached())
        assert cached.n_tokens == chunk.start < chunk.end < len(chunk.sequence.tokens)
        cached.append(chunk.tokens)
        return [TokenLogprobs(-float(token), ()) for token in chunk.next_tokens if chunk.sequence.measures_prompt]

    def keep(self, keep: Keep) -> bool:
        assert keep.sequence.state in (State.DECODING, State.FINISHED)
        cached = self._prefilled.pop(keep.sequence.id, None) or self._rows[keep.sequence.id]
        assert cached.tokens == keep.prefix.tokens
        self._kept[keep.prefix.id] = _Cached(cached.tokens)
        return self.can_go_back

    def fork(self, fork: Fork) -> bool:
        if isinstance(fork.source, Prefix):
            source = self._kept[fork.source.id]
        else:
            source = self._prefilled.get(fork.source.id) or self._rows[fork.source.id]
            assert fork.source.state is State.DECODING
        assert fork.sequence.id not in self._prefilled
        assert source.tokens[: fork.n_tokens] == fork.sequence.tokens[: fork.n_tokens]
        assert 0 < fork.n_tokens <= source.n_tokens
        if fork.n_tokens < source.n_tokens and not self.can_go_back:
            return False
        self._prefilled[fork.sequence.id] = _Cached(source.tokens[: fork.n_tokens])
        return True

    def decode(self, rows: SequenceOf[Sequence]) -> Results:
        landed, self._landing = self._landing, None
        wanted = {row.id for row in rows}
        self._rows = {i: cached for i, cached in self._rows.items() if i in wanted}
        for row in rows:
            if row.id not in self._rows:
                self._rows[row.id] = self._prefilled.pop(row.id, _Cached())
                self._rows[row.id].next_input = row.tokens[-1]
                assert self._rows[row.id].n_tokens == len(row.tokens) - 1
        assert list(self._rows) == [row.id for row in rows]
        if rows:
            self._landing = [(row, Sampled(self._step(row))) for row in rows]
        return [(row, self._advance(row, result)) for row, result in landed or []]

    @staticmethod
    def _advance(row: Sequence, result: Sampled | MlxcelError) -> Sampled | MlxcelError:
        constraint = row.request.constraint
        if constraint is None or isinstance(result, MlxcelError) or row.state is not State.DECODING:
            return result
        if result.token in row.end_ids:
            return result
        constraint.advance(result.token)
        return result._replace(is_last=constraint.is_complete)

    def _step(self, row: Sequence) -> int:
        cached = self._rows[row.id]
        cached.append([cached.next_input])
        cached.next_input = _next_token(cached.digest, row.n_launched - 1)
        return cached.next_input

    def forget(self, ids: Iterable[str]) -> None:
        for one in ids:
            self._prefilled.pop(one, None)
            self._kept.pop(one, None)

    def reset(self) -> None:
        self._rows, self._landing = {}, None

    def probe(self) -> None:
        """Nothing can be broken here."""

    def close(self) -> None:
        """Nothing is held here."""


class _Around:
    """A runner that passes every call on."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.n_decode_calls = 0
        self.n_prefill_calls = 0
        self.n_prefilled_tokens = 0
        self.n_fork_calls = 0

    def prefill(self, chunk: Chunk) -> SequenceOf[TokenLogprobs]:
        self.n_prefill_calls += 1
        self.n_prefilled_tokens += len(chunk.tokens)
        return self.runner.prefill(chunk)

    def keep(self, keep: Keep) -> bool:
        return self.runner.keep(keep)

    def fork(self, fork: Fork) -> bool:
        self.n_fork_calls += 1
        return self.runner.fork(fork)

    def decode(self, rows: SequenceOf[Sequence]) -> Results:
        """Only calls with rows count: an idle engine makes one without."""
        self.n_decode_calls += bool(rows)
        return self.runner.decode(rows)

    def forget(self, ids: Iterable[str]) -> None:
        self.runner.forget(ids)

    def reset(self) -> None:
        self.runner.reset()

    def probe(self) -> None:
        self.runner.probe()

    def close(self) -> None:
        self.runner.close()


class FailingRunner(_Around):
    """Raises `error` instead of running the calls named, counted from 1; in every probe if `probe_fails`."""

    def __init__(
        self,
        runner: Runner,
        *,
        decode_calls: Container[int] = (),
        prefill_calls: Container[int] = (),
        fork_calls: Container[int] = (),
        probe_fails: bool = False,
        error: type[Exception] = RuntimeError,
    ) -> None:
        super().__init__(runner)
        self._error = error
        self._decode_calls = decode_calls
        self._prefill_calls = prefill_calls
        self._fork_calls = fork_calls
        self._probe_fails = probe_fails

    def prefill(self, chunk: Chunk) -> SequenceOf[TokenLogprobs]:
        if self.n_prefill_calls + 1 in self._prefill_calls:
            self.n_prefill_calls += 1
            raise self._error("prefill failed on cue")
        return super().prefill(chunk)

    def fork(self, fork: Fork) -> bool:
        if self.n_fork_calls + 1 in self._fork_calls:
            self.n_fork_calls += 1
            raise self._error("fork failed on cue")
        return super().fork(fork)

    def decode(self, rows: SequenceOf[Sequence]) -> Results:
        if rows and self.n_decode_calls + 1 in self._decode_calls:
            self.n_decode_calls += 1
            raise self._error("decode failed on cue")
        return super().decode(rows)

    def probe(self) -> None:
        if self._probe_fails:
            raise RuntimeError("probe failed on cue")
        super().probe()


class HangingRunner(_Around):
    """Hangs in one decode call, counted from 1, until `release()`; `is_hanging` is set while it does."""

    def __init__(self, runner: Runner, *, decode_call: int) -> None:
        super().__init__(runner)
        self.is_hanging = threading.Event()
        self._released = threading.Event()
        self._decode_call = decode_call

    def decode(self, rows: SequenceOf[Sequence]) -> Results:
        if rows and self.n_decode_calls + 1 == self._decode_call:
            self.is_hanging.set()
            self._released.wait()
            self.is_hanging.clear()
        return super().decode(rows)

    def release(self) -> None:
        self._released.set()


class SlowRunner(_Around):
    """Takes `step_s` longer for every prefill chunk and decode step, as a larger model would."""

    def __init__(self, runner: Runner, *, step_s: float) -> None:
        super().__init__(runner)
        self._step_s = step_s

    def prefill(self, chunk: Chunk) -> SequenceOf[TokenLogprobs]:
        time.sleep(self._step_s)
        return super().prefill(chunk)

    def decode(self, rows: SequenceOf[Sequence]) -> Results:
        if rows:
            time.sleep(self._step_s)
        return super().decode(rows)


class SayingRunner(_Around):
    """Puts given tokens in place of those that the model chose: every row says the same."""

    def __init__(self, runner: Runner, *, tokens: SequenceOf[int]) -> None:
        super().__init__(runner)
        self._tokens = tokens

    def decode(self, rows: SequenceOf[Sequence]) -> Results:
        return [
            (row, result if isinstance(result, MlxcelError) else result._replace(token=self._token(row.n_generated)))
            for row, result in super().decode(rows)
        ]

    def _token(self, position: int) -> int:
        # A step launched before a row's end was read lands after it.
        return self._tokens[min(position, len(self._tokens) - 1)]
