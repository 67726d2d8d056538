"""The three streaming detokenizers of mlx_lm over real tokenizers, loaded from disk."""

import pytest
from mlx_lm.tokenizer_utils import NaiveStreamingDetokenizer
from mlx_lm.tokenizer_utils import load as load_tokenizer

from tests.support.sentence_piece import write_sentence_piece
from tests.support.tiny_llama import make_tiny_llama
from tests.unit.text.reference import Vocabulary


@pytest.fixture(scope="session", params=["BPE", "SPM", "Naive"])
def vocabulary(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    folder = tmp_path_factory.mktemp("tokenizer")
    if request.param == "SPM":
        write_sentence_piece(folder)
    else:
        make_tiny_llama(folder)
    tokenizer = load_tokenizer(folder)
    if request.param == "Naive":
        return Vocabulary(tokenizer, lambda: NaiveStreamingDetokenizer(tokenizer._tokenizer))
    assert type(tokenizer.detokenizer).__name__ == f"{request.param}StreamingDetokenizer"
    return Vocabulary(tokenizer, lambda: tokenizer.detokenizer)
