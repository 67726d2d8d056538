"""The command line. It reads the arguments, builds the parts, and turns errors into exit codes.

Nothing here imports mlx: each command imports what it runs, so that `--help` answers at once.
"""

from __future__ import annotations

from mlxcel.cli.exits import guarded, open_standard_files


def main() -> None:
    """Run the `mlxcel` command."""
    open_standard_files()

    def run() -> None:
        from mlxcel.cli.commands import app

        app()

    guarded(run)
