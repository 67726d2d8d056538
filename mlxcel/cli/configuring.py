"""`mlxcel config`: the settings, where each was set, and whether a server could start with them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import typer

from mlxcel.cli.columns import aligned, show
from mlxcel.cli.options import ConfigOption, JsonOption
from mlxcel.config.keys import read_keys
from mlxcel.config.sources import Resolved, all_of, config_path, read_sources, resolve
from mlxcel.errors import ConfigError, InputError, ModelError

config_app = typer.Typer(help="Show and check the settings.", rich_markup_mode=None)


@config_app.command("show")
def show_settings(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Print every setting, its value and where it was set."""
    resolved = resolve({}, os.environ, config)
    show(_settings_json(resolved) if as_json else _settings_table(resolved))


@config_app.command("path")
def path() -> None:
    """Print the path of the config file that is read when none is named, whether it exists or not."""
    show(str(config_path(os.environ)))


@config_app.command("check")
def check(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Check every setting, and the model if one is set, as 'serve' would, without loading it.

    Names every fault at once, and exits 78 if there is one.
    """
    from mlxcel.store.inspection import usable_model

    resolved, config_faults = read_sources({}, os.environ, config)
    settings, file = resolved.settings, config or config_path(os.environ)
    faults: list[InputError] = [*config_faults]
    folder = None
    try:
        read_keys(settings.api_keys_file, os.environ)
    except ConfigError as error:
        faults.append(error)
    try:
        folder = usable_model(settings.model, Path(settings.models_dir)) if settings.model else None
    except ModelError as error:
        faults.append(error)
    if as_json:
        told = [{"param": fault.param, "code": fault.code, "message": fault.message} for fault in faults]
        model = folder and str(folder)
        show(json.dumps({"config": str(file), "is_there": file.exists(), "model": model, "faults": told}))
    if faults:
        raise all_of(faults)
    if not as_json:
        show(f"{file}: {'every setting can be used' if file.exists() else 'not there, which is no fault'}")
        show(f"{folder}: the model is whole" if folder else "no model is set; 'mlxcel serve MODEL' names one")


def _settings_json(resolved: Resolved) -> str:
    rows = {
        key: {"value": getattr(resolved.settings, key), "origin": origin} for key, origin in resolved.origins.items()
    }
    return json.dumps(rows, indent=2)


def _settings_table(resolved: Resolved) -> str:
    return aligned([(key, _shown(getattr(resolved.settings, key)), origin) for key, origin in resolved.origins.items()])


def _shown(value: object) -> str:
    if value is None or value == ():
        return "unset"
    if isinstance(value, tuple):
        return ", ".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
