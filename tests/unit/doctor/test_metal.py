from __future__ import annotations

import hashlib
import struct
import sys
from pathlib import Path

import pytest

from mlxcel.device import Device
from mlxcel.doctor.finding import State
from mlxcel.doctor.metal import look_at_metallib, look_at_wired_limit
from mlxcel.doctor.metallib import read_metallib

CPU = Device("cpu", "", None)
M4 = Device("metal", "Apple M4 Max", 96 * 10**9)
M5 = Device("metal", "Apple M5", 24 * 10**9)
TOTAL_BYTES = 32 * 2**30


def entry(name: str) -> bytes:
    tags = b"TYPE\x01\0\x02NAME" + struct.pack("<H", len(name) + 1) + name.encode() + b"\0ENDT"
    return struct.pack("<I", len(tags) + 4) + tags


def metallib(path: Path, *names: str) -> Path:
    """A library whose list of functions is as in those of mlx-metal 0.32.4; code that looks like names follows it."""
    head = b"MTLB\x01\x80\x02\0" + bytes(16) + struct.pack("<Q", 88) + bytes(56)
    code = b"NAME\x06\0vnax0\0NAME\x09\0short\0"
    path.write_bytes(head + struct.pack("<I", len(names)) + b"".join(map(entry, names)) + code)
    return path


def test_a_metallibs_kernels_are_counted_by_their_names_and_its_hash_is_told(tmp_path: Path) -> None:
    path = metallib(
        tmp_path / "mlx.metallib", "vadd_float32", "steel_gemm_fused_nax_nn", "affine_qmm_t_nax", "vadd_float32"
    )
    library = read_metallib(path)
    assert library.kernels == {"vadd_float32", "steel_gemm_fused_nax_nn", "affine_qmm_t_nax"} and library.n_nax == 2
    (found,) = look_at_metallib(M5, [path])
    assert found.state is State.OK and "3 kernels, 2 of them NAX" in found.told
    assert str(path) in found.told and hashlib.sha256(path.read_bytes()).hexdigest() in found.told


def test_a_long_name_is_read_to_its_end(tmp_path: Path) -> None:
    names = ("nax_" + "x" * 700, "n" * 0x10A)  # sizes of two bytes, one of which is a line feed
    assert read_metallib(metallib(tmp_path / "long.metallib", *names)).kernels == set(names)


@pytest.mark.parametrize(("device", "state"), [(M4, State.OK), (M5, State.WARNING), (CPU, State.OK), (None, State.OK)])
def test_kernels_without_nax_are_told_of_where_the_gpu_could_use_them(
    tmp_path: Path, device: Device | None, state: State
) -> None:
    (found,) = look_at_metallib(device, [metallib(tmp_path / "mlx.metallib", "vadd_float32")])
    assert found.state is state and "1 kernels, 0 of them NAX" in found.told
    assert ("Apple M5 stay unused" in found.told) is (state is State.WARNING)


def test_a_metallib_that_is_none_or_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    whole = metallib(tmp_path / "whole.metallib", "vadd_float32", "vsub_float32").read_bytes()
    list_bytes = 88 + 4 + len(entry("vadd_float32") * 2)
    bad = {f"cut-{n}": whole[:n] for n in range(list_bytes)}
    bad["far"] = whole[:24] + b"\xff" * 8 + whole[32:]
    bad["sized"] = whole[:92] + b"\xff" * 4 + whole[96:]
    bad["small"] = whole[:92] + bytes(4) + whole[96:]
    bad["nameless"] = whole.replace(b"NAME\x0d", b"MANE\x0d")
    bad["kernelless"] = whole[:88] + bytes(4)
    for name, content in bad.items():
        (tmp_path / name).write_bytes(content)
    for path in (*(tmp_path / name for name in bad), tmp_path / "gone", tmp_path):
        (found,) = look_at_metallib(M4, [path])
        assert found.state is State.PROBLEM and found.next_step == "Install mlx again", path.name
        assert str(path) in found.told


def test_a_missing_metallib_matters_to_metal_only() -> None:
    assert [f.state for f in look_at_metallib(CPU, [])] == [State.OK]
    for device in (M4, None):  # None: the probe failed, and this may be why
        assert [f.state for f in look_at_metallib(device, [])] == [State.WARNING]


@pytest.mark.parametrize(
    ("printed", "state", "part"),
    [
        ("0", State.OK, "the system's own limit"),
        ("28672", State.OK, "iogpu.wired_limit_mb is 28672"),
        ("31744", State.WARNING, "too little for the system"),
        ("99999", State.WARNING, "too little for the system"),
        ("sysctl: unknown oid", State.OK, "cannot be read"),
        ("", State.OK, "cannot be read"),
    ],
)
def test_the_wired_limit_is_what_sysctl_says(printed: str, state: State, part: str) -> None:
    found = look_at_wired_limit(M5, TOTAL_BYTES, [sys.executable, "-c", f"print({printed!r})"])
    assert found.state is state and part in found.told and "24.0 of 34.4 GB" in found.told


def test_without_metal_nothing_is_wired() -> None:
    for device in (CPU, None):
        assert "without Metal" in look_at_wired_limit(device, TOTAL_BYTES, ["/nowhere/sysctl"]).told
    assert "cannot be read" in look_at_wired_limit(M5, TOTAL_BYTES, ["/nowhere/sysctl"]).told
