"""The three streaming detokenizers of mlx_lm over real tokenizers, loaded from disk."""

from pathlib import Path

import pytest
from mlx_lm.tokenizer_utils import NaiveStreamingDetokenizer
from mlx_lm.tokenizer_utils import load as load_tokenizer
from tokenizers import Tokenizer, decoders, models, normalizers

from tests.support.tiny_llama import make_tiny_llama
from tests.unit.text.reference import Vocabulary

SENTENCE_PIECE_DECODER = decoders.Sequence(
    [
        decoders.Replace("▁", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
        decoders.Strip(content=" ", left=1, right=0),
    ]
)


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


def write_sentence_piece(folder: Path) -> None:
    """A byte-fallback vocabulary of Llama 2's kind: bytes, the space mark, letters and a few words."""
    words = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁abcdehlorstwé", "▁h", "▁he"]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={word: index for index, word in enumerate(words)},
            merges=[("▁", "h"), ("▁h", "e")],
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = SENTENCE_PIECE_DECODER
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "eos_token": "<unk>"}'
    )
    (folder / "config.json").write_text('{"model_type": "llama"}')
