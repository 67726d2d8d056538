"""What /metrics says: measured once, spelled as we, llama-server's and vLLM's dashboards want it.

The engine thread writes plain numbers into an EngineStats, and the event loop's thread into a Traffic. Both are read
from the event loop without a lock, so a reading may be one step old and never blocks a step.
"""

from mlxcel.metrics.engine_stats import EngineStats
from mlxcel.metrics.server_metrics import ServerMetrics

__all__ = ["EngineStats", "ServerMetrics"]
