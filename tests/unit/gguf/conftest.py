"""GGUF files of the tiny model, and the importer with a target beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.gguf_llama import write_llama_gguf


@pytest.fixture(scope="session")
def tiny_gguf(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model as float32; nobody writes to it."""
    return write_llama_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", tiny_model)


@pytest.fixture
def gguf(tiny_model: Path, tmp_path: Path) -> Callable[..., Path]:
    """Write the tiny model with changes, see `write_llama_gguf`."""
    return lambda **changes: write_llama_gguf(tmp_path / "model.gguf", tiny_model, **changes)
