from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file

from mlxcel.errors import ModelError
from mlxcel.store.safetensors import Tensor, read_header


def write(path: Path, header: object, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def test_the_header_of_a_real_file_names_every_tensor(tmp_path: Path) -> None:
    tensors: dict[str, npt.NDArray[Any]] = {
        "a": np.zeros((2, 3), np.float32),
        "b": np.zeros((0, 4), np.float16),
        "c": np.zeros((), np.uint32),
    }
    save_file(tensors, tmp_path / "m.safetensors", metadata={"format": "mlx"})
    assert sorted(read_header(tmp_path / "m.safetensors"), key=lambda tensor: tensor.name) == [
        Tensor("a", "F32", (2, 3), 24),
        Tensor("b", "F16", (0, 4), 0),
        Tensor("c", "U32", (), 4),
    ]


def entry(first: object, last: object, shape: object = (2,), dtype: object = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [first, last]}


@pytest.mark.parametrize(
    ("header", "data", "reason"),
    [
        ({"a": entry(0, 8)}, b"1234567", "7 bytes|where its header says"),
        ({"a": entry(0, 8)}, b"123456789", "where its header says"),
        ({"a": entry(0, 4)}, b"1234", "does not fit together at a"),
        ({"a": entry(4, 12)}, b"123456789012", "does not fit together at a"),
        ({"a": entry(0, 8), "b": entry(4, 12)}, b"123456789012", "does not fit together at b"),
        ({"a": entry(0, 8, dtype="F64")}, b"12345678", "does not fit together at a"),
        ({"a": entry(0, 8, shape="no")}, b"12345678", "cannot be read"),
        ({"a": entry("0", "8")}, b"12345678", "cannot be read|fit together"),
        ({"a": 5}, b"", "cannot be read"),
        ([1], b"", "cannot be read"),
        (b"{", b"", "cannot be read"),
        (b"\xff", b"", "cannot be read"),
    ],
)
def test_a_header_that_does_not_fit_its_file_is_refused_by_name(
    tmp_path: Path, header: object, data: bytes, reason: str
) -> None:
    with pytest.raises(ModelError, match=reason) as refusal:
        read_header(write(tmp_path / "model.safetensors", header, data))
    assert str(tmp_path) in refusal.value.message and "model.safetensors" in refusal.value.message


@pytest.mark.parametrize("content", [b"", b"1234567", b"\xff" * 8, b"\x10" + b"\0" * 7 + b"{}"])
def test_a_file_cut_within_its_header_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(ModelError, match="cut off"):
        read_header(path)


def test_the_pointer_that_git_leaves_without_lfs_is_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")
    with pytest.raises(ModelError, match="git-lfs"):
        read_header(path)
