"""ModelRunner: chunks and rows in, one model call, tokens out. The only room that sees tensors and requests.

A decode step is launched before the step before it is read, so that the device computes while Python works. Where a
row's choice depends on its last token (a constraint, DRY), the model call is launched first all the same, and only the
sampling waits. A row whose sampler or constraint fails gets an error in place of its token; the others keep theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from typing import Protocol, cast

import mlx.core as mx

from mlxcel.core import Sampled, Sequence, State, TokenLogprobs
from mlxcel.engine.chunk import Chunk, Fork, Keep
from mlxcel.errors import BugError, GenerationError, MlxcelError, reason_of
from mlxcel.kv.arrays import BatchArrays, LayerCaches, can_cut, can_merge, copy_caches, cut_caches, drop_spare
from mlxcel.kv.prefix import Prefix
from mlxcel.model.load import LoadedModel
from mlxcel.sampling.logprobs import RowsLogprobs, measure_logprobs
from mlxcel.sampling.mask import Words
from mlxcel.sampling.sampler import RowsSampler, needs_last_token

STEPS_BETWEEN_CLEARINGS = 256
"""MLX keeps freed buffers; give them back to the system this often, as mlx_lm does."""

POSITIONS_AT_ONCE = 32
"""Of a prompt's log-probabilities."""

LARGEST_BATCH_ERROR = 0.1
"""How far a row's logits may be from those it has alone, relative to their spread, to be called the same."""

Results = list[tuple[Sequence, "Sampled | MlxcelError"]]
MakeSampler = Callable[[SequenceOf[Sequence], "RowsSampler | None"], RowsSampler]
"""From the rows, and the sampler of the rows before them."""


class Runner(Protocol):
    """What the engine loop asks of a runner."""

    def prefill(self, chunk: Chunk) -> SequenceOf[TokenLogprobs]: ...
    def keep(self, keep: Keep) -> bool: ...
    def fork(self, fork: Fork) -> bool: ...
    def decode(self, rows: SequenceOf[Sequence]) -> Results: ...
    def forget(self, ids: Iterable[str]) -> None: ...
    def reset(self) -> None: ...
    def probe(self) -> None: ...
    def close(self) -> None: ...


@dataclass
class _Step:
    """A decode step on its way: its tokens [B] are not read yet."""

    rows: SequenceOf[Sequence]
    tokens: mx.array
    logprobs: SequenceOf[tuple[int, RowsLogprobs]] = ()
    """What rows asked for, each part with the row from which it counts."""
    errors: dict[int, MlxcelError] = field(default_factory=dict)
    is_constrained: bool = False


@dataclass
class _Batch:
    """The rows of one step after another, until one joins or leaves.

    `sampler` is None if these rows cannot share one, since a row's parameters are at fault. If it `waits`, a step's
    tokens must be read before the next ones can be picked.
    """

    ids: list[str]
    sampler: RowsSampler | None
    constrained: list[int]
    waits: bool


class ModelRunner:
    """Runs a LoadedModel. Owner: the engine thread."""

    def __init__(self, model: LoadedModel, make_sampler: MakeSampler = RowsSampler) -> None:
        self._model = model
        self._make_sampler = make_sampler
        self._prefilled: dict[str, LayerCaches] = {}
        self._kept: dict[str, LayerCaches] = {}
        self._arrays = BatchArrays()
        self._step: _Step | None = None
        self._batch: _Batch | None = None
        self._n_launches = 0

    @property
    def kv_bytes(self) -> int:
        """Bytes of every sequence's cache arrays, padding included."""
        return _nbytes(self._prefilled) + self._arrays.nbytes

    @property
    def kept_bytes(self) -> int:
        """Bytes of every prefix's cache arrays."""
        return _nbytes(self._kept)

    def prefill(self, chunk: Chunk) -> SequenceOf[TokenLogprobs]:
        """Cache a chunk's keys and values; returns when they are computed.

        If its sequence asked for them, with the log-probabilities of the tokens that follow the chunk's.
        """
        caches = self._prefilled.get(chunk.sequence.id)
        if caches is None:
            caches = self._prefilled[chunk.sequence.id] = self._model.make_caches()
        logits = self._model.every_logits(mx.array([list(chunk.tokens)]), caches)
        mx.eval([cache.state for cache in caches])
        n_top = chunk.sequence.request.n_prompt_logprobs if chunk.sequence.measures_prompt else None
        logprobs = [] if n_top is None else _prompt_logprobs(logits[0], chunk.next_tokens, n_top)
        if chunk.is_last:
            mx.clear_cache()
        return logprobs

    def keep(self, keep: Keep) -> bool:
        """Let a sequence's caches outlive it; whether they can be cut back to fewer tokens.

        It waits for nothing: the step that fills them may be under way.
        """
        caches = self._prefilled.pop(keep.sequence.id, None) or self._arrays.take_row(keep.sequence.id)
        drop_spare(caches)
        mx.async_eval([cache.state for cache in caches])  # type: ignore[no-untyped-call]
        self._kept[keep.prefix.id] = caches
        return can_cut(caches, len(keep.prefix.tokens))

    def fork(self, fork: Fork) -> bool:
        """Give a sequence a copy of its source's first tokens; False where the source's cache cannot go back to them.

        Returns when the copy is made.
        """
        source = fork.source
        whole = self._kept.get(source.id) or self._prefilled.get(source.id)
        caches = self._arrays.copy_row(source.id) if whole is None else copy_caches(whole)
        n_whole = len(source.tokens) if isinstance(source, Prefix) else source.n_prefilled
        is_exact = whole is not None and n_whole == fork.n_tokens
        if not cut_caches(caches, fork.n_tokens) and not is_exact:
            return False
        mx.eval([cache.state for cache in caches])
        self._prefilled[fork.sequence.id] = caches
        return True

    def decode(self, rows: SequenceOf[Sequence]) -> Results:
        """Launch one step for `rows` and return what the step before it made."""
        landed, self._step = self._step, None
        if not rows:
            self._arrays.drop()
            self._batch = None
            return _land(landed)
        inputs = self._reconcile(rows, landed)
        self._n_launches += 1
        if self._n_launches % STEPS_BETWEEN_CLEARINGS == 0:
            mx.clear_cache()
        logits = self._model(inputs[:, None], self._arrays.caches)
        batch = self._batch_of(rows)
        results = None
        if batch.waits:
            mx.async_eval(logits)  # type: ignore[no-untyped-call]
            results = _land(landed)
        self._step = self._sample(batch, rows, logits, inputs, results or [])
        mx.async_eval(self._step.tokens)  # type: ignore[no-untyped-call]
        return _land(landed) if results is None else results

    def forget(self, ids: Iterable[str]) -> None:
        """Drop the caches of sequences that ended while they prefilled, and those of prefixes."""
        for one in ids:
            self._prefilled.pop(one, None)
            self._kept.pop(one, None)

    def reset(self) -> None:
        """Drop the decoding rows and the step under way, after a step that failed."""
        self._arrays.drop()
        self._step = None
        self._batch = None

    def probe(self) -> None:
        """Give freed buffers back, then make one smallest model call.

        Errors: whatever MLX raises if the device can no longer compute.
        """
        mx.clear_cache()
        mx.eval(self._model(mx.array([[0]]), self._model.make_caches()))

    def close(self) -> None:
        """Let go of every array, and of this thread's streams: one that is left can abort the process at its exit."""
        self.reset()
        self._prefilled.clear()
        self._kept.clear()
        if hasattr(mx, "clear_streams"):
            mx.clear_streams()

    def _reconcile(self, rows: SequenceOf[Sequence], landed: _Step | None) -> mx.array:
        """Make the arrays hold exactly `rows`, in order, and return each row's input token. Shapes: [B]."""
        wanted = {row.id for row in rows}
        held = self._arrays.ids
        kept = [index for index, sequence_id in enumerate(held) if sequence_id in wanted]
        inputs = landed.tokens if landed is not None else mx.array([], dtype=mx.uint32)
        if len(kept) < len(held):
            inputs = inputs[mx.array(kept)] if kept else mx.array([], dtype=mx.uint32)
            self._arrays.keep(kept)
        newcomers = rows[len(kept) :]
        for row in newcomers:
            self._arrays.join(row.id, self._prefilled.pop(row.id, []) or self._model.make_caches())
        if newcomers:
            first_inputs = mx.array([row.tokens[-1] for row in newcomers], dtype=mx.uint32)
            inputs = mx.concatenate([inputs, first_inputs]) if kept else first_inputs
        if self._arrays.ids != [row.id for row in rows]:
            raise BugError("ModelRunner: the rows asked for are not in the order in which they joined")
        return inputs

    def _batch_of(self, rows: SequenceOf[Sequence]) -> _Batch:
        ids = [row.id for row in rows]
        if self._batch is None or self._batch.ids != ids:
            previous = None if self._batch is None else self._batch.sampler
            try:
                sampler = self._make_sampler(rows, previous)
            except Exception:  # noqa: BLE001 - any one row may have broken it: `_sample_each` finds out which
                sampler = None
            constrained = [index for index, row in enumerate(rows) if row.request.constraint is not None]
            self._batch = _Batch(ids, sampler, constrained, waits=any(map(needs_last_token, rows)))
        return self._batch

    def _sample(
        self, batch: _Batch, rows: SequenceOf[Sequence], logits: mx.array, inputs: mx.array, last: Results
    ) -> _Step:
        # The step being launched makes a row's token number n_launched - 1.
        positions = [row.n_launched - 1 for row in rows]
        masks, errors = _masks(batch, rows, last) if batch.constrained else (None, {})
        if batch.sampler is not None:
            try:
                tokens, logprobs = batch.sampler(logits, inputs, positions, masks)
            except Exception:  # noqa: BLE001 - likewise
                batch.sampler = None
            else:
                reported = () if logprobs is None else ((0, logprobs),)
                return _Step(rows, tokens.astype(mx.uint32), reported, errors, bool(batch.constrained))
        step = self._sample_each(rows, logits, inputs, positions, masks)
        step.errors.update(errors)
        step.is_constrained = bool(batch.constrained)
        return step

    def _sample_each(
        self,
        rows: SequenceOf[Sequence],
        logits: mx.array,
        inputs: mx.array,
        positions: SequenceOf[int],
        masks: SequenceOf[Words | None] | None,
    ) -> _Step:
        tokens: list[mx.array] = []
        logprobs: list[tuple[int, RowsLogprobs]] = []
        errors: dict[int, MlxcelError] = {}
        for index, row in enumerate(rows):
            at = slice(index, index + 1)
            try:
                sampler = self._make_sampler([row], None)
                token, reported = sampler(logits[at], inputs[at], positions[at], None if masks is None else masks[at])
                mx.eval(token)
            except Exception as error:  # noqa: BLE001 - it ends this row alone
                token, reported = mx.array([0]), None
                errors[index] = GenerationError(f"sampling failed for this request: {error}; other requests went on")
            tokens.append(token.astype(mx.uint32))
            if reported is not None:
                logprobs.append((index, reported))
        return _Step(rows, mx.concatenate(tokens), logprobs, errors)


def _nbytes(caches_by_id: dict[str, LayerCaches]) -> int:
    return sum(int(cache.nbytes) for caches in caches_by_id.values() for cache in caches)


def _prompt_logprobs(logits: mx.array, tokens: SequenceOf[int], n_top: int) -> list[TokenLogprobs]:
    """A few positions at a time: in single precision, a chunk of them by the vocabulary is a lot of memory.

    Shapes: logits [T, V], tokens [T].
    """
    logprobs: list[TokenLogprobs] = []
    for start in range(0, len(tokens), POSITIONS_AT_ONCE):
        part = mx.array(list(tokens[start : start + POSITIONS_AT_ONCE]))
        rows = [(row, n_top) for row in range(part.size)]
        logprobs += measure_logprobs(logits[start : start + part.size], part, rows).read().values()
    return logprobs


def _land(step: _Step | None) -> Results:
    """Read a step; waits for the device. A constraint takes its row's token."""
    if step is None:
        return []
    tokens = cast("list[int]", step.tokens.tolist())
    if not (step.errors or step.logprobs or step.is_constrained):
        return list(zip(step.rows, map(Sampled, tokens), strict=True))
    logprobs = {first + index: read for first, part in step.logprobs for index, read in part.read().items()}
    return [
        (row, step.errors.get(index) or _advance(row, Sampled(token, logprobs.get(index))))
        for index, (row, token) in enumerate(zip(step.rows, tokens, strict=True))
    ]


def _advance(row: Sequence, sampled: Sampled) -> Sampled | MlxcelError:
    constraint = row.request.constraint
    # A row that ended or waits again drops the token under way.
    if constraint is None or row.state is not State.DECODING or sampled.token in row.end_ids:
        return sampled
    try:
        constraint.advance(sampled.token)
        return sampled._replace(is_last=constraint.is_complete)
    except Exception as error:  # noqa: BLE001 - it ends this row alone
        return _constraint_failed(error)


def _masks(
    batch: _Batch, rows: SequenceOf[Sequence], last: Results
) -> tuple[list[Words | None], dict[int, MlxcelError]]:
    """Each row's mask, but for rows that end with their last token: what they get is dropped."""
    ended = {
        row.id
        for row, result in last
        if isinstance(result, MlxcelError) or result.is_last or result.token in row.end_ids
    }
    masks: list[Words | None] = [None] * len(rows)
    errors: dict[int, MlxcelError] = {}
    for index in batch.constrained:
        constraint = rows[index].request.constraint
        if constraint is None or rows[index].id in ended:
            continue
        try:
            masks[index] = constraint.mask()
        except Exception as error:  # noqa: BLE001 - it ends this row alone
            errors[index] = _constraint_failed(error)
    return masks, errors


def _constraint_failed(error: Exception) -> MlxcelError:
    if isinstance(error, MlxcelError):
        return error  # it knows whose fault it is
    return GenerationError(
        f"the constraint on this request's answer failed: {reason_of(error)}; other requests went on. Change its "
        "schema or grammar"
    )


def batching_is_exact(model: LoadedModel) -> bool:
    """Whether two unequal rows decoded together give what each gives alone; also warms the model up.

    Some families' batched path is wrong in mlx_lm; those are served one row at a time.
    """
    if not can_merge(model.make_caches()):
        return False
    # Batch and single kernels round differently, by a percent or two in 16 bits; a wrong family is off by far more.
    prompts = [[1, 2, 3], [3, 4, 5, 6, 2]]
    alone = [_logits_after(model, [prompt])[0] for prompt in prompts]
    try:
        together = _logits_after(model, prompts)
    except (ValueError, RuntimeError, TypeError, AttributeError):
        return False  # what a family without a batched path raises from its attention, mask or caches
    single = mx.stack(alone)
    spread = mx.linalg.norm(single - single.mean(axis=-1, keepdims=True), axis=-1)
    error = mx.linalg.norm(single - together, axis=-1) / mx.maximum(spread, 1e-6)
    return bool((error < LARGEST_BATCH_ERROR).all().item())


def _logits_after(model: LoadedModel, prompts: SequenceOf[SequenceOf[int]]) -> mx.array:
    arrays = BatchArrays()
    for index, prompt in enumerate(prompts):
        caches = model.make_caches()
        model(mx.array([list(prompt[:-1])]), caches)
        arrays.join(str(index), caches)
    last = mx.array([[prompt[-1]] for prompt in prompts])
    return model(last, arrays.caches).astype(mx.float32)
