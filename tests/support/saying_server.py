"""The product's server with a model that says one text, whatever it is asked, and then its end token.

`python -m tests.support.saying_server TEXT serve MODEL --port 0 [--alias NAME] ...`. A random model never calls a tool
by itself; everything but its choice of tokens is the product's.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mlxcel.cli.exits import guarded
from mlxcel.cli.serving import serve
from mlxcel.config.sources import resolve
from mlxcel.engine.runner import ModelRunner
from mlxcel.model.checkpoint import read_checkpoint
from mlxcel.model.tokenizer import load_tokenizer
from tests.support.runners import SayingRunner


def main(arguments: list[str]) -> None:
    """Serve, saying the text."""
    text, command, model, *flags = arguments
    assert command == "serve"
    given = {name.removeprefix("--").replace("-", "_"): value for name, value in zip(*[iter(flags)] * 2, strict=True)}
    tokenizer = load_tokenizer(read_checkpoint(Path(model)))
    tokens = [*tokenizer.encode(text), min(tokenizer.eos_ids)]
    settings = resolve({"model": model, **given}, {}).settings
    guarded(lambda: serve(settings, lambda loaded: SayingRunner(ModelRunner(loaded), tokens=tokens)))


if __name__ == "__main__":
    main(sys.argv[1:])
