"""How many requests a server says it is working on, in the ways that known servers publish it."""

from __future__ import annotations

import re

from ..client import Client

GAUGES = (
    "mlxcel_slots_used",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "llamacpp:requests_processing",
    "llamacpp:requests_deferred",
)
_SAMPLE = re.compile(r"^(\S+?)(?:\{[^}]*\})? ([0-9.eE+-]+)$", re.MULTILINE)


async def requests_in_progress(client: Client) -> str:
    """The gauges and slots that are not at rest, in words; "" where none is, or none is published."""
    busy = []
    for name, value in _SAMPLE.findall(await client.get_text("/metrics") or ""):
        if name in GAUGES and float(value) > 0:
            busy.append(f"{name} {float(value):g}")
    slots = await client.get_json("/slots")
    if isinstance(slots, list):
        n_busy = sum(bool(slot.get("is_processing")) for slot in slots if isinstance(slot, dict))
        busy += [f"/slots: {n_busy} processing"] if n_busy else []
    return ", ".join(busy)
