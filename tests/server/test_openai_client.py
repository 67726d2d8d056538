"""The official openai client against a real server: its calls, its streams, its error classes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionUserMessageParam

from tests.support.server_process import ServerProcess, serving, wait_for_metric

MODEL = "tiny-llama"
QUESTION = ChatCompletionUserMessageParam(role="user", content="Who may reproduce the Work?")
LONG = 1500


@pytest.fixture(scope="module")
def server(tiny_model: Path) -> Iterator[ServerProcess]:
    with serving(tiny_model, "--alias", MODEL) as server:
        yield server


@pytest.fixture
def client(server: ServerProcess) -> Iterator[OpenAI]:
    with connect(server) as client:
        yield client


def connect(server: ServerProcess) -> OpenAI:
    # No retries: a test must see each refusal, and none may wait for a second try.
    return OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0, timeout=60)


def complete(client: OpenAI, prompt: str, *, max_tokens: int = 12) -> str:
    return client.completions.create(model=MODEL, prompt=prompt, max_tokens=max_tokens, temperature=0).choices[0].text


def test_models_are_listed_and_found_by_id(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).object == "model"


def test_a_completion_has_text_a_reason_and_counts(client: OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt="The Licensor grants", max_tokens=12, temperature=0)
    (choice,) = answer.choices
    assert (answer.object, answer.model, choice.finish_reason) == ("text_completion", MODEL, "length")
    assert choice.text
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 12
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 12


def test_a_streamed_completion_is_the_whole_one_with_one_reason_and_the_same_counts(client: OpenAI) -> None:
    whole = client.completions.create(model=MODEL, prompt="The Licensor grants", max_tokens=40, temperature=0)
    with client.completions.create(
        model=MODEL,
        prompt="The Licensor grants",
        max_tokens=40,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    ) as stream:
        chunks = list(stream)
    choices = [choice for chunk in chunks for choice in chunk.choices]
    assert "".join(choice.text for choice in choices) == whole.choices[0].text
    reasons: list[str | None] = [choice.finish_reason for choice in choices]
    assert reasons == [None] * (len(choices) - 1) + ["length"]
    assert chunks[-1].choices == []
    assert [chunk.usage for chunk in chunks] == [None] * (len(chunks) - 1) + [whole.usage]


def test_a_streamed_chat_is_the_whole_one(client: OpenAI) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=[QUESTION], max_completion_tokens=20, temperature=0)
    with client.chat.completions.create(
        model=MODEL, messages=[QUESTION], max_completion_tokens=20, temperature=0, stream=True
    ) as stream:
        chunks = list(stream)
    message = whole.choices[0].message
    assert (message.role, whole.choices[0].finish_reason) == ("assistant", "length")
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == message.content
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == "length"
    assert {chunk.usage for chunk in chunks} == {None}, "usage came without being asked for"


def test_a_stop_string_ends_both_forms_before_it(client: OpenAI) -> None:
    whole = complete(client, "Derivative Works", max_tokens=40)
    stop = whole[15:18]
    expected = whole[: whole.index(stop)]
    answer = client.completions.create(
        model=MODEL, prompt="Derivative Works", max_tokens=40, temperature=0, stop=[stop]
    )
    with client.completions.create(
        model=MODEL, prompt="Derivative Works", max_tokens=40, temperature=0, stop=stop, stream=True
    ) as stream:
        choices = [choice for chunk in stream for choice in chunk.choices]
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == (expected, "stop")
    assert ("".join(choice.text for choice in choices), choices[-1].finish_reason) == (expected, "stop")


def test_eight_async_streams_at_once_say_what_each_says_alone(server: ServerProcess, client: OpenAI) -> None:
    prompts = [f"Section {number}. {'The Contributor ' * number}" for number in range(8)]
    alone = [complete(client, prompt, max_tokens=32) for prompt in prompts]

    async def stream_all() -> list[str]:
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0) as async_client:

            async def stream(prompt: str) -> str:
                async with await async_client.completions.create(
                    model=MODEL, prompt=prompt, max_tokens=32, temperature=0, stream=True
                ) as chunks:
                    return "".join([choice.text async for chunk in chunks for choice in chunk.choices])

            return await asyncio.gather(*map(stream, prompts))

    assert asyncio.run(stream_all()) == alone
    assert len(set(alone)) == 8


def test_a_bad_request_names_the_parameter_and_the_server_goes_on(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model=MODEL, prompt="x", temperature=-1)
    assert (refused.value.param, refused.value.type) == ("temperature", "invalid_request_error")
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model=MODEL, messages=[])
    assert refused.value.param == "messages"
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model=MODEL, prompt="x", max_tokens=10_000, stream=True)
    assert refused.value.code == "context_length_exceeded"
    assert complete(client, "x")


def test_an_unknown_model_is_not_found(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        client.completions.create(model="../gpt", prompt="x")
    assert (refused.value.code, refused.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt")
    assert complete(client, "x")


def test_a_full_queue_is_503_with_a_time_to_try_again_until_a_slot_is_free(tiny_model: Path) -> None:
    with (
        serving(tiny_model, "--alias", MODEL, "--max-batch-size", "1", "--max-queue-depth", "0") as server,
        connect(server) as client,
        server.client() as http,
    ):
        running = client.completions.create(
            model=MODEL, prompt="x", max_tokens=LONG, temperature=0, stream=True, extra_body={"ignore_eos": True}
        )
        next(iter(running))
        for stream in (False, True):
            with pytest.raises(openai.InternalServerError) as refused:
                client.completions.create(model=MODEL, prompt="y", stream=stream)
            assert (refused.value.status_code, refused.value.code) == (503, "server_busy")
            assert int(refused.value.response.headers["retry-after"]) >= 1
        running.close()
        wait_for_metric(http, "mlxcel_slots_used", 0)
        assert complete(client, "y")


def test_a_stream_that_the_server_gives_up_raises_and_never_just_ends(tiny_model: Path) -> None:
    with (
        serving(tiny_model, "--alias", MODEL, "--drain-timeout", "0") as server,
        connect(server) as client,
        client.completions.create(
            model=MODEL, prompt="x", max_tokens=LONG, temperature=0, stream=True, extra_body={"ignore_eos": True}
        ) as stream,
    ):
        next(iter(stream))
        server.process.send_signal(signal.SIGTERM)
        with pytest.raises(openai.APIError, match="server is stopping"):
            for _ in stream:
                pass
        assert server.wait() == 0
