"""The tensor types of ggml: how many elements share a block, and how many bytes a block takes.

Source: ggml's `ggml.h` (type numbers) and `ggml-common.h` (block layouts). Types whose layout is not needed
here carry only their name, so that a refusal can say it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TensorType:
    """`block_bytes` is 0 where the layout is not known."""

    name: str
    block_elements: int = 0
    block_bytes: int = 0

    def n_bytes(self, n_elements: int) -> int:
        return n_elements // self.block_elements * self.block_bytes


F32 = TensorType("F32", 1, 4)
F16 = TensorType("F16", 1, 2)
BF16 = TensorType("BF16", 1, 2)
Q4_0 = TensorType("Q4_0", 32, 18)
Q4_1 = TensorType("Q4_1", 32, 20)
Q5_0 = TensorType("Q5_0", 32, 22)
Q5_1 = TensorType("Q5_1", 32, 24)
Q8_0 = TensorType("Q8_0", 32, 34)
Q2_K = TensorType("Q2_K", 256, 84)
Q3_K = TensorType("Q3_K", 256, 110)
Q4_K = TensorType("Q4_K", 256, 144)
Q5_K = TensorType("Q5_K", 256, 176)
Q6_K = TensorType("Q6_K", 256, 210)

BY_NUMBER: dict[int, TensorType] = {
    0: F32,
    1: F16,
    2: Q4_0,
    3: Q4_1,
    6: Q5_0,
    7: Q5_1,
    8: Q8_0,
    10: Q2_K,
    11: Q3_K,
    12: Q4_K,
    13: Q5_K,
    14: Q6_K,
    30: BF16,
} | {
    number: TensorType(name)
    for number, name in {
        9: "Q8_1",
        15: "Q8_K",
        16: "IQ2_XXS",
        17: "IQ2_XS",
        18: "IQ3_XXS",
        19: "IQ1_S",
        20: "IQ4_NL",
        21: "IQ3_S",
        22: "IQ2_S",
        23: "IQ4_XS",
        24: "I8",
        25: "I16",
        26: "I32",
        27: "I64",
        28: "F64",
        29: "IQ1_M",
        34: "TQ1_0",
        35: "TQ2_0",
        39: "MXFP4",
    }.items()
}


def tensor_type(number: int) -> TensorType:
    return BY_NUMBER.get(number) or TensorType(f"number {number}")
