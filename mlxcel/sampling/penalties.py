"""Repetition, presence and frequency penalties: scores that depend on the tokens that a row already has.

The counts live on the device and take each step's input tokens from there, so nothing waits for them to be read.
`repetition_penalty` looks at the last REPETITION_WINDOW_TOKENS tokens of prompt and answer, the other two at the
whole answer and never at the prompt.

Source: CTRL (Keskar et al. 2019, arXiv:1909.05858, section 4.1) with mlx_lm's sign rule for repetition; OpenAI's
API reference (presence_penalty, frequency_penalty) for the other two.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

import mlx.core as mx

from mlxcel.core import Sequence

REPETITION_WINDOW_TOKENS = 64


def history(row: Sequence, position: int) -> SequenceOf[int]:
    """The row's tokens up to the input of the step that makes its token number `position`, which is not included."""
    return row.tokens[: len(row.request.prompt) + position - 1]


class RepetitionPenalty:
    """Shapes: scores [B, V], inputs [B]. Each call takes the next step's inputs."""

    def __init__(self, rows: SequenceOf[Sequence], positions: SequenceOf[int]) -> None:
        self._penalties = mx.array([[row.request.sampling.repetition_penalty] for row in rows], dtype=mx.float32)
        self._window = mx.array(
            [
                _padded(history(row, n)[-REPETITION_WINDOW_TOKENS:], row.tokens[0])
                for row, n in zip(rows, positions, strict=True)
            ],
            dtype=mx.uint32,
        )

    def __call__(self, scores: mx.array, inputs: mx.array) -> mx.array:
        self._window = mx.concatenate([self._window[:, 1:], inputs[:, None]], axis=1)
        seen = mx.take_along_axis(scores, self._window, axis=-1)
        penalised = mx.where(seen < 0, seen * self._penalties, seen / self._penalties)
        return mx.put_along_axis(scores, self._window, penalised, axis=-1)


def _padded(tokens: SequenceOf[int], first: int) -> list[int]:
    """As long as the window; a row shorter than it holds its first token, so one more of it changes nothing."""
    return [first] * (REPETITION_WINDOW_TOKENS - len(tokens)) + list(tokens)


class AnswerPenalty:
    """Presence and frequency. Shapes: scores [B, V], inputs [B]. Each call takes the next step's inputs."""

    def __init__(self, rows: SequenceOf[Sequence], positions: SequenceOf[int], n_vocabulary: int) -> None:
        self._presence = mx.array([[row.request.sampling.presence_penalty] for row in rows], dtype=mx.float32)
        self._frequency = mx.array([[row.request.sampling.frequency_penalty] for row in rows], dtype=mx.float32)
        answers = [history(row, n)[len(row.request.prompt) :] for row, n in zip(rows, positions, strict=True)]
        self._counts = mx.zeros((len(rows), n_vocabulary), dtype=mx.float32)
        if any(answers):
            owners = mx.array([row for row, answer in enumerate(answers) for _ in answer])
            tokens = mx.array([token for answer in answers for token in answer])
            self._counts = self._counts.at[owners, tokens].add(1.0)
        self._rows = mx.arange(len(rows))
        # The input of a row's first step is the prompt's last token: no part of the answer.
        self._weights = mx.array([float(n > 0) for n in positions], dtype=mx.float32)
        self._ones = mx.ones(len(rows), dtype=mx.float32)

    def __call__(self, scores: mx.array, inputs: mx.array) -> mx.array:
        self._counts = self._counts.at[self._rows, inputs].add(self._weights)
        self._weights = self._ones
        return scores - self._presence * (self._counts > 0) - self._frequency * self._counts
