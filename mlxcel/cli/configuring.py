"""`mlxcel config`: the settings, where each was set, and whether a server could start with them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import typer

from mlxcel.api.listener import bind
from mlxcel.cli.columns import aligned, show
from mlxcel.cli.exits import say
from mlxcel.cli.options import ConfigOption, JsonOption
from mlxcel.config.keys import read_keys
from mlxcel.config.settings import ServeSettings
from mlxcel.config.sources import Resolved, all_of, config_path, read_sources, resolve
from mlxcel.errors import ConfigError, InputError, ModelError, PortInUse

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
    """Check every setting, and the model if one is set, as 'serve' would, without reading its weights.

    Names every fault at once, and exits 78 if there is one. What only the weights' values show, or the memory of the
    machine, is not looked at: 'mlxcel doctor' looks at the machine.
    """
    resolved, config_faults = read_sources({}, os.environ, config)
    settings, file = resolved.settings, config or config_path(os.environ)
    faults: list[InputError] = [*config_faults]
    folder: Path | None = None
    warnings: tuple[str, ...] = ()
    try:
        read_keys(settings.api_keys_file, os.environ)
    except ConfigError as error:
        faults.append(error)
    try:
        bind(settings.host, settings.port).close()
    except PortInUse:
        pass  # the server that these settings are for may run already
    except ConfigError as error:
        faults.append(error)
    if settings.model:
        folder, model_faults, warnings = _look_at_model(settings)
        faults += model_faults
    if as_json:
        told = [{"param": fault.param, "code": fault.code, "message": fault.message} for fault in faults]
        model = folder and str(folder)
        show(
            json.dumps(
                {"config": str(file), "is_there": file.exists(), "model": model, "faults": told, "warnings": warnings}
            )
        )
    if faults:
        raise all_of(faults)
    if not as_json:
        show(f"{file}: {'every setting can be used' if file.exists() else 'not there, which is no fault'}")
        told_of_model = f"{folder}: the model is whole, and everything of it but the values of its weights was loaded"
        show(told_of_model if folder else "no model is set; 'mlxcel serve MODEL' names one")
        for warning in warnings:
            say(warning)


def _look_at_model(settings: ServeSettings) -> tuple[Path | None, list[InputError], tuple[str, ...]]:
    """The folder, the faults that keep it from being served, and what will be warned of."""
    from mlxcel.doctor.rehearsing import rehearse_in_child
    from mlxcel.store.readiness import readiness_of

    ready = readiness_of(settings)
    if ready.folder is None or ready.faults:
        return None, [*ready.faults], ()
    rehearsed = rehearse_in_child(ready.folder)
    return ready.folder, [ModelError(fault, param="model") for fault in rehearsed.faults], rehearsed.warnings


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
