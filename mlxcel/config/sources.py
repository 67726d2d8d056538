"""Where settings come from: flags, then MLXCEL_* variables, then config.toml, then defaults.

Every refusal names the key and the place it was set in. The caller passes the environment in.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlxcel.config.keys import KEYS_VARIABLE
from mlxcel.config.settings import AUTO, UNBOUNDED, ServeSettings
from mlxcel.errors import ConfigError, InputError
from mlxcel.regular_file import read_regular

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ENVIRONMENT_PREFIX = "MLXCEL_"
CONFIG_VARIABLE = "MLXCEL_CONFIG"
NO_SETTINGS = (CONFIG_VARIABLE, KEYS_VARIABLE)
"""Variables that no setting comes from."""
_FIELDS = {field.name: field for field in dataclasses.fields(ServeSettings)}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_FLAGS = {
    "kv_cache_budget_bytes": "--kv-cache-budget",
    "prefix_cache_ttl_s": "--prefix-cache-ttl",
    "drain_timeout_s": "--drain-timeout",
    "step_timeout_s": "--step-timeout",
    "request_read_timeout_s": "--request-read-timeout",
    "request_timeout_s": "--request-timeout",
    "write_timeout_s": "--write-timeout",
}
"""Flags that leave out the unit; the others are named as their key."""
_SIZE_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


@dataclass(frozen=True)
class Resolved:
    """The settings and, for each key, where its value was set."""

    settings: ServeSettings
    origins: dict[str, str]


def config_path(environ: Mapping[str, str]) -> Path:
    """The config file that is read when none is named."""
    if named := environ.get(CONFIG_VARIABLE):
        return Path(named)
    home = environ.get("XDG_CONFIG_HOME") or _home(environ) / ".config"
    return Path(home) / "mlxcel" / "config.toml"


def default_models_dir(environ: Mapping[str, str]) -> Path:
    """Where models live when no setting says so."""
    data = environ.get("XDG_DATA_HOME") or _home(environ) / ".local" / "share"
    return Path(data) / "mlxcel" / "models"


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or "~").expanduser()


def resolve(flags: Mapping[str, Any], environ: Mapping[str, str], file: Path | None = None) -> Resolved:
    """Merge the sources. A flag that is None was not given. A `file` that is named must exist.

    Errors: ConfigError naming each faulty key, its value and its origin, one a line.
    """
    resolved, faults = read_sources(flags, environ, file)
    if faults:
        raise all_of(faults)
    return resolved


def read_sources(
    flags: Mapping[str, Any], environ: Mapping[str, str], file: Path | None = None
) -> tuple[Resolved, list[ConfigError]]:
    """Like `resolve`, but with every fault beside what can be used: a faulty value counts as not given."""
    path = file or config_path(environ)
    is_required = file is not None or bool(environ.get(CONFIG_VARIABLE))
    faults: list[ConfigError] = []
    try:
        written = _read_toml(path, is_required=is_required)
    except ConfigError as error:
        written = {}
        faults.append(error)
    layers = [
        *((key, value, str(path)) for key, value in written.items()),
        *_environment(environ),
        *(
            (key, value, _FLAGS.get(key) or "--" + key.replace("_", "-"))
            for key, value in flags.items()
            if value is not None
        ),
    ]
    values: dict[str, Any] = {}
    origins = dict.fromkeys(_FIELDS, "default")
    for key, value, origin in layers:
        try:
            _check_known(key, origin)
            values[key] = converted(key, value, origin, is_typed=origin == str(path))
            origins[key] = origin
        except ConfigError as error:
            faults.append(error)
    models_dir = values.get("models_dir") or str(default_models_dir(environ))
    if models_dir.startswith("~/"):
        models_dir = str(_home(environ) / models_dir[2:])
    values["models_dir"] = models_dir
    return Resolved(ServeSettings(**values), origins), faults


def all_of(faults: Sequence[InputError]) -> ConfigError:
    """Several faults as one error, each on a line of its own; `param` is the first one's."""
    return ConfigError("\n".join(fault.message for fault in faults), param=faults[0].param)


def _environment(environ: Mapping[str, str]) -> list[tuple[str, str, str]]:
    return [
        (name.removeprefix(ENVIRONMENT_PREFIX).lower(), value, name)
        for name, value in sorted(environ.items())
        if name.startswith(ENVIRONMENT_PREFIX) and name not in NO_SETTINGS
    ]


def _read_toml(path: Path, *, is_required: bool) -> dict[str, Any]:
    try:
        values: dict[str, Any] = tomllib.loads(read_regular(path))
        return values
    except FileNotFoundError:
        if not is_required:
            return {}
        raise ConfigError(f"{path} does not exist; nothing was started. Name a config file that does") from None
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror or error}; nothing was started. Name a config file that can"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read: {error}; nothing was started. Mend that line") from error


def _check_known(key: str, origin: str) -> None:
    if key in _FIELDS:
        return
    near = difflib.get_close_matches(key, _FIELDS, n=1)
    hint = f"Did you mean {near[0]}?" if near else "'mlxcel config show' lists every key"
    raise ConfigError(f"{key} (from {origin}) is no setting; nothing was started. {hint}", param=key)


def converted(key: str, value: Any, origin: str, *, is_typed: bool = False) -> Any:
    """The value as its field's type, within its bounds.

    A source that `is_typed`, as TOML and JSON are, gives numbers as numbers and truth as truth; text elsewhere, as in
    the environment, is read as either. Sizes with a unit are text everywhere.

    Errors: ConfigError naming the key, its value and its origin.
    """
    field = _FIELDS[key]

    def refuse(wanted: str) -> ConfigError:
        return ConfigError(f"{key} = {value!r} (from {origin}) is not {wanted}; nothing was started", param=key)

    is_text = isinstance(value, str) and not is_typed
    if value == UNBOUNDED and key in ("max_queue_depth", "kv_cache_budget_bytes"):
        return None
    if value == AUTO and field.default == AUTO:
        return AUTO
    kind = str(field.type)
    if kind.startswith("bool"):
        if is_text and value.lower() in ("true", "false", "1", "0", "yes", "no"):
            return value.lower() in ("true", "1", "yes")
        if not isinstance(value, bool):
            raise refuse("true or false")
        return value
    if kind.startswith("str"):
        if not isinstance(value, str) or not value:
            raise refuse("a text")
        if not value.isprintable() or (not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value)):
            raise refuse("a text that can be shown")
        if not _matches(field.metadata["pattern"], value):
            raise refuse(field.metadata["wanted"])
        return value
    if kind.startswith("tuple"):
        texts = [text.strip() for text in value.split(",")] if is_text else value
        pattern = field.metadata["pattern"]
        if not isinstance(texts, (list, tuple)) or not all(isinstance(t, str) and _matches(pattern, t) for t in texts):
            raise refuse(f"a list of {field.metadata['wanted']}" if is_typed else field.metadata["wanted"])
        return tuple(texts)
    is_size = key.endswith("_bytes")
    number = None if isinstance(value, str) and is_typed and not is_size else _number(value, is_size=is_size)
    if number is None or (kind.startswith("int") and number != int(number)):
        raise refuse("a whole number" if kind.startswith("int") else "a number")
    lowest, highest = field.metadata["at_least"], field.metadata["at_most"]
    if lowest is not None and number < lowest:
        raise refuse(f"{lowest:.16g} or more")
    if highest is not None and number > highest:
        raise refuse(f"{highest:.16g} or less")
    return int(number) if kind.startswith("int") else float(number)


def _matches(pattern: str | None, text: str) -> bool:
    return pattern is None or re.fullmatch(pattern, text) is not None


def bytes_of(text: str) -> int | None:
    """A size as people write it, 16GiB or 500MB; None if it is none."""
    number = _number(text, is_size=True)
    return None if number is None or number != int(number) or number < 0 else int(number)


def _number(value: object, *, is_size: bool) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        if isinstance(value, str) and is_size and (match := _SIZE.fullmatch(value.strip())):
            power = _SIZE_POWERS[match[2].lower()]
            number = float(match[1]) * math.pow(1024 if match[3] else 1000, power)
        else:
            number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
