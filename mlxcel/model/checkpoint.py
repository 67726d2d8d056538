"""What a model folder says about itself in its JSON files, read before any weight is.

Pure reading; it knows nothing of mlx_lm.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlxcel.errors import ModelError
from mlxcel.regular_file import read_regular

_MODEL_TYPE = re.compile(r"\w(?:[\w.-]*\w)?", re.ASCII)


@dataclass(frozen=True)
class Checkpoint:
    """A model folder's declarations. `context_tokens` is None where the folder names no limit, `n_vocabulary` where it
    does not say how many tokens there are.
    """

    folder: Path
    config: dict[str, Any]
    generation_config: dict[str, Any]
    eos_ids: frozenset[int]
    context_tokens: int | None
    n_vocabulary: int | None = None


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read a folder's config files.

    Errors: ModelError when the folder is no MLX model, or wants its own code run.
    """
    if not folder.is_dir():
        raise ModelError(
            f"{folder} is not a folder; nothing was loaded. Name a folder with config.json and "
            "model*.safetensors, or make one with 'mlxcel import FILE.gguf DIR'",
            param="model",
        )
    config = _read_json(folder / "config.json", required=True)
    if not any(folder.glob("model*.safetensors")):
        raise ModelError(
            f"{folder} has no model*.safetensors; nothing was loaded. A GGUF file becomes such a folder with "
            "'mlxcel import FILE.gguf DIR'",
            param="model",
        )
    if config.get("model_file") is not None:
        raise ModelError(
            f"{folder / 'config.json'} wants the code in {config['model_file']!r} run to build the model, and "
            "mlxcel runs no code from a checkpoint; nothing was run or loaded. Use a folder whose model type "
            "mlx_lm knows",
            param="model",
        )
    if "model_type" in config:
        _check_model_type(config["model_type"], folder)
    generation_config = generation_config_of(folder)
    nested = (config.get(key) for key in ("text_config", "llm_config"))
    text_configs = [config, *(values for values in nested if isinstance(values, dict))]
    return Checkpoint(
        folder=folder,
        config=config,
        generation_config=generation_config,
        eos_ids=frozenset().union(*(_eos_ids(values) for values in (generation_config, *text_configs))),
        context_tokens=_context_tokens(text_configs),
        n_vocabulary=next((n for values in text_configs if _is_count(n := values.get("vocab_size"))), None),
    )


def generation_config_of(folder: Path) -> dict[str, Any]:
    """A folder's defaults for generating; none where it has no such file. Errors: ModelError."""
    return _read_json(folder / "generation_config.json", required=False)


def _check_model_type(model_type: object, folder: Path) -> None:
    if not isinstance(model_type, str) or not _MODEL_TYPE.fullmatch(model_type):
        raise ModelError(
            f"model_type = {model_type!r} in {folder / 'config.json'} is no name of a model type; nothing was loaded. "
            "Copy the folder from its source again",
            param="model",
        )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _eos_ids(values: dict[str, Any]) -> frozenset[int]:
    declared = values.get("eos_token_id")
    ids = declared if isinstance(declared, list) else [] if declared is None else [declared]
    if not all(isinstance(token, int) and not isinstance(token, bool) for token in ids):
        raise ModelError(
            f"eos_token_id = {declared!r} is neither a token id nor a list of them; nothing was loaded. Mend it in "
            "config.json or generation_config.json",
            param="model",
        )
    return frozenset(ids)


def _context_tokens(text_configs: list[dict[str, Any]]) -> int | None:
    declared = [
        (key, values[key])
        for values in text_configs
        for key in ("max_position_embeddings", "max_sequence_length", "seq_length", "n_positions")
        if values.get(key) is not None
    ]
    for key, size in declared:
        if not isinstance(size, int) or size < 2:
            raise ModelError(
                f"{key} = {size!r} is no count of tokens that leaves room for an answer; nothing was loaded. Mend it "
                "in config.json",
                param="model",
            )
    return min((size for _, size in declared), default=None)


def _read_json(path: Path, *, required: bool) -> dict[str, Any]:
    try:
        values = json.loads(read_regular(path))
    except FileNotFoundError:
        if not required:
            return {}
        raise ModelError(
            f"{path} is missing, so {path.parent} is no MLX model; nothing was loaded. Name a folder with "
            "config.json and model*.safetensors",
            param="model",
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(
            f"{path} cannot be read: {error}; nothing was loaded. Copy the folder from its source again", param="model"
        ) from error
    if not isinstance(values, dict):
        raise ModelError(
            f"{path} holds no JSON object; nothing was loaded. Copy the folder from its source again", param="model"
        )
    return values
