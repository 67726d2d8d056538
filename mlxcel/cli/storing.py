"""What `mlxcel pull`, `list`, `rm` and `inspect` do and print."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from mlxcel.cli.columns import aligned, show, sized
from mlxcel.cli.exits import leave, say
from mlxcel.config.settings import ServeSettings
from mlxcel.errors import InputError, ModelError
from mlxcel.store.catalogue import Entry, find_entry, find_model, list_models, remove_model
from mlxcel.store.inspection import Inspection, inspect_model

INTERRUPTED = 130


def pull(
    settings: ServeSettings,
    repo: str,
    *,
    revision: str,
    name: str | None,
    n_retries: int,
    endpoint: str | None,
    as_json: bool,
) -> None:
    """Errors: those of `pull_model`."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # read on import; a pull asks for the model, nothing else
    from mlxcel.cli.progress import byte_progress
    from mlxcel.store.hub import DEFAULT_ENDPOINT, Hub
    from mlxcel.store.pull import pull_model

    try:
        with byte_progress("pulling") as progress:
            report = pull_model(
                Hub(endpoint or DEFAULT_ENDPOINT),
                repo,
                Path(settings.models_dir),
                revision=revision,
                name=name,
                n_retries=n_retries,
                progress=progress,
            )
    except KeyboardInterrupt:
        say("interrupted; what arrived is kept. Run the same command again to go on")
        leave(INTERRUPTED)
    if as_json:
        show(msgspec.json.encode(report).decode())
    else:
        fetched = sized(report.fetched_bytes) if report.fetched_bytes else "nothing new"
        show(
            f"{report.name}: {report.n_files} files, {sized(report.n_bytes)} ({fetched} fetched), {report.commit[:12]}"
        )
        show(report.folder)


def show_list(settings: ServeSettings, *, as_json: bool) -> None:
    entries = list_models(Path(settings.models_dir))
    if as_json:
        show(msgspec.json.encode([_plain(entry) for entry in entries]).decode())
    elif not entries:
        show(f"no models in {settings.models_dir}; 'mlxcel pull OWNER/NAME' fetches one")
    else:
        heads = ("name", "size", "source", "state")
        show(aligned([heads, *((e.name, sized(e.n_bytes), str(e.record or "-"), _state(e)) for e in entries)]))


def remove(settings: ServeSettings, name: str, *, is_sure: bool) -> None:
    """Errors: InputError when there is no such model, or nobody confirms; StateError when it is in use."""
    models_dir = Path(settings.models_dir)
    entry = find_entry(name, models_dir)
    if not is_sure:
        if not sys.stdin.isatty():
            raise InputError(f"{name} was kept, for nobody can be asked here. Give --yes to remove it", param="yes")
        sys.stdout.write(f"Remove {name} ({sized(entry.n_bytes)})? [y/N] ")
        sys.stdout.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise InputError(f"{name} was kept", param="yes")
    try:
        remove_model(name, models_dir)
    except OSError as error:
        raise InputError(f"{name} cannot be removed: {error}. Check whose it is", param="name") from error
    show(f"removed {name} ({sized(entry.n_bytes)})")


def show_inspection(
    settings: ServeSettings, *, memory_bytes: int | None, lengths: Sequence[int], as_json: bool
) -> None:
    """Errors: ModelError when no model is named, or it is none or not whole."""
    if not settings.model:
        raise ModelError("no model was named; give a name of 'mlxcel list' or a folder", param="model")
    budget = settings.kv_cache_budget_bytes
    told = inspect_model(
        find_model(settings.model, Path(settings.models_dir)),
        memory_bytes=memory_bytes or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kv_budget_bytes=budget if isinstance(budget, int) and memory_bytes is None else None,
        lengths=lengths,
    )
    show(msgspec.json.encode(told, enc_hook=str).decode() if as_json else _inspection_table(told))


def _plain(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "folder": str(entry.folder),
        "n_bytes": entry.n_bytes,
        "repo": entry.record and entry.record.repo,
        "revision": entry.record and entry.record.revision,
        "commit": entry.record and entry.record.commit,
        "is_finished": entry.is_finished,
        "is_in_use": entry.is_in_use,
        "fault": entry.fault,
    }


def _state(entry: Entry) -> str:
    if not entry.is_finished:
        return "being written" if entry.is_in_use else "not finished: pull it again to go on, or rm it"
    if entry.fault:
        return "not whole: 'mlxcel inspect' tells why"
    return "in use" if entry.is_in_use else ""


def _inspection_table(told: Inspection) -> str:
    size = told.kv_size
    rows = [
        ("folder", str(told.folder)),
        *([("source", f"{told.record} ({told.record.revision})")] if told.record else []),
        ("model", f"{told.model_type}, {told.precision}"),
        ("weights", f"{sized(told.weights_bytes)}: {told.n_tensors} tensors, files: {told.n_files}"),
        ("context", f"{told.context_tokens or 'not declared'}"),
        ("KV per token", f"{sized(size.bytes_per_token)} ({told.kv_note})" if size else told.kv_note),
        *([("KV window", f"{size.window_tokens} tokens")] if size and size.window_tokens else []),
        ("KV budget", sized(told.kv_budget_bytes)),
        *(("fits", f"{fit.n_sequences} sequences of {fit.n_tokens} tokens") for fit in told.fits),
    ]
    return aligned(rows)
