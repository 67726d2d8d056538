"""Tensors on their way from the GGUF file to safetensors, in chunks of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import BinaryIO

from mlxcel.gguf.plan import Step
from mlxcel.gguf.safetensors import SafetensorsWriter
from mlxcel.gguf.tensor_data import read_rows

CHUNK_BYTES = 16 << 20

Progress = Callable[[int, int], None]  # bytes done, bytes to do


def silent(done_bytes: int, total_bytes: int) -> None:
    """The progress of whoever does not look."""


class Transfer:
    """`rounded` collects the names of float32 norms that lost digits on the way."""

    def __init__(
        self, file: BinaryIO, steps: Sequence[Step], progress: Progress, *, chunk_bytes: int = CHUNK_BYTES
    ) -> None:
        self.rounded: list[str] = []
        self._file = file
        self._progress = progress
        self._chunk_bytes = chunk_bytes
        self._done_bytes = 0
        self._total_bytes = sum(step.place.tensor.n_bytes for step in steps)

    def pass_through(self, step: Step, writer: SafetensorsWriter) -> None:
        tensor = step.place.tensor
        n_rows = tensor.n_bytes // tensor.row_bytes
        unit = step.place.permuted_head_size or 1
        chunk_rows = max(1, self._chunk_bytes // tensor.row_bytes // unit) * unit
        for first in range(0, n_rows, chunk_rows):
            rows = read_rows(self._file, tensor, first, min(chunk_rows, n_rows - first))
            for name, array in step.convert(rows).items():
                writer.write(name, array)
            if step.loses_digits(rows):
                self.rounded.append(tensor.name)
            self._done_bytes += rows.nbytes
            self._progress(self._done_bytes, self._total_bytes)
