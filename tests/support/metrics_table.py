"""The table of docs/metrics.md. `python -m tests.support.metrics_table` writes it anew."""

from __future__ import annotations

from pathlib import Path

from mlxcel.metrics.quantities import QUANTITIES, Quantity

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"
HEAD = "| names | type | unit | meaning |\n|---|---|---|---|\n"


def table() -> str:
    """One row for each quantity, with every name that it goes by."""
    return HEAD + "".join(f"| {' | '.join(_cells(quantity))} |\n" for quantity in QUANTITIES)


def _cells(quantity: Quantity) -> tuple[str, ...]:
    labels = f" ({', '.join(quantity.labels)})" if quantity.labels else ""
    names = ", ".join(f"`{name}`" for name in quantity.names)
    return names + labels, quantity.kind.value, quantity.unit, quantity.meaning


def table_in(text: str) -> str:
    """The table that a document has."""
    return HEAD + text.partition(HEAD)[2].partition("\n\n")[0].rstrip("\n") + "\n"


if __name__ == "__main__":
    text = DOCUMENT.read_text()
    DOCUMENT.write_text(text.replace(table_in(text), table()))
