"""The bytes of a tensor, read row by row with ordinary reads: a file cut meanwhile is an error, no crash."""

from __future__ import annotations

from typing import BinaryIO

import numpy as np

from mlxcel.gguf.blocks import Bytes
from mlxcel.gguf.header import Tensor
from mlxcel.gguf.refusal import refusal


def read_rows(file: BinaryIO, tensor: Tensor, first: int, n_rows: int) -> Bytes:
    """Shapes: [n_rows, bytes of a row]. Errors: ModelError if the file has become shorter."""
    file.seek(tensor.offset + first * tensor.row_bytes)
    data = file.read(n_rows * tensor.row_bytes)
    if len(data) != n_rows * tensor.row_bytes:
        raise refusal("became shorter while it was read")
    return np.frombuffer(data, np.uint8).reshape(n_rows, tensor.row_bytes)
