"""mlxcel: an OpenAI-compatible server for MLX models that runs unattended."""


def __getattr__(name: str) -> str:
    """`__version__`, looked up when it is asked for: importlib.metadata is half of what `--help` would import."""
    if name == "__version__":
        from importlib.metadata import version

        return version("mlxcel")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
