"""Whether a model folder is whole: its headers against its sizes, its index against its files.

It reads headers alone, so it takes milliseconds and cannot see a changed weight; a pull compares digests as well.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mlxcel.regular_file import read_regular
from mlxcel.store.refusal import NotWhole
from mlxcel.store.safetensors import Tensor, read_header

INDEX = "model.safetensors.index.json"
_N_LAYERS = ("num_hidden_layers", "n_layers", "n_layer", "num_layers", "num_transformer_layers")


def read_tensors(folder: Path) -> dict[str, tuple[Tensor, ...]]:
    """The tensors of each weight file that mlx_lm would load, once the folder was found whole.

    Errors: NotWhole naming the file that is missing, cut off or damaged.
    """
    files = {path.name: read_header(path) for path in sorted(folder.glob("model*.safetensors"))}
    held = {file: {tensor.name for tensor in tensors} for file, tensors in files.items()}
    for name, shard in weight_map(folder).items():
        if shard not in held:
            raise NotWhole(folder, f"{shard} is missing, and {INDEX} names it")
        if name not in held[shard]:
            raise NotWhole(folder, f"{shard} lacks the tensor {name} that {INDEX} puts there")
    if not files:
        raise NotWhole(folder, "it has no model*.safetensors")
    return files


def weight_map(folder: Path) -> dict[str, str]:
    """Tensor name -> file name, as the index says; empty where there is none. Errors: NotWhole."""
    if not (folder / INDEX).exists():
        return {}
    shards = _read_object(folder / INDEX).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(shard, str) for shard in shards.values()):
        raise NotWhole(folder, f"{INDEX} has no weight_map")
    return shards


def check_whole(folder: Path) -> None:
    """Errors: NotWhole."""
    for path in sorted(folder.iterdir()):
        if path.exists() and not path.is_file() and not path.is_dir():
            raise NotWhole(folder, f"{path.name} is no regular file")
    config = _read_object(folder / "config.json")
    n_tensors = sum(len(tensors) for tensors in read_tensors(folder).values())
    nested = (config.get(key) for key in ("text_config", "llm_config"))
    for values in (config, *(values for values in nested if isinstance(values, dict))):
        for key in _N_LAYERS:
            # Before a model of so many layers is built: each has at least one tensor.
            if isinstance(n_layers := values.get(key), int) and n_layers > n_tensors:
                raise NotWhole(folder, f"{key} is {n_layers} in config.json, and the files hold {n_tensors} tensors")


def fault_in(folder: Path) -> str | None:
    """Why the folder cannot be a model to load; None if it is whole."""
    try:
        check_whole(folder)
    except NotWhole as error:
        return error.reason
    return None


def _read_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(read_regular(path))
    except FileNotFoundError:
        raise NotWhole(path.parent, f"{path.name} is missing") from None
    except (OSError, ValueError, RecursionError) as error:
        raise NotWhole(path.parent, f"{path.name} cannot be read ({error})") from error
    if not isinstance(value, dict):
        raise NotWhole(path.parent, f"{path.name} holds no JSON object")
    return value
