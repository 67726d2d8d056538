from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from mlxcel.errors import ModelError
from mlxcel.gguf.header import Header, read_header
from tests.support.gguf_writer import GgufTensor, MetadataValue, string, typed, write_gguf

ONE = GgufTensor("one", "F32", (2, 4), bytes(32))
TWO = GgufTensor("two", "Q8_0", (3, 64), bytes(3 * 68))


def read(path: Path) -> Header:
    with path.open("rb") as file:
        return read_header(file)


@pytest.mark.parametrize("version", [2, 3])
def test_metadata_types_shapes_and_places_are_read_as_written(tmp_path: Path, version: int) -> None:
    entries: dict[str, MetadataValue] = {
        "n": 7,
        "big": 1 << 40,
        "x": 1e-5,
        "yes": True,
        "text": "été",
        "words": ["a", ""],
        "ids": [1, -2],
    }
    path = write_gguf(
        tmp_path / "a.gguf", entries | {"general.alignment": 64}, [ONE, TWO], version=version, alignment=64
    )
    header = read(path)
    for key in ("n", "big", "x", "yes", "text", "words"):
        assert header.metadata[key] == entries[key]
    assert header.metadata.numbers("ids").tolist() == [1, -2]
    assert [(t.name, t.type.name, t.shape) for t in header.tensors.values()] == [
        ("one", "F32", (2, 4)),
        ("two", "Q8_0", (3, 64)),
    ]
    one, two = header.tensors.values()
    assert (one.offset % 64, two.offset % 64, two.offset - one.offset) == (0, 0, 64)
    assert two.offset + two.n_bytes == path.stat().st_size


def test_a_file_cut_anywhere_is_refused_as_truncated(tiny_gguf: Path, tmp_path: Path) -> None:
    data = tiny_gguf.read_bytes()
    draw = random.Random(1)
    cuts = {0, 1, 3, 4, 7, 8, 23, 24, 25, len(data) - 1, *(draw.randrange(len(data)) for _ in range(60))}
    for cut in cuts:
        part = tmp_path / "part.gguf"
        part.write_bytes(data[:cut])
        with pytest.raises(ModelError, match=r"truncated|in [0-9]+ bytes"):
            read(part)


def fixed(n_tensors: int, n_entries: int, rest: bytes = b"", magic: bytes = b"GGUF", version: int = 3) -> bytes:
    return magic + struct.pack("<IQQ", version, n_tensors, n_entries) + rest


HUGE = (1 << 64) - 1
ENTRY = string("k")


def described(name: str, shape: tuple[int, ...], type: int = 0, offset: int = 0) -> bytes:
    return string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, type, offset)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "truncated"),
        (b"PK\x03\x04" + bytes(40), "not a GGUF file"),
        (fixed(0, 0, version=1), "GGUF version 1"),
        (fixed(0, 0, version=4), "GGUF version 4"),
        (fixed(0, 0, version=3 << 24), "big-endian"),
        (fixed(HUGE, 0), "claims 18446744073709551615 tensors in 0 bytes"),
        (fixed(0, HUGE, bytes(100)), "claims 18446744073709551615 metadata entries in 100 bytes"),
        (fixed(0, 1, struct.pack("<Q", HUGE) + bytes(20)), "claims 18446744073709551615 bytes of a metadata key"),
        (fixed(0, 1, ENTRY + struct.pack("<IIQ", 9, 8, HUGE)), "claims 18446744073709551615 texts for 'k'"),
        (fixed(0, 1, ENTRY + struct.pack("<IIQ", 9, 12, 1 << 61)), "numbers for 'k'"),
        (fixed(0, 1, ENTRY + struct.pack("<IIQ", 9, 9, 1)), "a list of an unknown kind, 9"),
        (fixed(0, 1, ENTRY + struct.pack("<IQ", 13, 0)), "unknown kind of value, 13"),
        (fixed(0, 1, struct.pack("<Q", 2) + b"\xff\xfe" + typed(1)), "not UTF-8"),
        (fixed(0, 2, (ENTRY + typed(1)) * 2), "the metadata key 'k' twice"),
        (fixed(1, 1, string("general.alignment") + typed(24) + bytes(40)), "general.alignment of 24"),
        (fixed(1, 0, string("t") + struct.pack("<I", 200) + bytes(40)), "200 dimensions"),
        (fixed(1, 0, string("t") + struct.pack("<I", 0) + bytes(40)), "0 dimensions"),
        (fixed(1, 0, described("t", (1 << 62, 1 << 62)) + bytes(64)), "is truncated: the tensor 't' ends at byte"),
        (fixed(1, 0, described("t", (4, 0)) + bytes(64)), "the empty shape"),
        (fixed(1, 0, described("t", (8,), offset=3) + bytes(64)), "off its 32-byte grid"),
        (fixed(1, 0, described("t", (33,), type=8) + bytes(64)), "rows of 33 elements, not a multiple of 32"),
        (fixed(2, 0, described("t", (1,)) * 2 + bytes(64)), "names the tensor 't' twice"),
        (fixed(2, 0, described("t", (9,)) + described("u", (1,), offset=32) + bytes(99)), "'t' and 'u' overlap"),
    ],
)
def test_a_malformed_or_hostile_header_is_refused_with_its_reason(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    with pytest.raises(ModelError) as refused:
        read(path)
    assert reason in refused.value.message
    assert "Nothing was written" in refused.value.message


def test_an_endless_header_in_a_large_file_is_refused_before_it_fills_memory(tmp_path: Path) -> None:
    path = tmp_path / "sparse.gguf"
    with path.open("wb") as file:
        file.write(fixed(0, 1, ENTRY + struct.pack("<IIQ", 9, 0, 1 << 32)))
        file.truncate(1 << 33)  # a hole: it takes no space on disk
    with pytest.raises(ModelError, match="header of more than 64 MiB"):
        read(path)


@pytest.mark.parametrize(
    ("ask", "reason"),
    [
        (lambda metadata: metadata.text("missing"), "no 'missing'"),
        (lambda metadata: metadata.text("n"), "'n' as 7, where text"),
        (lambda metadata: metadata.count("yes"), "'yes' as True, where a whole number"),
        (lambda metadata: metadata.count("zero"), "'zero' 0"),
        (lambda metadata: metadata.number("nan"), "'nan' nan"),
        (lambda metadata: metadata.flag("n", default=True), "where true or false"),
        (lambda metadata: metadata.numbers("words"), "as a list of texts, where a list of numbers"),
    ],
)
def test_metadata_of_another_kind_is_refused_by_key(tmp_path: Path, ask: Callable[..., object], reason: str) -> None:
    entries: dict[str, MetadataValue] = {"n": 7, "yes": True, "zero": 0, "nan": float("nan"), "words": ["a"]}
    metadata = read(write_gguf(tmp_path / "a.gguf", entries, [ONE])).metadata
    with pytest.raises(ModelError) as refused:
        ask(metadata)
    assert reason in refused.value.message
