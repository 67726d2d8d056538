"""GET /health, /metrics, /slots and /version: what the process says of itself, never through the engine thread."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mlxcel import __version__
from mlxcel.api.service import Phase, Service
from mlxcel.api.statuses import json_response
from mlxcel.core import Sequence, State
from mlxcel.errors import InputError
from mlxcel.metrics.page import page_of
from mlxcel.versions import installed_versions


def routes(service: Service) -> list[Route]:
    async def health(_: Request) -> Response:
        phase = service.phase
        body = {"status": "ok" if phase is Phase.READY else phase.value, "version": __version__}
        return json_response(body, status=200 if phase is Phase.READY else 503)

    async def metrics(request: Request) -> Response:
        page, media_type = page_of(service.metrics.registry, request.headers.get("accept", ""))
        return Response(page, headers={"content-type": media_type})

    async def slots(request: Request) -> Response:
        if _is_set(request, "fail_on_no_slot"):
            service.check_serving()
            service.check_room()
        engine, rows = service.engine, service.rows
        body = {
            "served": None if rows is None else str(rows),
            "n_rows": None if rows is None else rows.most,
            "is_batching_exact": None if rows is None else rows.is_exact,
            "n_slots": engine.stats.n_slots,
            "n_slots_used": engine.stats.n_slots_used,
            "slots": [_slot(sequence) for sequence in engine.sequences if sequence.state is not State.FINISHED],
        }
        return json_response(body)

    async def version(_: Request) -> Response:
        return json_response({"version": __version__, "packages": packages})

    packages = installed_versions()
    return [
        Route("/health", health),
        Route("/metrics", metrics),
        Route("/slots", slots),
        Route("/version", version),
    ]


def _slot(sequence: Sequence) -> dict[str, Any]:
    """One place that is taken."""
    n_prompt = len(sequence.request.prompt)
    # A prompt's last token is the first decode step's, and a sequence that starts over prefills its answer too.
    n_prefilled = n_prompt if sequence.state is State.DECODING else min(sequence.n_prefilled, n_prompt)
    return {
        "id": sequence.id,
        "state": sequence.state.value,
        "is_processing": sequence.state is not State.QUEUED,
        "priority": sequence.request.priority.value,
        "n_prompt": n_prompt,
        "n_prefilled": n_prefilled,
        "n_decoded": sequence.n_generated,
        "max_tokens": sequence.request.max_tokens,
    }


def _is_set(request: Request, name: str) -> bool:
    """Errors: InputError for a parameter that is neither on nor off."""
    value = request.query_params.get(name, "0")
    if value not in ("0", "1", "false", "true"):
        raise InputError(f"{name} = {value[:60]!r} is neither 0 nor 1; nothing was done", param=name)
    return value in ("1", "true")
