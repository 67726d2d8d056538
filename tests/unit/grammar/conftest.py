from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from mlxcel.grammar.compiler import GrammarCompiler

EOS_IDS = frozenset({0, 2})


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny_model: Path) -> Tokenizer:
    return Tokenizer.from_file(str(tiny_model / "tokenizer.json"))


@pytest.fixture(scope="session")
def compiler(tiny_tokenizer: Tokenizer) -> GrammarCompiler:
    # Wider than the vocabulary, as the logits of many models are.
    return GrammarCompiler(tiny_tokenizer.to_str(), n_vocabulary=1088, eos_ids=EOS_IDS)
