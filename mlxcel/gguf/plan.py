"""How each tensor of a GGUF file will be stored: decided, and refused, before anything is written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlxcel.gguf import blocks, dequantize
from mlxcel.gguf.blocks import Array, Bytes
from mlxcel.gguf.llama import Place
from mlxcel.gguf.refusal import refusal
from mlxcel.gguf.safetensors import Entry
from mlxcel.gguf.tensor_type import F16, F32, TensorType

Arrays = dict[str, Array]


@dataclass(frozen=True)
class Step:
    """One tensor on its way. `entries` are what it becomes: a weight, or weight, scales and biases."""

    place: Place
    entries: tuple[Entry, ...]
    dtype: str

    @property
    def type(self) -> TensorType:
        return self.place.tensor.type

    @property
    def bits(self) -> int | None:
        return blocks.BITS.get(self.type)

    @property
    def n_bytes(self) -> int:
        return sum(entry.n_bytes for entry in self.entries)

    @property
    def is_dequantized(self) -> bool:
        return self.type in dequantize.FORMULAS

    def convert(self, rows: Bytes) -> Arrays:
        """Shapes: rows [rows, bytes of a row], of a permuted tensor whole heads. Errors: ModelError for a
        number that float16 cannot hold."""
        if head_size := self.place.permuted_head_size:
            rows = unpermute(rows, head_size)
        module = self.place.module
        if self.bits is None:
            with np.errstate(over="ignore"):  # found by the next line
                values = self.values(rows).astype(self.dtype)
            return {f"{module}.weight": self._finite(values)}
        packed = blocks.pack(rows, self.type)
        return {
            f"{module}.weight": packed.weight,
            f"{module}.scales": self._finite(packed.scales),
            f"{module}.biases": self._finite(packed.biases),
        }

    def loses_digits(self, rows: Bytes) -> bool:
        """Whether an F32 tensor's numbers change when stored as this step's dtype."""
        return self.type is F32 and not np.array_equal(self.values(rows), self.values(rows).astype(self.dtype))

    def values(self, rows: Bytes) -> Array:
        """The numbers of a tensor that is not packed, as the file has them. A vector is one row."""
        if self.type is F32:
            values: Array = rows.view("<f4")
        elif self.type is F16:
            values = rows.view("<f2")
        else:
            values = dequantize.dequantize(rows, self.type)
        return values[0] if self.place.is_vector else values

    def _finite(self, array: Array) -> Array:
        if not np.isfinite(array).all():
            raise refusal(
                f"has a number that is not finite, or beyond {array.dtype}, in the {self.type.name} tensor "
                f"{self.place.tensor.name!r}"
            )
        return array


def plan_steps(places: Sequence[Place], *, dequantize_others: bool, float16_norms: bool) -> list[Step]:
    """Errors: ModelError naming every tensor type that cannot be stored exactly, or not at all."""
    _refuse_types(places, dequantize_others=dequantize_others)
    return [_step(place, float16_norms=float16_norms) for place in places]


def unpermute(rows: Array, head_size: int) -> Array:
    """Rows of q or k from interleaved back to half-split rotary order. Shapes: [whole heads' rows, anything].

    Source: `LlamaModel.permute` in llama.cpp's `convert_hf_to_gguf.py`, of which this is the inverse.
    """
    pairs = rows.reshape(-1, head_size // 2, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)


def _step(place: Place, *, float16_norms: bool) -> Step:
    tensor, module = place.tensor, place.module
    dtype = "<f4" if tensor.type is F32 and not (place.is_vector and float16_norms) else "<f2"
    bits = blocks.BITS.get(tensor.type)
    if bits is None:
        return Step(place, (Entry(f"{module}.weight", dtype, tensor.shape),), dtype)
    n_rows, n_columns = tensor.shape
    groups = (n_rows, n_columns // blocks.GROUP_SIZE)
    return Step(
        place,
        (
            Entry(f"{module}.weight", "<u4", (n_rows, n_columns * bits // 32)),
            Entry(f"{module}.scales", dtype, groups),
            Entry(f"{module}.biases", dtype, groups),
        ),
        dtype,
    )


def _refuse_types(places: Sequence[Place], *, dequantize_others: bool) -> None:
    inexact: defaultdict[str, list[str]] = defaultdict(list)
    unreadable: defaultdict[str, list[str]] = defaultdict(list)
    for place in places:
        type, name = place.tensor.type, place.tensor.name
        if type in (F32, F16) or (type in blocks.BITS and not place.is_vector):
            continue
        readable = type in dequantize.FORMULAS
        (inexact if readable else unreadable)[type.name].append(name)
    if unreadable:
        raise refusal(
            f"has tensors of types that cannot be imported: {_listed(unreadable)}",
            "Use a Q4_0, Q4_1, Q8_0 or F16 file of this model.",
        )
    if inexact and not dequantize_others:
        raise refusal(
            f"has tensors of types that MLX has no exact form for: {_listed(inexact)}",
            "Use a Q4_0, Q4_1, Q8_0 or F16 file of this model, or import this one with --dequantize, which stores "
            "these tensors as float16.",
        )


def _listed(names: dict[str, list[str]]) -> str:
    return ", ".join(
        f"{type} ({tensors[0]!r}" + (f" and {len(tensors) - 1} more)" if len(tensors) > 1 else ")")
        for type, tensors in sorted(names.items())
    )


def quantization(steps: Sequence[Step]) -> dict[str, Any] | None:
    """config.json's `quantization`: the most frequent bits for all, and the modules that differ by name."""
    bits = {step.place.module: step.bits for step in steps if step.bits is not None}
    if not bits:
        return None
    most = max(set(bits.values()), key=list(bits.values()).count)
    common = {"group_size": blocks.GROUP_SIZE, "bits": most, "mode": "affine"}
    others = {module: {**common, "bits": own} for module, own in bits.items() if own != most}
    return {**common, **others}
