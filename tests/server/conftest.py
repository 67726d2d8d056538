"""What the tests of served chats share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tiny_llama import make_tiny_llama
from tests.support.tiny_tokenizer import CALLING, THINKING, TOOLS_TEMPLATE


@pytest.fixture(scope="session")
def tool_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose template knows tools and whose vocabulary has Qwen's markers."""
    return make_tiny_llama(
        tmp_path_factory.mktemp("models") / "tools", chat_template=TOOLS_TEMPLATE, markers=(*THINKING, *CALLING)
    )
