"""What the tests of served models share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from openai import OpenAI

from tests.support.server_process import ServerProcess, serving
from tests.support.tiny_llama import make_tiny_llama
from tests.support.tiny_tokenizer import CALLING, THINKING, TOOLS_TEMPLATE
from tests.support.tools import SAID


@pytest.fixture(scope="session")
def tool_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose template knows tools and whose vocabulary has Qwen's markers."""
    return make_tiny_llama(
        tmp_path_factory.mktemp("models") / "tools", chat_template=TOOLS_TEMPLATE, markers=(*THINKING, *CALLING)
    )


@pytest.fixture(scope="session")
def tiny_server(tiny_model: Path) -> Iterator[ServerProcess]:
    """A server of the tiny model that tests share; nobody stops it."""
    with serving(tiny_model, "--alias", "tiny") as server:
        yield server


@pytest.fixture(scope="module")
def tool_server(tool_model: Path) -> Iterator[ServerProcess]:
    """A server of the tool model, for the tests of one file."""
    with serving(tool_model, "--alias", "tiny-llama") as server:
        yield server


@pytest.fixture(scope="module")
def saying_server(tool_model: Path) -> Iterator[ServerProcess]:
    """One whose model says what the tests of tools want to hear."""
    said = ("-m", "tests.support.saying_server", f"{SAID} Bye.")
    with serving(tool_model, "--alias", "tiny-llama", program=said) as server:
        yield server


@pytest.fixture(scope="session")
def narrow_server(tiny_model: Path) -> Iterator[ServerProcess]:
    """One that runs one sequence and lets three wait, and by default penalises repetition by 1.3."""
    limits = ("--max-batch-size", "1", "--max-queue-depth", "3")
    with serving(tiny_model, *limits, "--repetition-penalty", "1.3") as server:
        yield server


@pytest.fixture
def client(tiny_server: ServerProcess) -> Iterator[httpx.Client]:
    with tiny_server.client() as client:
        yield client


@pytest.fixture
def openai_client(tiny_server: ServerProcess) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{tiny_server.url}/v1", api_key="unused", max_retries=0, timeout=60) as client:
        yield client
