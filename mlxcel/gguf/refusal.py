"""The one form of every refusal of a GGUF file: what is wrong, that nothing was written, and what to do."""

from __future__ import annotations

from mlxcel.errors import ModelError

USE_MLX_VERSION = "Use an MLX version of this model instead."
CONVERT_AGAIN = "Download the file or convert the model again."


def refusal(reason: str, advice: str = CONVERT_AGAIN) -> ModelError:
    """`reason` continues 'The GGUF file ...', without a full stop."""
    return ModelError(f"The GGUF file {reason}. Nothing was written. {advice}")
