"""POST /v1/embeddings: refused, since every model that mlx_lm loads continues text."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mlxcel.api.intake import Intake
from mlxcel.api.wire.embeddings import EmbeddingFields
from mlxcel.errors import InputError


def routes(intake: Intake) -> list[Route]:
    async def embeddings(request: Request) -> Response:
        await intake.fields(request, EmbeddingFields)
        raise InputError(
            "the model is no embedder: it was made to continue text, and a mean of its hidden states is no "
            "embedding; nothing was computed. Ask a server of an embedding model",
            param="model",
            code="unsupported_model",
        )

    return [Route("/v1/embeddings", embeddings, methods=["POST"])]
