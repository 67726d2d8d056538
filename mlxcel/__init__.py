"""mlxcel: an OpenAI-compatible server for MLX models that runs unattended."""

from importlib.metadata import version as _version

__version__ = _version("mlxcel")
