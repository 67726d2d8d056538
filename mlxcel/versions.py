"""The versions that an answer depends on: ours, MLX's and mlx_lm's."""

from __future__ import annotations

from importlib import metadata

import mlxcel
from mlxcel.errors import InputError


def installed_versions() -> dict[str, str]:
    """By package name. Errors: InputError for an installation that is not whole."""
    versions = {"mlxcel": mlxcel.__version__}
    for name in ("mlx", "mlx-lm"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            raise InputError(f"{name} is not installed beside mlxcel; install mlxcel again") from None
    return versions
