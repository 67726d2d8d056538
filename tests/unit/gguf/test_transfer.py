from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from mlxcel.errors import BugError
from mlxcel.gguf.conversion import import_gguf
from mlxcel.gguf.header import read_header
from mlxcel.gguf.llama import place_tensors, read_llama
from mlxcel.gguf.plan import plan_steps
from mlxcel.gguf.safetensors import Entry, safetensors_file
from mlxcel.gguf.transfer import Transfer, silent
from tests.support.gguf_llama import write_llama_gguf


@pytest.mark.parametrize("chunk_bytes", [1, 1000, 5000])
def test_chunks_of_any_size_give_the_same_file(tmp_path: Path, tiny_model: Path, chunk_bytes: int) -> None:
    source = write_llama_gguf(tmp_path / "model.gguf", tiny_model, type_of=lambda _: "Q4_1")
    import_gguf(source, tmp_path / "whole")
    with source.open("rb") as file:
        header = read_header(file)
        llama = read_llama(header, n_vocabulary=1024, rope_divisors=None)
        steps = plan_steps(place_tensors(header, llama), dequantize_others=False, float16_norms=False)
        transfer = Transfer(file, steps, silent, chunk_bytes=chunk_bytes)
        with safetensors_file(tmp_path / "chunked", [entry for step in steps for entry in step.entries]) as writer:
            for step in steps:
                transfer.pass_through(step, writer)
    assert (tmp_path / "chunked").read_bytes() == (tmp_path / "whole" / "model.safetensors").read_bytes()


def test_entries_are_what_the_safetensors_library_reads(tmp_path: Path) -> None:
    whole = {"a": np.arange(6, dtype="<u4").reshape(3, 2), "b": np.ones(3, "<f2"), "c": np.zeros((1, 1), "<f4")}
    entries = [Entry(name, array.dtype.str, array.shape) for name, array in whole.items()]
    with safetensors_file(tmp_path / "file", entries) as writer:
        writer.write("b", whole["b"])
        writer.write("a", whole["a"][:1])
        writer.write("c", whole["c"])
        writer.write("a", whole["a"][1:])
    read = load_file(tmp_path / "file")
    assert all(np.array_equal(read[name], array) and read[name].dtype == array.dtype for name, array in whole.items())


@pytest.mark.parametrize("rows", [np.ones((2, 2), "<f4"), np.ones((2, 3), "<f2"), np.ones((3, 2), "<f2")])
def test_an_entry_takes_neither_another_dtype_nor_another_length(tmp_path: Path, rows: np.ndarray) -> None:
    with pytest.raises(BugError), safetensors_file(tmp_path / "file", [Entry("a", "<f2", (2, 2))]) as writer:
        writer.write("a", rows)


def test_an_entry_that_is_not_filled_is_a_bug(tmp_path: Path) -> None:
    unfilled = pytest.raises(BugError, match="a was not written to its end")
    with unfilled, safetensors_file(tmp_path / "file", [Entry("a", "<f2", (2, 2))]) as writer:
        writer.write("a", np.ones((1, 2), "<f2"))
