"""Arguments and flags that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

ModelArgument = Annotated[
    Optional[str], typer.Argument(help="Model folder, or a name of the list.", show_default=False)
]
ConfigOption = Annotated[Optional[Path], typer.Option("--config", help="Config file.", show_default=False)]
JsonOption = Annotated[bool, typer.Option("--json", help="For scripts.")]
ModelsDirOption = Annotated[
    Optional[str], typer.Option("--models-dir", help="Where the models live.", show_default=False)
]
