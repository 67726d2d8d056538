"""A load without the weights: their names and shapes meet the model that config.json describes, and the tokenizer is
made. What only the weights' values, this machine's memory or the first step would show is not seen.

`python -c PROGRAM FOLDER` does it in a child, since mlx may abort the process that it cannot compute in.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mlxcel.errors import ModelError
from mlxcel.model.checkpoint import Checkpoint, read_checkpoint
from mlxcel.model.load import build_model
from mlxcel.model.tokenizer import load_tokenizer


def rehearse(checkpoint: Checkpoint) -> dict[str, list[str]]:
    """Make the tokenizer and the model, and read no weight; "faults" and "warnings" are what was found."""
    faults: list[str] = []
    warnings: list[str] = []
    try:
        tokenizer = load_tokenizer(checkpoint)
        if checkpoint.n_vocabulary is not None:
            warnings += tokenizer.keep_eos_ids(checkpoint.n_vocabulary)
        warnings += tokenizer.template_faults()
    except ModelError as error:
        faults.append(error.message)
    try:
        build_model(checkpoint, reads_weights=False)
    except ModelError as error:
        faults.append(error.message)
    return {"faults": faults, "warnings": warnings}


def main() -> None:
    """Print as JSON what `rehearse` tells of the folder in argv."""
    sys.stdout.write(json.dumps(rehearse(read_checkpoint(Path(sys.argv[1])))))
