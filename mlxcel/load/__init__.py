"""The load client behind `mlxcel bench`: streaming clients against any OpenAI-compatible server.

Knows no model and no engine: it speaks HTTP alone. `mlxcel.load.table` shows a report to people.
"""

from mlxcel.load.report import Failures, LoadReport, Percentiles
from mlxcel.load.run import run_load
from mlxcel.load.settings import LoadSettings

__all__ = ["Failures", "LoadReport", "LoadSettings", "Percentiles", "run_load"]
