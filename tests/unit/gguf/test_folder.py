from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mlxcel.errors import FileExistsAlready, StateError
from mlxcel.folder import new_folder
from mlxcel.gguf.conversion import import_gguf

# Says when it is in the middle of the weights, then waits to be killed.
STOPPING_IMPORT = """
import signal, sys
from pathlib import Path
from mlxcel.gguf.conversion import import_gguf

def stop(done, total):
    print(done < total, flush=True)
    sys.stdin.read()

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may ignore it
import_gguf(Path(sys.argv[1]), Path(sys.argv[2]), progress=stop)
"""


def start_and_stop_midway(source: Path, target: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPING_IMPORT, str(source), str(target)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    return process


def end(process: subprocess.Popen[str], signal_number: int) -> None:
    process.send_signal(signal_number)
    process.communicate(timeout=30)


def test_a_killed_import_leaves_no_folder_and_the_next_one_works(tiny_gguf: Path, tmp_path: Path) -> None:
    target = tmp_path / "imported"
    process = start_and_stop_midway(tiny_gguf, target)
    end(process, signal.SIGKILL)
    assert not target.exists()
    assert len(list(tmp_path.iterdir())) == 1  # the draft, under its own name
    import_gguf(tiny_gguf, target)
    assert [path.name for path in tmp_path.iterdir()] == ["imported"]


def test_an_interrupted_import_cleans_up_itself(tiny_gguf: Path, tmp_path: Path) -> None:
    process = start_and_stop_midway(tiny_gguf, tmp_path / "imported")
    end(process, signal.SIGINT)
    assert process.returncode != 0
    assert list(tmp_path.iterdir()) == []


def test_a_second_import_to_the_same_place_waits_its_turn_and_spoils_nothing(tiny_gguf: Path, tmp_path: Path) -> None:
    target = tmp_path / "imported"
    process = start_and_stop_midway(tiny_gguf, target)
    with pytest.raises(StateError, match="Another process is writing"):
        import_gguf(tiny_gguf, target)
    import_gguf(tiny_gguf, tmp_path / "elsewhere")
    process.communicate(input="", timeout=30)  # lets it go on
    assert process.returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "imported"]


@pytest.mark.parametrize("kind", ["folder", "empty folder", "file", "dangling link"])
def test_a_target_that_exists_is_refused_and_left_as_it_is(tiny_gguf: Path, tmp_path: Path, kind: str) -> None:
    target = tmp_path / "imported"
    if kind.endswith("folder"):
        target.mkdir()
        if kind == "folder":
            (target / "precious").write_text("mine")
    elif kind == "file":
        target.write_text("mine")
    else:
        target.symlink_to(tmp_path / "nowhere")
    before = target.lstat()
    with pytest.raises(FileExistsAlready, match="exists and was left as it is"):
        import_gguf(tiny_gguf, target)
    assert (target.lstat().st_ino, target.lstat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert [path.name for path in tmp_path.iterdir()] == ["imported"]
    if kind == "folder":
        assert (target / "precious").read_text() == "mine"


def test_a_target_that_appears_meanwhile_wins(tmp_path: Path) -> None:
    target = tmp_path / "imported"
    with pytest.raises(FileExistsAlready), new_folder(target) as draft:
        (draft / "ours").write_text("ours")
        target.mkdir()
        (target / "theirs").write_text("theirs")
    assert [path.name for path in tmp_path.iterdir()] == ["imported"]
    assert [path.name for path in target.iterdir()] == ["theirs"]


def test_a_block_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "deep" / "imported") as draft:
        (draft / "half").write_text("half")
        raise ZeroDivisionError
    assert list((tmp_path / "deep").iterdir()) == []


def test_the_folder_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with new_folder(tmp_path / "imported") as draft:
            (draft / "file").write_text("")
    finally:
        os.umask(before)
    assert (tmp_path / "imported").stat().st_mode & 0o777 == 0o750
