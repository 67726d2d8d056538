"""The text of a token stream, with mlx_lm's own detokenizers: nothing lost, leaked or torn."""

from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from mlx_lm import load, stream_generate

from mlxcel.text import TextStream
from tests.support.tiny_llama import make_tiny_llama
from tests.unit.text.reference import Vocabulary, cut, whole_text

# Words, spaces where detokenizers trim them, characters of one to four bytes, joined and combined ones.
PARTS = [
    "he",
    "l",
    " ",
    "  ",
    "\n",
    ".",
    " ,",
    "é",
    "e\u0301",
    "中文",
    "👩‍👩‍👧",
    "🇫🇷",
    "🙂",
    "한",
    "\u200d",
    "\0",
]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=12).map("".join)
STOPS = st.lists(
    st.sampled_from(["l", " ", "\n", "文", "🙂", "e\u0301", "\u0301", "👧", "he", "\u200d👩", "."]),
    max_size=3,
)


def pieces_of(vocabulary: Vocabulary, tokens: Sequence[int], stops: Sequence[str]) -> tuple[list[str], str | None]:
    stream = TextStream(vocabulary.detokenizer(), stops)
    pieces = [stream.add(token) for token in tokens]
    return [*pieces, stream.finish()], stream.stopped_by


@given(text=TEXTS, stops=STOPS)
def test_text_comes_back_cut_at_the_first_stop(vocabulary: Vocabulary, text: str, stops: list[str]) -> None:
    tokens = vocabulary.encode(text)
    pieces, stopped_by = pieces_of(vocabulary, tokens, stops)
    assert ("".join(pieces), stopped_by) == cut(whole_text(vocabulary, tokens), stops)


@given(text=TEXTS)
def test_characters_split_over_tokens_are_shown_whole(vocabulary: Vocabulary, text: str) -> None:
    pieces, _ = pieces_of(vocabulary, vocabulary.encode(text), [])
    assert not any("\ufffd" in piece for piece in pieces)
    # Detokenizers may trim the space that begins a text; mlx_lm's BPE one shows the zero byte's stand-in.
    assert "".join(pieces).replace("Ā", "\0").lstrip(" ") == text.lstrip(" ")


@given(data=st.data(), stops=STOPS)
def test_any_tokens_give_the_text_of_mlx_lm(vocabulary: Vocabulary, data: st.DataObject, stops: list[str]) -> None:
    tokens = data.draw(st.lists(st.integers(0, vocabulary.size - 1), max_size=20))
    pieces, stopped_by = pieces_of(vocabulary, tokens, stops)
    assert ("".join(pieces), stopped_by) == cut(whole_text(vocabulary, tokens), stops)


@given(before=TEXTS, after=TEXTS)
def test_a_replacement_character_that_was_said_comes_through(vocabulary: Vocabulary, before: str, after: str) -> None:
    pieces, _ = pieces_of(vocabulary, vocabulary.encode(f"{before}\ufffd{after}"), [])
    assert "".join(pieces).count("\ufffd") == 1


def test_an_unfinished_character_waits_for_the_end(vocabulary: Vocabulary) -> None:
    *head, _ = vocabulary.encode("he🙂")
    pieces, _ = pieces_of(vocabulary, head, [])
    assert not any("\ufffd" in piece for piece in pieces[:-1])
    assert "".join(pieces).rstrip("\ufffd") == "he"
    assert pieces[-1].endswith("\ufffd")


def test_a_stop_that_the_final_flush_completes_is_found(vocabulary: Vocabulary) -> None:
    stream = TextStream(vocabulary.detokenizer(), ["l\ufffd"])
    *head, _ = vocabulary.encode("hel🙂")
    shown = "".join([stream.add(token) for token in head])
    before_the_end = (shown, stream.stopped_by)
    at_the_end = (shown + stream.finish(), stream.stopped_by)
    assert [before_the_end, at_the_end] == [("he", None), ("he", "l\ufffd")]
    assert [stream.add(head[0]), stream.finish(), stream.stopped_by] == ["", "", "l\ufffd"]


def test_streams_of_one_tokenizer_do_not_share_state(vocabulary: Vocabulary) -> None:
    texts = ["hello 🙂", "中文 he", "e\u0301 🇫🇷"]
    streams = [TextStream(vocabulary.detokenizer()) for _ in texts]
    tokens = [vocabulary.encode(text) for text in texts]
    shown = ["" for _ in texts]
    for step in range(max(map(len, tokens))):
        for row, stream in enumerate(streams):
            if step < len(tokens[row]):
                shown[row] += stream.add(tokens[row][step])
    assert [(text + stream.finish()).lstrip(" ") for text, stream in zip(shown, streams, strict=True)] == texts


def test_the_text_is_what_mlx_lm_streams(tmp_path: Path) -> None:
    model, tokenizer = load(str(make_tiny_llama(tmp_path, is_readable=False)))[:2]
    prompt = tokenizer.encode("Grant of Patent License.")
    answers = list(stream_generate(model, tokenizer, prompt, max_tokens=120))
    stream = TextStream(tokenizer.detokenizer)
    n_before_eos = len(answers) - (answers[-1].finish_reason == "stop")
    shown = "".join([stream.add(answer.token) for answer in answers[:n_before_eos]]) + stream.finish()
    assert shown == "".join(answer.text for answer in answers)
    assert "\ufffd" in shown, "the model should stammer in torn characters, or this proves little"
