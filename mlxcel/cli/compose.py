"""The composition root: settings become an engine, a service and an app, wired to each other.

Tests start the same server with another runner through `runner_of`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mlxcel.api.service import ServedModel
from mlxcel.config.sampling import sampling_defaults
from mlxcel.config.settings import ServeSettings
from mlxcel.config.sources import all_of
from mlxcel.core import Event
from mlxcel.engine.loop import Engine, EngineParts
from mlxcel.engine.runner import ModelRunner, Runner, batching_is_exact
from mlxcel.engine.scheduler import BatchScheduler, SchedulerLimits
from mlxcel.errors import ModelError
from mlxcel.kv.prefixes import PrefixLimits
from mlxcel.kv.size import FEWEST_TOKENS, memory_for_kv
from mlxcel.model.checkpoint import Checkpoint, read_checkpoint
from mlxcel.model.load import DEFAULT_CONTEXT_TOKENS, LoadedModel, load_model
from mlxcel.model.memory import cap_memory, default_buffer_bytes, memory_bytes
from mlxcel.model.tokenizer import Tokenizer, load_tokenizer
from mlxcel.store.readiness import readiness_of

SHARE_OF_PREFIXES = 0.25
"""Of the memory for keys and values, for prefixes that nobody uses now. Sequences may take all of it back."""


@dataclass(frozen=True)
class MemoryBounds:
    """What memory may go where, in bytes: keys and values (None: no bound), those of them that are prefixes', and freed
    buffers that MLX keeps.
    """

    kv_bytes: int | None
    prefix_bytes: int
    buffer_bytes: int


@dataclass(frozen=True)
class Loaded:
    """What the engine's build hands to those who wait for it."""

    tokenizer: Tokenizer
    model: LoadedModel
    n_rows: int
    is_batching_exact: bool
    memory: MemoryBounds
    warnings: tuple[str, ...] = ()


def served_model(settings: ServeSettings, checkpoint: Checkpoint) -> ServedModel:
    """What the checkpoint and the settings say before anything is loaded."""
    return ServedModel(
        id=settings.alias or checkpoint.folder.resolve().name,
        context_tokens=checkpoint.context_tokens or DEFAULT_CONTEXT_TOKENS,
        created=int(checkpoint.folder.stat().st_mtime),
        sampling=sampling_defaults(
            settings, checkpoint.generation_config, origin=str(checkpoint.folder / "generation_config.json")
        ),
    )


def make_engine(
    settings: ServeSettings,
    checkpoint: Checkpoint,
    *,
    post: Callable[[list[Event]], None],
    on_loaded: Callable[[Loaded], None],
    on_change: Callable[[], None] = lambda: None,
    runner_of: Callable[[LoadedModel], Runner] = ModelRunner,
) -> Engine:
    """An engine that loads `checkpoint` on its own thread once started."""

    def build() -> EngineParts:
        tokenizer = load_tokenizer(checkpoint)
        tokenizer.warm_up()
        buffer_bytes = _bytes(settings.mlx_cache_bytes, default_buffer_bytes)
        cap_memory(buffer_bytes)
        model = load_model(checkpoint)
        warnings = (*tokenizer.keep_eos_ids(model.n_vocabulary), *tokenizer.template_faults())
        memory = _memory_bounds(settings, model, buffer_bytes)
        is_exact = batching_is_exact(model)
        n_rows = settings.batch_rows if is_exact else 1
        on_loaded(Loaded(tokenizer, model, n_rows, is_exact, memory, warnings))
        limits = SchedulerLimits(
            max_batch_size=n_rows,
            max_queue_depth=settings.queue_depth,
            prefill_chunk_tokens=settings.prefill_chunk_size,
            kv_budget_bytes=memory.kv_bytes,
            prefixes=PrefixLimits(memory.prefix_bytes, settings.prefix_cache_ttl_s),
        )
        scheduler = BatchScheduler(limits, kv_size=model.kv_size, eos_ids=tokenizer.eos_ids)
        return EngineParts(runner_of(model), scheduler)

    return Engine(build, post, on_change)


def checkpoint_of(settings: ServeSettings) -> Checkpoint:
    """Read the model that the settings name, a folder or one of the models folder.

    Errors: ModelError when they name none, or no usable one; ConfigError for several faults, one a line.
    """
    if not settings.model:
        raise ModelError(
            "no model was named; nothing was started. Give a name of 'mlxcel list' or a folder: 'mlxcel serve MODEL', "
            "MLXCEL_MODEL, or model = ... in config.toml. 'mlxcel pull OWNER/NAME' fetches one ('sudo mlxcel pull "
            "OWNER/NAME --system' for the service), 'mlxcel import' makes one",
            param="model",
        )
    ready = readiness_of(settings)
    if len(ready.faults) == 1:
        raise ready.faults[0]
    if ready.folder is None or ready.faults:
        raise all_of(ready.faults)
    return read_checkpoint(ready.folder)


def _memory_bounds(settings: ServeSettings, model: LoadedModel, buffer_bytes: int) -> MemoryBounds:
    """What the settings say, or this machine's memory.

    Errors: ModelError when the machine has too little.
    """
    left_bytes = memory_for_kv(memory_bytes(), model.weights_bytes)
    kv_bytes: int | None = None
    if settings.kv_cache_budget_bytes is not None:
        kv_bytes = _bytes(settings.kv_cache_budget_bytes, lambda: _kv_budget_bytes(model, left_bytes))
    prefix_bytes = _bytes(
        settings.prefix_cache_bytes,
        lambda: int(SHARE_OF_PREFIXES * (left_bytes if kv_bytes is None else kv_bytes)),
    )
    return MemoryBounds(kv_bytes, max(0, prefix_bytes), buffer_bytes)


def _bytes(setting: int | str, default: Callable[[], int]) -> int:
    """A size as it was given, or the one that fits."""
    return default() if isinstance(setting, str) else setting


def _kv_budget_bytes(model: LoadedModel, budget: int) -> int:
    needed = model.kv_size.bytes_for(FEWEST_TOKENS)
    if budget < needed:
        raise ModelError(
            f"the weights take {model.weights_bytes} bytes, which leaves {budget} bytes of this machine's "
            f"memory for keys and values, and {FEWEST_TOKENS} tokens need {needed}; nothing is being served. "
            "Choose a smaller model, or set --kv-cache-budget",
            param="kv_cache_budget_bytes",
        )
    return budget
