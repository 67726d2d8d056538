"""A conversation becomes choices: the prompt, the grammar that each answer must follow, and its reader.

Every chat API comes through here. It knows no HTTP and no API's words.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from starlette.types import Receive

from mlxcel.api.choices import Choices
from mlxcel.api.prepared import Prepared, new_logprobs
from mlxcel.api.sampling import of_choice
from mlxcel.api.service import Service
from mlxcel.api.stream import unless_client_leaves
from mlxcel.api.wire.conversation import Conversation, Tool
from mlxcel.api.wire.requests import GenerationFields
from mlxcel.api.wire.toolless import without_tools
from mlxcel.core import Constraint, Priority
from mlxcel.errors import InputError
from mlxcel.grammar.compiler import Grammars
from mlxcel.grammar.schema import NO_ARGUMENTS, CallWords, calls_grammar, json_grammar, schema_text
from mlxcel.grammar.thinking import AfterThinking
from mlxcel.model.dialect import Dialect
from mlxcel.model.tokenizer import Message, Tokenizer
from mlxcel.text.calls import CallForm, ForcedCalls
from mlxcel.text.reader import MessageReader, Reader


async def converse(
    receive: Receive, service: Service, conversation: Conversation, fields: GenerationFields, priority: Priority
) -> Choices:
    """Ask the model; returns once the engine has taken the request.

    Errors: InputError for tools, a schema or messages that this model cannot serve, and those of `generate`;
    ClientDisconnect if the client leaves before its prompt is ready.
    """
    preparing = service.tokenize(
        lambda tokenizer: prepare(conversation, fields, tokenizer, service),
        prompt=conversation.text,
        param=fields.prompt_field,
    )
    group = await unless_client_leaves(receive, preparing)
    return await service.generate([group], fields, priority=priority)


def prepare(
    conversation: Conversation, fields: GenerationFields, tokenizer: Tokenizer, service: Service
) -> list[Prepared]:
    """Each of the answers to a conversation.

    Owner: the tokenizer's thread.
    Errors: InputError, as `converse`.
    """
    prompt = encode(conversation, tokenizer)
    markers = tokenizer.dialect.markers
    is_thinking = tokenizer.ends_with(prompt, markers.think_start)
    has_thought = tokenizer.ends_with(prompt, markers.think_end)
    may_think = tokenizer.dialect.thinks and not has_thought and (is_thinking or conversation.may_think)
    sampling = service.sampling(fields, tokenizer)

    def choice(index: int) -> Prepared:
        constraint = _constraint(conversation, tokenizer.dialect, service.grammars)
        if constraint is not None and may_think:
            constraint = _after_thinking(constraint, tokenizer.dialect, service.grammars, is_open=is_thinking)
        return Prepared(
            prompt,
            of_choice(sampling, index),
            constraint,
            _reader(conversation, tokenizer.dialect, is_thinking=is_thinking),
            new_logprobs(sampling, tokenizer),
        )

    return [choice(index) for index in range(fields.n_choices)]


def encode(conversation: Conversation, tokenizer: Tokenizer) -> list[int]:
    """The conversation's token ids, with the tools that are offered.

    Errors: InputError where the model cannot be told of the tools, or its template refuses the messages, or text of
    theirs cannot be kept apart from control tokens.
    """
    with _naming_variables(conversation, tokenizer):
        return tokenizer.encode_chat(*_shown(conversation, tokenizer.dialect), written=conversation.written)


def render(conversation: Conversation, tokenizer: Tokenizer) -> str:
    """The text that the conversation's token ids stand for.

    Errors: InputError where the model cannot be told of the tools, or its template refuses the messages.
    """
    with _naming_variables(conversation, tokenizer):
        return tokenizer.render_chat(*_shown(conversation, tokenizer.dialect))


@contextmanager
def _naming_variables(conversation: Conversation, tokenizer: Tokenizer) -> Iterator[None]:
    """A template's refusal names the field of its variables where it takes the same messages without them."""
    try:
        yield
    except InputError as error:
        if error.code == "template_refused" and conversation.template_kwargs:
            render(replace(conversation, template_kwargs={}), tokenizer)
            path = conversation.template_kwargs_path
            raise InputError(f"{error.message}. It takes them without {path}", param=path, code=error.code) from error
        raise


def _shown(
    conversation: Conversation, dialect: Dialect
) -> tuple[Sequence[Message], dict[str, Any], Sequence[dict[str, Any]]]:
    """What the template gets: messages, variables, and the tools that it can show."""
    tools = [tool.template_form for tool in conversation.offered_tools]
    if tools and not conversation.forces_calls and not (dialect.knows_tools and dialect.parse_call):
        reason = "mlx_lm cannot read this model's calls" if dialect.knows_tools else "its chat template knows no tools"
        raise InputError(
            f"this model cannot choose to call tools: {reason}; nothing was done. Force a call, with a "
            "tool_choice that requires one",
            param="tools",
            code="unsupported_value",
        )
    messages, template_kwargs = conversation.messages, dict(conversation.template_kwargs)
    if not dialect.knows_tools:
        return without_tools(messages, tools), template_kwargs, []
    return messages, template_kwargs, tools


def _constraint(conversation: Conversation, dialect: Dialect, grammars: Grammars) -> Constraint | None:
    if conversation.forces_calls:
        return _forced_calls(conversation, _call_form(dialect), grammars)
    if conversation.answer is None:
        return None
    if conversation.offered_tools:
        raise InputError(
            f"{conversation.answer.path} leaves no room for calls, and the tools are offered; nothing was done. "
            "Leave one of them out, or forbid calls with tool_choice",
            param=conversation.answer.path,
            code="unsupported_value",
        )
    path = conversation.answer.path
    return grammars.constraint(json_grammar(schema_text(conversation.answer.schema, path)), param=path)


def _forced_calls(conversation: Conversation, form: CallForm, grammars: Grammars) -> Constraint:
    tools = conversation.callable_tools
    schemas = [(tool.name, schema_text(_arguments_schema(tool), tool.path)) for tool in tools]
    for tool, (_, schema) in zip(tools, schemas, strict=True):
        # Each by itself first, so that an error names its own tool.
        grammars.constraint(json_grammar(schema), param=tool.path)
    words = CallWords(*(grammars.literal(text) for text in (form.opening, form.between, form.closing)))
    is_parallel = conversation.is_parallel and conversation.forced_tool is None
    return grammars.constraint(calls_grammar(schemas, words, is_parallel=is_parallel), param="tools")


def _arguments_schema(tool: Tool) -> Any:
    schema = tool.parameters
    if schema is None or schema == {}:
        return NO_ARGUMENTS
    if not isinstance(schema, dict):
        return schema  # refused where it is read
    if schema.get("type", "object") != "object":
        raise InputError(
            f"{tool.path}.type = {schema['type']!r}: a function's arguments are an object; nothing was done",
            param=tool.path,
        )
    return {"type": "object", **schema}


def _call_form(dialect: Dialect) -> CallForm:
    """How calls are written under a grammar: as the model itself would, where it was shown the tools."""
    return dialect.call_form if dialect.knows_tools else CallForm()


def _after_thinking(constraint: Constraint, dialect: Dialect, grammars: Grammars, *, is_open: bool) -> Constraint:
    return AfterThinking(
        constraint,
        start_ids=dialect.think_start_ids,
        end_ids=dialect.think_end_ids,
        eos_ids=grammars.eos_ids,
        n_vocabulary=grammars.n_vocabulary,
        is_open=is_open,
    )


def _reader(conversation: Conversation, dialect: Dialect, *, is_thinking: bool) -> Reader:
    # What a grammar makes is data: it may spell markers.
    is_constrained = conversation.forces_calls or conversation.answer is not None
    silent = replace(dialect.markers, call_start=None, call_end=None, thinks_first=is_constrained)
    if conversation.forces_calls:
        forced = ForcedCalls(_call_form(dialect), _new_call_id)
        return MessageReader(silent, new_id=_new_call_id, is_thinking=is_thinking, forced=forced)
    tools = _template_forms(conversation.offered_tools)
    if not tools:
        return MessageReader(silent, new_id=_new_call_id, is_thinking=is_thinking)
    return MessageReader(
        dialect.markers,
        new_id=_new_call_id,
        is_thinking=is_thinking,
        parse=dialect.parser(tools),
        is_parallel=conversation.is_parallel,
    )


def _template_forms(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    return [tool.template_form for tool in tools]


def _new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"
