"""The model that is to be served: named, there, whole, and one that loads, as far as that shows without its weights."""

from __future__ import annotations

from mlxcel.config.settings import ServeSettings
from mlxcel.doctor.finding import Finding, ok, problem, warning
from mlxcel.doctor.rehearsing import rehearse_in_child
from mlxcel.errors import StateError
from mlxcel.kv.size import FEWEST_TOKENS
from mlxcel.store.inspection import Inspection, inspect_model
from mlxcel.store.readiness import readiness_of


def look_at_model(settings: ServeSettings, *, memory_bytes: int) -> tuple[list[Finding], Inspection | None]:
    """Reads its JSON files and the heads of its weights, and loads everything else of it in a child."""
    if not settings.model:
        next_step = (
            "Set model = ... in the config file, or name it: 'mlxcel serve MODEL'. 'mlxcel list' shows what is there"
        )
        return [warning("model", "none is set, so a service would not start", next_step)], None
    ready = readiness_of(settings)
    if ready.folder is None or ready.faults:
        return [_fault(fault.message) for fault in ready.faults], None
    budget = settings.kv_cache_budget_bytes
    told = inspect_model(
        ready.folder,
        memory_bytes=memory_bytes,
        kv_budget_bytes=budget if isinstance(budget, int) else None,
        lengths=(FEWEST_TOKENS,),
    )
    try:
        rehearsed = rehearse_in_child(ready.folder)
    except StateError as error:
        return [warning("model", error.message, "Mend the other problems first")], told
    if rehearsed.faults:
        return [_fault(fault) for fault in rehearsed.faults], None
    found = [
        warning("model", text, "Mend that file in its folder, or choose another model") for text in rehearsed.warnings
    ]
    return found or [
        ok("model", f"{told.folder} is whole: {told.model_type}, {told.precision}, {told.n_files} files")
    ], told


def _fault(told: str) -> Finding:
    return problem("model", told, "'mlxcel pull OWNER/NAME' fetches a model whole")
