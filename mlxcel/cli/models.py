"""`mlxcel pull`, `list`, `rm` and `inspect`: models on disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Optional

import typer

from mlxcel.cli.options import ConfigOption, JsonOption, ModelArgument, ModelsDirOption
from mlxcel.cli.systemwide import ForSystemOption, PrefixOption, become_owner_of, system_settings
from mlxcel.config.settings import ServeSettings
from mlxcel.config.sources import bytes_of, resolve
from mlxcel.errors import InputError

models_app = typer.Typer(rich_markup_mode=None)


@models_app.command()
def pull(
    repo: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="Repository of a hub, in MLX's format.")],
    revision: Annotated[str, typer.Option(help="Branch, tag or commit.")] = "main",
    name: Annotated[Optional[str], typer.Option(help="Name to give it here; its own if unset.")] = None,
    retries: Annotated[int, typer.Option(min=0, max=20, help="How often to wait for a hub that is gone.")] = 5,
    models_dir: ModelsDirOption = None,
    config: ConfigOption = None,
    system: ForSystemOption = False,
    prefix: PrefixOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fetch a model from a hub, whole or not at all; the same command goes on where an earlier one stopped."""
    own = (models_dir, config)
    settings = system_settings(prefix, own=own) if system else _settings(models_dir, config)
    from mlxcel.cli.storing import pull as run

    if system:
        become_owner_of(Path(settings.models_dir))
    endpoint = os.environ.get("HF_ENDPOINT") or None
    run(settings, repo, revision=revision, name=name, n_retries=retries, endpoint=endpoint, as_json=as_json)


@models_app.command("list")
def list_(models_dir: ModelsDirOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List the models that were pulled or imported, and what interrupted pulls left."""
    settings = _settings(models_dir, config)
    from mlxcel.cli.storing import show_list

    show_list(settings, as_json=as_json)


@models_app.command()
def rm(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name of the list.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    models_dir: ModelsDirOption = None,
    config: ConfigOption = None,
) -> None:
    """Remove a model, unless it is in use."""
    settings = _settings(models_dir, config)
    from mlxcel.cli.storing import remove

    remove(settings, name, is_sure=yes)


@models_app.command()
def inspect(
    model: ModelArgument = None,
    memory: Annotated[Optional[str], typer.Option(help="Memory of the machine: 16GiB; this one's if unset.")] = None,
    length: Annotated[Optional[list[int]], typer.Option(min=1, help="Tokens of a sequence; may be repeated.")] = None,
    models_dir: ModelsDirOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell what a model will need: weights, memory per token, how many sequences fit. Loads nothing."""
    settings = _settings(models_dir, config, model)
    memory_bytes = None if memory is None else bytes_of(memory)
    if memory is not None and memory_bytes is None:
        raise InputError(f"--memory {memory!r} is no size; nothing was read. Give one like 16GiB", param="memory")
    from mlxcel.cli.storing import show_inspection

    show_inspection(settings, memory_bytes=memory_bytes, lengths=length or [], as_json=as_json)


def _settings(models_dir: str | None, config: Path | None, model: str | None = None) -> ServeSettings:
    return resolve({"model": model, "models_dir": models_dir}, os.environ, config).settings
