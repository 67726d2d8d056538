"""POST /v1/completions."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mlxcel.api.answer import answer
from mlxcel.api.intake import Intake, priority_of
from mlxcel.api.prepared import Prepared, new_logprobs
from mlxcel.api.sampling import check_ids, of_choice
from mlxcel.api.service import Service, now_s
from mlxcel.api.stream import unless_client_leaves
from mlxcel.api.wire.completions import CompletionFields
from mlxcel.api.wire.responses import CompletionShape
from mlxcel.model.tokenizer import Tokenizer
from mlxcel.text.reader import EchoReader, PlainReader


def routes(service: Service, intake: Intake) -> list[Route]:
    async def completions(request: Request) -> Response:
        fields, headers = await intake.fields(request, CompletionFields)
        priority = priority_of(request)
        path, text = fields.longest_text
        preparing = service.tokenize(lambda tokenizer: prepare(fields, tokenizer, service), prompt=text, param=path)
        groups = await unless_client_leaves(request.receive, preparing)
        choices = await service.generate(groups, fields, priority=priority)
        shape = CompletionShape(choices.id, now_s(), service.model.id, wants_usage=fields.wants_usage_chunk)
        return await answer(request, service.metrics, choices, shape, fields, headers)

    return [Route("/v1/completions", completions, methods=["POST"])]


def prepare(fields: CompletionFields, tokenizer: Tokenizer, service: Service) -> list[list[Prepared]]:
    """Each of the answers, those to one prompt in a group.

    Owner: the tokenizer's thread.
    Errors: InputError for a token id that is not in the vocabulary.
    """
    sampling = service.sampling(fields, tokenizer)

    def choice(prompt: list[int], path: str, echoed: str | None, index: int) -> Prepared:
        return Prepared(
            prompt,
            of_choice(sampling, index),
            reader=PlainReader() if echoed is None else EchoReader(echoed),
            logprobs=new_logprobs(sampling, tokenizer, echoed or ""),
            echoes=echoed is not None,
            path=path,
        )

    groups = []
    for path, sent in fields.prompts.items():
        if isinstance(sent, str):
            prompt, text = tokenizer.encode(sent), sent
        else:
            check_ids(sent, service.n_vocabulary, path)
            prompt, text = sent, tokenizer.vocabulary.text_of(sent) if fields.echo else ""
        echoed = text if fields.echo else None
        groups.append([choice(prompt, path, echoed, index) for index in range(fields.n_choices)])
    return groups
