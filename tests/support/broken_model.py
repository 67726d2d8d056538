"""Model folders that are whole, file by file, and that nobody can serve."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.tiny_llama import make_tiny_llama


def write_into(file: Path, **values: Any) -> None:
    """Set keys of a JSON file."""
    held = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**held, **values}))


BREAKAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no tokenizer.json": (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer"),
    "an empty tokenizer.json": (lambda folder: (folder / "tokenizer.json").write_text("{}"), "tokenizer"),
    "a model type that leads elsewhere": (
        lambda folder: write_into(folder / "config.json", model_type="../../evil"),
        "no name of a model type",
    ),
    "no model type": (lambda folder: write_into(folder / "config.json", model_type=None), "no name of a model type"),
    "an unknown model type": (
        lambda folder: write_into(folder / "config.json", model_type="llamarama"),
        "Model type llamarama not supported",
    ),
    "another width": (lambda folder: write_into(folder / "config.json", hidden_size=128), "shape"),
    "a layer more": (lambda folder: write_into(folder / "config.json", num_hidden_layers=3), "Missing"),
    "layers without end": (
        lambda folder: write_into(folder / "config.json", num_hidden_layers=10**8),
        "num_hidden_layers is 100000000 in config.json, and the files hold 21 tensors",
    ),
    "code of its own for the tokenizer": (
        lambda folder: write_into(
            folder / "tokenizer_config.json",
            auto_map={"AutoTokenizer": ["evil.Evil", None]},
            tokenizer_class="EvilTokenizer",
        ),
        "tokenizer",
    ),
    "ends alone": (
        lambda folder: write_into(folder / "generation_config.json", eos_token_id=list(range(1024))),
        "each of its 1024 tokens ends an answer",
    ),
}
"""What is broken: how, and what is said of it."""


def break_model(folder: Path, breakage: str) -> str:
    """Make a model with one of BREAKAGES in `folder`; returns what is said of it."""
    spoil, told = BREAKAGES[breakage]
    spoil(make_tiny_llama(folder))
    return told
