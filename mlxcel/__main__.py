"""`python -m mlxcel` and the `mlxcel` command."""

from mlxcel.cli import main

if __name__ == "__main__":
    main()
