"""`mlxcel import`: a GGUF file of the llama family becomes an MLX folder.

    read and check everything -> plan every tensor -> write a folder beside the target -> rename it

Nothing is written before the whole plan stands. Memory stays at a few chunks whatever the model's size, since
tensors pass through in rows. GGUF files have their norms as float32, and MLX computes in the widest type that it
meets, so an exact import computes in float32. That is right on a CPU, where MLX's float16 kernels are many times
slower; for a GPU, `float16_norms` halves the KV memory (docs/adr/0008).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from mlxcel.folder import new_folder, refusal_of, refuse_lack_of_room
from mlxcel.gguf.header import read_header
from mlxcel.gguf.llama import Llama, place_tensors, read_llama
from mlxcel.gguf.plan import Step, plan_steps, quantization
from mlxcel.gguf.rope import read_divisors
from mlxcel.gguf.safetensors import safetensors_file
from mlxcel.gguf.tokenizer import TokenizerFiles, read_tokenizer
from mlxcel.gguf.transfer import Progress, Transfer, silent

MAX_SHARD_BYTES = 5_000_000_000


@dataclass(frozen=True)
class ImportReport:
    """What was written, in plain values for JSON.

    `types` counts the file's tensors by type; `dequantized` maps the tensors that became float16 to their own
    type; `rounded` names the float32 norms that lost digits in float16.
    """

    target: str
    n_tensors: int
    types: dict[str, int]
    dequantized: dict[str, str]
    rounded: tuple[str, ...]
    weight_bytes: int

    def __str__(self) -> str:
        types = ", ".join(f"{count} {type}" for type, count in sorted(self.types.items()))
        lines = [f"{self.target}: {self.n_tensors} tensors ({types}), {self.weight_bytes / 1e6:.1f} MB"]
        lines += [f"stored as float16: {name} ({type})" for name, type in self.dequantized.items()]
        lines += [f"rounded to float16: {name}" for name in self.rounded]
        return "\n".join(lines)


def import_gguf(
    source: Path,
    target: Path,
    *,
    dequantize: bool = False,
    float16_norms: bool = False,
    progress: Progress = silent,
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> ImportReport:
    """Write the model in `source` as the new folder `target`, whole or not at all.

    `dequantize` stores tensors of types that MLX has no exact form for as float16. `progress` is called with
    the bytes of tensor data done and to do.

    Errors: ModelError for a file that is damaged or cannot be represented, FileExistsAlready if there is
    something at `target`, StateError while another import writes there or the disk is full, InputError for a
    path that cannot be read or written.
    """
    try:
        with source.open("rb") as file:
            header = read_header(file)
            tokenizer = read_tokenizer(header.metadata)
            n_vocabulary = len(tokenizer.vocabulary.tokens)
            llama = read_llama(header, n_vocabulary=n_vocabulary, rope_divisors=read_divisors(file, header))
            places = place_tensors(header, llama)
            steps = plan_steps(places, dequantize_others=dequantize, float16_norms=float16_norms)
            with new_folder(target) as draft:
                refuse_lack_of_room(draft, sum(step.n_bytes for step in steps))
                rounded = _write_weights(draft, file, steps, progress, max_shard_bytes)
                _write_settings(draft, llama, steps, tokenizer)
    except OSError as error:
        raise refusal_of(error, target) from error
    return ImportReport(
        target=str(target),
        n_tensors=len(steps),
        types=dict(Counter(step.type.name for step in steps)),
        dequantized={step.place.tensor.name: step.type.name for step in steps if step.is_dequantized},
        rounded=rounded,
        weight_bytes=sum(step.n_bytes for step in steps),
    )


def _write_weights(
    folder: Path, file: BinaryIO, steps: Sequence[Step], progress: Progress, max_shard_bytes: int
) -> tuple[str, ...]:
    """One safetensors file, or several with an index. Returns the names of the rounded norms."""
    shards = list(_shards(steps, max_shard_bytes))
    transfer = Transfer(file, steps, progress)
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        name = "model.safetensors" if len(shards) == 1 else f"model-{number:05}-of-{len(shards):05}.safetensors"
        entries = [entry for step in shard for entry in step.entries]
        weight_map |= {entry.name: name for entry in entries}
        with safetensors_file(folder / name, entries) as writer:
            for step in shard:
                transfer.pass_through(step, writer)
    if len(shards) > 1:
        total = sum(step.n_bytes for step in steps)
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        _write_json(folder / "model.safetensors.index.json", index)
    return tuple(transfer.rounded)


def _shards(steps: Sequence[Step], max_shard_bytes: int) -> Iterator[Sequence[Step]]:
    """Consecutive steps of at most `max_shard_bytes` together; a larger step is alone."""
    shard: list[Step] = []
    for step in steps:
        if shard and sum(other.n_bytes for other in shard) + step.n_bytes > max_shard_bytes:
            yield shard
            shard = []
        shard.append(step)
    yield shard


def _write_settings(folder: Path, llama: Llama, steps: Sequence[Step], tokenizer: TokenizerFiles) -> None:
    vocabulary = tokenizer.vocabulary
    named = {"bos_token_id": vocabulary.bos_id, "eos_token_id": vocabulary.eos_id}
    ids: dict[str, Any] = {name: id for name, id in named.items() if id is not None}
    norm = next(step for step in steps if step.place.module == "model.norm")
    config = llama.config("float32" if norm.dtype == "<f4" else "float16") | ids
    if packing := quantization(steps):
        config["quantization"] = packing
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", ids | {"eos_token_id": vocabulary.end_ids})
    _write_json(folder / "tokenizer.json", tokenizer.tokenizer)
    _write_json(folder / "tokenizer_config.json", tokenizer.config)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False), encoding="utf-8")
