"""Whether the model that the settings name can be served, as far as its files tell before anything is loaded.

A start, `config check` and `doctor` all ask here first.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mlxcel.config.sampling import sampling_defaults
from mlxcel.config.settings import ServeSettings
from mlxcel.errors import InputError
from mlxcel.model.checkpoint import generation_config_of, read_checkpoint
from mlxcel.store.catalogue import find_model
from mlxcel.store.integrity import check_whole


@dataclass(frozen=True)
class Readiness:
    """The folder, None where there is none, and every fault in it."""

    folder: Path | None
    faults: tuple[InputError, ...]


def readiness_of(settings: ServeSettings) -> Readiness:
    """Look at the JSON files and at the heads of the weights. The settings name a model."""
    try:
        folder = find_model(settings.model, Path(settings.models_dir))
    except InputError as error:
        return Readiness(None, (error,))
    faults: list[InputError] = []

    def look_at_checkpoint() -> None:
        read_checkpoint(folder)

    def look_at_files() -> None:
        check_whole(folder)

    def look_at_sampling() -> None:
        declared = generation_config_of(folder)
        sampling_defaults(settings, declared, origin=str(folder / "generation_config.json"))

    for look in (look_at_checkpoint, look_at_files, look_at_sampling):
        try:
            look()
        except InputError as error:
            if error.message not in {fault.message for fault in faults}:
                faults.append(error)
        if not folder.is_dir():
            break
    return Readiness(folder, tuple(faults))
