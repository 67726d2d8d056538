"""The header of a GGUF file (versions 2 and 3, little-endian): metadata, and each tensor's type and place.

Everything that a later step relies on is checked here against the file's real size, so that a truncated,
malformed or hostile file is refused before anything is allocated or written. It knows nothing of models.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import os
import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import BinaryIO

import numpy as np

from mlxcel.gguf.metadata import Metadata, Value
from mlxcel.gguf.refusal import refusal
from mlxcel.gguf.tensor_type import TensorType, tensor_type

MAX_HEADER_BYTES = 64 << 20  # the largest known vocabularies (256k tokens, 500k merges) take about 25 MiB
MAX_DIMENSIONS = 4
SMALLEST_ENTRY_BYTES = 13  # of metadata: an empty key (8), a type (4), one byte of value
SMALLEST_TENSOR_BYTES = 32  # an empty name (8), the number of dimensions (4), one of them (8), type (4), offset (8)

_STRING, _ARRAY, _BOOL, _FLOAT32 = 8, 9, 7, 6
_SCALARS = {
    0: "u1",
    1: "i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    _FLOAT32: "<f4",
    _BOOL: "?",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}


@dataclass(frozen=True)
class Tensor:
    """`shape` has the slowest dimension first, as in numpy (GGUF has the reverse); `offset` is absolute."""

    name: str
    type: TensorType
    shape: tuple[int, ...]
    offset: int

    @property
    def n_bytes(self) -> int:
        return self.type.n_bytes(math.prod(self.shape))

    @property
    def row_bytes(self) -> int:
        return self.type.n_bytes(self.shape[-1])


@dataclass(frozen=True)
class Header:
    metadata: Metadata
    tensors: dict[str, Tensor]


def read_header(file: BinaryIO) -> Header:
    """Read from the start of `file`. Errors: ModelError for everything that is not right."""
    return _HeaderReader(file).read()


class _HeaderReader:
    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.file_bytes = os.fstat(file.fileno()).st_size
        self.position = 0

    def read(self) -> Header:
        magic = self.bytes(4)
        if magic != b"GGUF":
            raise refusal(f"is not a GGUF file: it begins with {magic!r}, not b'GGUF'")
        version = self.unsigned(4)
        if version not in (2, 3):
            what = "big-endian" if version in (2 << 24, 3 << 24) else f"GGUF version {version}"
            raise refusal(f"is {what}; only little-endian GGUF versions 2 and 3 can be read")
        n_tensors, n_entries = self.unsigned(8), self.unsigned(8)
        self.check_count(n_entries, SMALLEST_ENTRY_BYTES, "metadata entries")
        self.check_count(n_tensors, SMALLEST_TENSOR_BYTES, "tensors")
        metadata = Metadata(self.entries(n_entries))
        alignment = metadata.count("general.alignment") if "general.alignment" in metadata else 32
        if alignment & (alignment - 1) or alignment > 1 << 20:
            raise refusal(f"has a general.alignment of {alignment}, which is no sensible power of two")
        described = [self.tensor() for _ in range(n_tensors)]
        start = -(-self.position // alignment) * alignment
        tensors: dict[str, Tensor] = {}
        for tensor in described:
            if tensor.name in tensors:
                raise refusal(f"names the tensor {tensor.name!r} twice")
            tensors[tensor.name] = self.placed(tensor, start, alignment)
        self.check_overlaps(tensors)
        return Header(metadata, tensors)

    def bytes(self, n_bytes: int) -> bytes:
        end = self.position + n_bytes
        if end > self.file_bytes:
            raise refusal(f"is truncated: its header needs byte {end}, the file has {self.file_bytes}")
        if end > MAX_HEADER_BYTES:
            raise refusal(f"has a header of more than {MAX_HEADER_BYTES >> 20} MiB, which no model needs")
        data = self.file.read(n_bytes)
        if len(data) != n_bytes:
            raise refusal("became shorter while it was read")
        self.position = end
        return data

    def unsigned(self, n_bytes: int) -> int:
        return int.from_bytes(self.bytes(n_bytes), "little")

    def check_count(self, count: int, smallest_bytes: int, what: str) -> None:
        left = self.file_bytes - self.position
        if count * smallest_bytes > left:
            raise refusal(f"is malformed or truncated: it claims {count} {what} in {left} bytes")

    def string(self, what: str) -> str:
        n_bytes = self.unsigned(8)
        self.check_count(n_bytes, 1, f"bytes of {what}")
        try:
            return self.bytes(n_bytes).decode("utf-8")
        except UnicodeDecodeError as error:
            raise refusal(f"has {what} that is not UTF-8: {error.reason} at byte {error.start}") from error

    def entries(self, n_entries: int) -> dict[str, Value]:
        values: dict[str, Value] = {}
        for _ in range(n_entries):
            key = self.string("a metadata key")
            if key in values:
                raise refusal(f"has the metadata key {key!r} twice")
            values[key] = self.value(key, self.unsigned(4))
        return values

    def value(self, key: str, kind: int) -> Value:
        if kind == _STRING:
            return self.string(f"the value of {key!r}")
        if kind == _ARRAY:
            return self.array(key)
        if kind not in _SCALARS:
            raise refusal(f"has an unknown kind of value, {kind}, for {key!r}")
        dtype = np.dtype(_SCALARS[kind])
        data = self.bytes(dtype.itemsize)
        if kind == _BOOL:
            return data != b"\0"
        number = np.frombuffer(data, dtype)[0]
        # The shortest decimal that is this float32: 1e-05, not 9.999999747378752e-06.
        return float(str(number)) if kind == _FLOAT32 else number.item()

    def array(self, key: str) -> Value:
        kind, count = self.unsigned(4), self.unsigned(8)
        if kind == _STRING:
            self.check_count(count, 8, f"texts for {key!r}")
            return [self.string(f"a text of {key!r}") for _ in range(count)]
        if kind not in _SCALARS:
            raise refusal(f"has a list of an unknown kind, {kind}, for {key!r}")
        dtype = np.dtype(_SCALARS[kind])
        self.check_count(count, dtype.itemsize, f"numbers for {key!r}")
        return np.frombuffer(self.bytes(count * dtype.itemsize), dtype)

    def tensor(self) -> Tensor:
        name = self.string("a tensor's name")
        n_dimensions = self.unsigned(4)
        if not 1 <= n_dimensions <= MAX_DIMENSIONS:
            raise refusal(f"gives the tensor {name!r} {n_dimensions} dimensions")
        shape = struct.unpack(f"<{n_dimensions}Q", self.bytes(8 * n_dimensions))[::-1]
        return Tensor(name, tensor_type(self.unsigned(4)), shape, self.unsigned(8))

    def placed(self, tensor: Tensor, start: int, alignment: int) -> Tensor:
        if tensor.offset % alignment:
            raise refusal(f"places the tensor {tensor.name!r} at {tensor.offset}, off its {alignment}-byte grid")
        placed = Tensor(tensor.name, tensor.type, tensor.shape, start + tensor.offset)
        if 0 in tensor.shape:
            raise refusal(f"gives the tensor {tensor.name!r} the empty shape {list(tensor.shape)}")
        if not tensor.type.block_bytes:
            return placed  # of unknown size; whoever wants it refuses its type by name
        if tensor.shape[-1] % tensor.type.block_elements:
            raise refusal(
                f"gives the {tensor.type.name} tensor {tensor.name!r} rows of {tensor.shape[-1]} elements, "
                f"not a multiple of {tensor.type.block_elements}"
            )
        if placed.offset + placed.n_bytes > self.file_bytes:
            raise refusal(
                f"is truncated: the tensor {tensor.name!r} ends at byte {placed.offset + placed.n_bytes}, "
                f"the file has {self.file_bytes}"
            )
        return placed

    def check_overlaps(self, tensors: dict[str, Tensor]) -> None:
        in_order = sorted((t for t in tensors.values() if t.type.block_bytes), key=lambda tensor: tensor.offset)
        for first, second in pairwise(in_order):
            if first.offset + first.n_bytes > second.offset:
                raise refusal(f"is malformed: the tensors {first.name!r} and {second.name!r} overlap")
