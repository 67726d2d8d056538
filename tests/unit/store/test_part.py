from __future__ import annotations

import hashlib
from contextlib import closing
from pathlib import Path

import pytest

from mlxcel.errors import StateError
from mlxcel.store.hub import HubFile
from mlxcel.store.part import Part

CONTENT = b"all the bytes of a file"
SHA256 = HubFile("f", len(CONTENT), "sha256:" + hashlib.sha256(CONTENT).hexdigest())
# printf 'all the bytes of a file' | git hash-object --stdin
GIT = HubFile("f", len(CONTENT), "git-sha1:" + "4fd80d0edaa59619afa3795ab11e96f11b73be6a")


@pytest.mark.parametrize("file", [SHA256, GIT])
@pytest.mark.parametrize("n_held", [0, 5, len(CONTENT)])
def test_a_file_grows_from_what_is_there_and_is_compared_as_a_whole(tmp_path: Path, file: HubFile, n_held: int) -> None:
    (tmp_path / "f").write_bytes(CONTENT[:n_held])
    with closing(Part(tmp_path, file)) as part:
        assert (part.n_bytes, part.is_complete) == (n_held, n_held == len(CONTENT))
        part.append(CONTENT[n_held:])
        assert part.is_complete
        part.check()
    assert (tmp_path / "f").read_bytes() == CONTENT


@pytest.mark.parametrize("file", [SHA256, GIT])
def test_a_file_of_other_bytes_is_thrown_away_and_can_be_made_again(tmp_path: Path, file: HubFile) -> None:
    (tmp_path / "f").write_bytes(b"X")
    with closing(Part(tmp_path, file)) as part:
        part.append(CONTENT[1:])
        with pytest.raises(StateError, match="digest"):
            part.check()
        assert (part.n_bytes, (tmp_path / "f").stat().st_size) == (0, 0)
        part.append(CONTENT)
        part.check()


def test_a_file_that_is_too_long_is_thrown_away(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(CONTENT + b"!")
    with closing(Part(tmp_path, SHA256)) as part:
        assert part.n_bytes == 0
        with pytest.raises(StateError, match="longer"):
            part.append(CONTENT + b"!")
        assert part.n_bytes == 0
