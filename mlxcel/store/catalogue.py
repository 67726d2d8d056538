"""The models folder: how a name finds its folder, what is there, and how a model leaves it.

models_dir/OWNER/NAME    a model pulled from a hub      models_dir/NAME    any other
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mlxcel.errors import InputError, ModelError
from mlxcel.folder import drafts_in, is_in_use, remove_folder
from mlxcel.store.integrity import fault_in
from mlxcel.store.record import Record, read_record

_PART = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
_NAME = re.compile(rf"{_PART}(?:/{_PART})?")


@dataclass(frozen=True)
class Entry:
    """A model in the models folder. `record` is None where it was not pulled; `fault` says why it cannot be used.

    `is_finished` is False for what an interrupted pull left; the next pull of the same model goes on with it.
    """

    name: str
    folder: Path
    n_bytes: int
    record: Record | None
    fault: str | None
    is_in_use: bool
    is_finished: bool


def check_name(name: str, *, param: str) -> str:
    """The name of a model, NAME or OWNER/NAME: no path can be made of it that leads elsewhere.

    Errors: InputError.
    """
    if not _NAME.fullmatch(name) or ".." in name:
        raise InputError(
            f"{name!r} is no name of a model; nothing was changed. Give OWNER/NAME or NAME, of letters, digits, '-', "
            "'_' and '.'",
            param=param,
        )
    return name


def find_model(name: str, models_dir: Path) -> Path:
    """The folder that `name` means: a path that exists, else a model in the models folder. No network is used.

    Errors: ModelError when it is neither.
    """
    if os.path.lexists(name):
        return Path(name)
    if _NAME.fullmatch(name) and (models_dir / name).is_dir():
        return models_dir / name
    known = [entry_name for entry_name, _ in _finished(models_dir)]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"Did you mean {near[0]}?" if near else "'mlxcel list' shows what is there, 'mlxcel pull OWNER/NAME' fetches"
    raise ModelError(
        f"{name} is no folder and no model in {models_dir}; nothing was loaded. {hint}",
        param="model",
    )


def list_models(models_dir: Path) -> list[Entry]:
    """Every model in the models folder, by name, then what interrupted pulls left."""
    finished = [_entry(name, folder, is_finished=True) for name, folder in _finished(models_dir)]
    return finished + [_entry(name, folder, is_finished=False) for name, folder in _unfinished(models_dir)]


def find_entry(name: str, models_dir: Path) -> Entry:
    """Errors: InputError when the models folder has nothing of that name, whole or not."""
    check_name(name, param="name")
    for entry in list_models(models_dir):
        if entry.name == name:
            return entry
    raise InputError(
        f"no model {name} is in {models_dir}; nothing was removed. 'mlxcel list' shows what is there", param="name"
    )


def remove_model(name: str, models_dir: Path) -> None:
    """Remove a model, or what an interrupted pull of it left.

    Errors: StateError while a process uses or fetches it, and then it is as it was; OSError from the disk.
    """
    folder = models_dir / check_name(name, param="name")
    remove_folder(folder)
    owner = folder.parent
    if owner != models_dir and owner.is_dir() and not any(owner.iterdir()):
        owner.rmdir()


def _entry(name: str, folder: Path, *, is_finished: bool) -> Entry:
    return Entry(
        name=name,
        folder=folder,
        n_bytes=sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
        record=read_record(folder),
        fault=fault_in(folder) if is_finished else "not finished",
        is_in_use=is_in_use(folder),
        is_finished=is_finished,
    )


def _finished(models_dir: Path) -> Iterator[tuple[str, Path]]:
    for folder in _folders(models_dir):
        if (folder / "config.json").exists():
            yield folder.name, folder
        else:
            yield from ((f"{folder.name}/{model.name}", model) for model in _folders(folder))


def _unfinished(models_dir: Path) -> Iterator[tuple[str, Path]]:
    owners = [folder for folder in _folders(models_dir) if not (folder / "config.json").exists()]
    for parent in [models_dir, *owners] if models_dir.is_dir() else []:
        for target, draft in drafts_in(parent).items():
            yield str(target.relative_to(models_dir)), draft


def _folders(parent: Path) -> list[Path]:
    if not parent.is_dir():
        return []
    return sorted(path for path in parent.iterdir() if path.is_dir() and not path.name.startswith("."))
