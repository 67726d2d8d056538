"""The shapes of answers, for the document alone: the words themselves are put together in `wire`.

What is not named here may be there too: an answer's shape is what a client may rely on.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct


class PromptTokensDetails(Struct):
    cached_tokens: int


class Usage(Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


LogProbability = Annotated[float, Meta(le=0)]

FinishReason = Literal["stop", "length", "tool_calls"]


class CompletionLogprobs(Struct):
    """Side by side, one of each a token."""

    tokens: list[str]
    token_logprobs: list[LogProbability | None]
    top_logprobs: list[dict[str, LogProbability] | None]
    text_offset: list[Annotated[int, Meta(ge=0)]]


class CompletionChoice(Struct):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason


class Completion(Struct):
    """POST /v1/completions, whole."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage


class CallOfFunction(Struct):
    name: str
    arguments: str


class AnsweredCall(Struct):
    id: str
    type: Literal["function"]
    function: CallOfFunction


class AnswerMessage(Struct):
    role: Literal["assistant"]
    content: str | None
    reasoning_content: str = ""
    tool_calls: list[AnsweredCall] = []


class LikelyToken(Struct):
    token: str
    logprob: LogProbability
    bytes: list[Annotated[int, Meta(ge=0, le=255)]]


class ChosenToken(LikelyToken):
    top_logprobs: list[LikelyToken]


class ChatLogprobs(Struct):
    content: list[ChosenToken]


class ChatChoice(Struct):
    index: int
    message: AnswerMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason


class ChatCompletion(Struct):
    """POST /v1/chat/completions, whole."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class ContentBlock(Struct):
    type: Literal["text", "thinking", "tool_use"]


class MessageUsage(Struct):
    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int


class MessageAnswer(Struct):
    """POST /v1/messages, whole."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[ContentBlock]
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]
    stop_sequence: str | None
    usage: MessageUsage


class CountedTokens(Struct):
    input_tokens: int


class OutputItem(Struct):
    id: str
    type: Literal["message", "reasoning", "function_call"]
    status: Literal["in_progress", "completed", "incomplete"]


class ResponseObject(Struct):
    """One response of /v1/responses, finished or under way."""

    id: str
    object: Literal["response"]
    created_at: int
    model: str
    status: Literal["in_progress", "completed", "incomplete", "cancelled"]
    output: list[OutputItem]
    usage: dict[str, Any] | None


class InputItem(Struct):
    id: str
    type: Literal["message", "reasoning", "function_call", "function_call_output"]
    status: Literal["completed"]


class InputItems(Struct):
    """GET /v1/responses/{id}/input_items: a part of the list."""

    object: Literal["list"]
    data: list[InputItem]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedResponse(Struct):
    id: str
    object: Literal["response"]
    deleted: bool


class Model(Struct):
    """In OpenAI's shape and in Anthropic's at once."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    type: Literal["model"]
    display_name: str
    created_at: str


class Models(Struct):
    object: Literal["list"]
    data: list[Model]
    has_more: bool
    first_id: str
    last_id: str


class Piece(Struct):
    """A token and what it stands for: text, or bytes where it is a part of a character."""

    id: int
    piece: str | list[int]


class Tokens(Struct):
    """POST /tokenize: ids, or pieces where they were asked for. `max_model_len` is the context."""

    tokens: list[int | Piece]
    count: int
    max_model_len: int


class Text(Struct):
    """POST /detokenize: the same text by both names."""

    content: str
    prompt: str


class Prompt(Struct):
    prompt: str


class Slot(Struct):
    id: str
    state: Literal["queued", "prefilling", "decoding"]
    is_processing: bool
    priority: Literal["high", "normal", "low"]
    n_prompt: int
    n_prefilled: int
    n_decoded: int
    max_tokens: int


class Slots(Struct):
    """GET /slots. `n_slots` is null when unbounded; what the model says of itself is null while it loads."""

    served: str | None
    n_rows: int | None
    is_batching_exact: bool | None
    n_slots: int | None
    n_slots_used: int
    slots: list[Slot]


class Version(Struct):
    version: str
    packages: dict[str, str]


class Health(Struct):
    status: Literal["ok", "loading", "draining", "broken"]
    version: str


class ErrorDetails(Struct):
    message: str
    type: str
    param: str | None
    code: str


class Error(Struct):
    """OpenAI's error envelope."""

    error: ErrorDetails


class MessagesErrorDetails(Struct):
    type: str
    message: str
    code: str
    param: str = ""


class MessagesError(Struct):
    """Anthropic's error envelope, with `code` and `param` beside its own fields."""

    type: Literal["error"]
    error: MessagesErrorDetails
    request_id: str | None
