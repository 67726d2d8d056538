"""ModelRunner: chunks and rows in, one model call, tokens out. The only room that sees tensors and requests.

A decode step is launched before the step before it is read, so that the device computes while Python works.
A row whose sampler fails gets an error in place of its token; the others keep theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from typing import Protocol, cast

import mlx.core as mx

from mlxcel.core import SamplingParams, Sequence
from mlxcel.engine.chunk import Chunk
from mlxcel.errors import BugError, GenerationError, MlxcelError
from mlxcel.kv.arrays import BatchArrays, LayerCaches, can_merge
from mlxcel.model.load import LoadedModel
from mlxcel.sampling.sampler import RowsSampler

STEPS_BETWEEN_CLEARINGS = 256
"""MLX keeps freed buffers; give them back to the system this often, as mlx_lm does."""

LARGEST_BATCH_ERROR = 0.1
"""How far a row's logits may be from those it has alone, relative to their spread, to be called the same."""

Results = list[tuple[Sequence, "int | MlxcelError"]]
Sampler = Callable[[mx.array, SequenceOf[int]], mx.array]
"""Log-probabilities [B, V] and each row's count of generated tokens -> tokens [B]."""


class Runner(Protocol):
    """What the engine loop asks of a runner."""

    def prefill(self, chunk: Chunk) -> None: ...
    def decode(self, rows: SequenceOf[Sequence]) -> Results: ...
    def forget(self, sequence_ids: Iterable[str]) -> None: ...
    def reset(self) -> None: ...
    def probe(self) -> None: ...
    def close(self) -> None: ...


@dataclass
class _Step:
    """A decode step on its way: its tokens [B] are not read yet."""

    rows: SequenceOf[Sequence]
    tokens: mx.array
    errors: dict[int, MlxcelError] = field(default_factory=dict)


class ModelRunner:
    """Runs a LoadedModel. Owner: the engine thread."""

    def __init__(
        self,
        model: LoadedModel,
        make_sampler: Callable[[SequenceOf[SamplingParams]], Sampler] = RowsSampler,
    ) -> None:
        self._model = model
        self._make_sampler = make_sampler
        self._prefilled: dict[str, LayerCaches] = {}
        self._arrays = BatchArrays()
        self._step: _Step | None = None
        self._sampler: tuple[list[str], Sampler] | None = None
        self._n_launches = 0

    @property
    def kv_bytes(self) -> int:
        """Bytes of every cache array, padding included."""
        single = sum(int(cache.nbytes) for caches in self._prefilled.values() for cache in caches)
        return single + self._arrays.nbytes

    def prefill(self, chunk: Chunk) -> None:
        """Cache a chunk's keys and values; returns when they are computed."""
        caches = self._prefilled.get(chunk.sequence.id)
        if caches is None:
            caches = self._prefilled[chunk.sequence.id] = self._model.make_caches()
        self._model(mx.array([list(chunk.tokens)]), caches)
        mx.eval([cache.state for cache in caches])
        if chunk.is_last:
            mx.clear_cache()

    def decode(self, rows: SequenceOf[Sequence]) -> Results:
        """Launch one step for `rows` and return what the step before it made."""
        landed, self._step = self._step, None
        if rows:
            self._step = self._launch(rows, landed)
        else:
            self._arrays.drop()
        return [] if landed is None else _read(landed)

    def forget(self, sequence_ids: Iterable[str]) -> None:
        """Drop the caches of sequences that ended while they prefilled."""
        for sequence_id in sequence_ids:
            self._prefilled.pop(sequence_id, None)

    def reset(self) -> None:
        """Drop the decoding rows and the step under way, after a step that failed."""
        self._arrays.drop()
        self._step = None
        self._sampler = None

    def probe(self) -> None:
        """One smallest model call.

        Errors: whatever MLX raises if the device can no longer compute.
        """
        mx.eval(self._model(mx.array([[0]]), self._model.make_caches()))

    def close(self) -> None:
        """Let go of every array, and of this thread's streams: one that is left can abort the process at its exit."""
        self.reset()
        self._prefilled.clear()
        if hasattr(mx, "clear_streams"):
            mx.clear_streams()

    def _launch(self, rows: SequenceOf[Sequence], landed: _Step | None) -> _Step:
        inputs = self._reconcile(rows, landed)
        self._n_launches += 1
        if self._n_launches % STEPS_BETWEEN_CLEARINGS == 0:
            mx.clear_cache()
        logits = self._model(inputs[:, None], self._arrays.caches)
        logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        step = self._sample(rows, logprobs)
        mx.async_eval(step.tokens)  # type: ignore[no-untyped-call]
        return step

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

    def _sample(self, rows: SequenceOf[Sequence], logprobs: mx.array) -> _Step:
        # The step being launched makes a row's token number n_launched - 1.
        positions = [row.n_launched - 1 for row in rows]
        try:
            return _Step(rows, self._sampler_for(rows)(logprobs, positions).astype(mx.uint32))
        except Exception:  # noqa: BLE001 - any one row may have broken it: find out which
            return self._sample_each(rows, logprobs, positions)

    def _sampler_for(self, rows: SequenceOf[Sequence]) -> Sampler:
        ids = [row.id for row in rows]
        if self._sampler is None or self._sampler[0] != ids:
            self._sampler = ids, self._make_sampler([row.request.sampling for row in rows])
        return self._sampler[1]

    def _sample_each(self, rows: SequenceOf[Sequence], logprobs: mx.array, positions: SequenceOf[int]) -> _Step:
        tokens: list[mx.array] = []
        errors: dict[int, MlxcelError] = {}
        for index, row in enumerate(rows):
            try:
                sampler = self._make_sampler([row.request.sampling])
                token = sampler(logprobs[index : index + 1], positions[index : index + 1])
                mx.eval(token)
            except Exception as error:  # noqa: BLE001 - it ends this row alone
                token = mx.array([0])
                errors[index] = GenerationError(f"sampling failed for this request: {error}; other requests went on")
            tokens.append(token.astype(mx.uint32))
        return _Step(rows, mx.concatenate(tokens), errors)


def _read(step: _Step) -> Results:
    tokens = cast("list[int]", step.tokens.tolist())
    return [(row, step.errors.get(index, tokens[index])) for index, row in enumerate(step.rows)]


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
