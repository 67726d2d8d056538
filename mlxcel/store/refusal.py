"""The one form of every refusal of a folder that is not whole."""

from __future__ import annotations

from pathlib import Path

from mlxcel.errors import ModelError


class NotWhole(ModelError):
    """A model folder with something missing, cut off or damaged. `reason` names the file and what is wrong with it."""

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(f"{folder} is not whole: {reason}; nothing was loaded. Fetch the model again", param="model")
        self.reason = reason
