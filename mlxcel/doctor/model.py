"""The model that is to be served: named, there, and whole."""

from __future__ import annotations

from pathlib import Path

from mlxcel.config.settings import ServeSettings
from mlxcel.doctor.finding import Finding, ok, problem, warning
from mlxcel.errors import ModelError
from mlxcel.store.inspection import Inspection, inspect_model, usable_model

FEWEST_TOKENS = 1024
"""A server that has no room for a sequence of so many does not start."""


def look_at_model(settings: ServeSettings, *, memory_bytes: int) -> tuple[Finding, Inspection | None]:
    """Reads its JSON files and the heads of its weights."""
    if not settings.model:
        next_step = (
            "Set model = ... in the config file, or name it: 'mlxcel serve MODEL'. 'mlxcel list' shows what is there"
        )
        return warning("model", "none is set, so a service would not start", next_step), None
    budget = settings.kv_cache_budget_bytes
    try:
        told = inspect_model(
            usable_model(settings.model, Path(settings.models_dir)),
            memory_bytes=memory_bytes,
            kv_budget_bytes=budget if isinstance(budget, int) else None,
            lengths=(FEWEST_TOKENS,),
        )
    except ModelError as error:
        return problem("model", error.message, "'mlxcel pull OWNER/NAME' fetches a model whole"), None
    return ok("model", f"{told.folder} is whole: {told.model_type}, {told.precision}, {told.n_files} files"), told
