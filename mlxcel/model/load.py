"""Loading a model folder through mlx_lm, and what the engine needs to know of the result.

Call it on the thread that will run the model: MLX's streams belong to threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from mlxcel.errors import ModelError, reason_of
from mlxcel.kv.size import KVSize
from mlxcel.model.checkpoint import Checkpoint
from mlxcel.model.door import load_model as load_mlx_lm_model
from mlxcel.model.door import make_prompt_cache

DEFAULT_CONTEXT_TOKENS = 4096
"""For a checkpoint that names no limit."""


@dataclass(frozen=True)
class LoadedModel:
    """A model in memory. Owner: the thread that loaded it.

    Units: `weights_bytes` bytes; `n_vocabulary` is the width of the logits, V.
    """

    model: Any
    n_vocabulary: int
    weights_bytes: int
    kv_size: KVSize

    def __call__(self, tokens: mx.array, caches: list[Any]) -> mx.array:
        """Logits of the last position. Shapes: tokens [B, T] -> [B, V]; the caches grow by T."""
        return self.every_logits(tokens, caches)[:, -1, :]

    def every_logits(self, tokens: mx.array, caches: list[Any]) -> mx.array:
        """Logits of each position. Shapes: tokens [B, T] -> [B, T, V]; the caches grow by T."""
        logits: mx.array = self.model(tokens, cache=caches)
        return logits

    def make_caches(self) -> list[Any]:
        """Empty single-row caches, one a layer."""
        caches: list[Any] = make_prompt_cache(self.model)
        return caches


def load_model(checkpoint: Checkpoint) -> LoadedModel:
    """Load the weights and measure one call.

    Errors: ModelError when mlx_lm cannot build the model from this folder.
    """
    model = build_model(checkpoint)
    with _refusing(checkpoint):
        caches = make_prompt_cache(model)
        logits = model(mx.array([[0, 0]]), cache=caches)
        mx.eval(logits, [cache.state for cache in caches])
    return LoadedModel(
        model=model,
        n_vocabulary=logits.shape[-1],
        weights_bytes=sum(array.nbytes for _, array in tree_flatten(model.parameters())),
        kv_size=_kv_size(caches),
    )


def build_model(checkpoint: Checkpoint, *, reads_weights: bool = True) -> Any:
    """mlx_lm's model of a folder, with the weights of its files, which are read when they are first used if not now.

    Errors: ModelError, for a weight of another name or shape than config.json says too.
    """
    with _refusing(checkpoint):
        model, _ = load_mlx_lm_model(checkpoint.folder, lazy=not reads_weights)
    return model


@contextmanager
def _refusing(checkpoint: Checkpoint) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise ModelError(
            f"mlx_lm cannot load {checkpoint.folder}: {reason_of(error)}; nothing is being served. Check that the "
            "folder is whole and that its model type is one mlx_lm knows",
            param="model",
        ) from error


def _kv_size(caches: list[Any]) -> KVSize:
    """Measure caches that hold a few tokens."""
    leaves = list(_leaves(caches))
    with_length = [cache for cache in leaves if getattr(cache, "keys", None) is not None]
    windows = [getattr(cache, "max_size", None) for cache in with_length]
    return KVSize(
        bytes_per_token=sum(sum(array.nbytes // array.shape[-2] for array in _arrays(cache)) for cache in with_length),
        fixed_bytes=sum(int(cache.nbytes) for cache in leaves if cache not in with_length),
        window_tokens=max(w for w in windows if w) if windows and all(windows) else None,
    )


def _leaves(caches: list[Any]) -> Iterator[Any]:
    for cache in caches:
        if hasattr(cache, "caches"):
            yield from _leaves(list(cache.caches))
        else:
            yield cache


def _arrays(cache: Any) -> Iterator[mx.array]:
    for _, array in tree_flatten([cache.keys, cache.values]):
        if array is not None:
            yield array
