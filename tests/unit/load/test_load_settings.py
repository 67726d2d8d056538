"""What a load run refuses before anything is sent, and what it sends."""

from typing import Any

import pytest

from mlxcel.errors import InputError
from mlxcel.load import LoadSettings
from mlxcel.load.prompts import Prompts


@pytest.mark.parametrize(
    ("param", "values"),
    [
        ("url", ["127.0.0.1:8080", "ftp://h", "http://", "http://h:x", "http://h/?q=1", "http://h/a b"]),
        ("n_clients", [0, -1]),
        ("n_requests", [0, 10_000_000]),
        ("prompt_words", [0]),
        ("prompt_tokens", [0]),
        ("max_tokens", [0]),
        ("endpoint", ["embeddings"]),
        ("api_key", ["a\r\nX: y", "clé"]),
        ("ramp_s", [-1.0, float("nan")]),
        ("request_timeout_s", [0.0, float("inf")]),
        ("total_timeout_s", [0.0]),
    ],
)
def test_a_wrong_setting_is_refused_by_name(param: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(InputError) as refused:
            LoadSettings(**{"url": "http://127.0.0.1:1", param: value})
        assert refused.value.param == param


def test_the_url_may_end_in_v1_or_lie_under_a_prefix() -> None:
    paths = {
        "http://h": "/v1/completions",
        "http://h:81/": "/v1/completions",
        "http://h/v1/": "/v1/completions",
        "https://h/api/v1": "/api/v1/completions",
    }
    assert {url: LoadSettings(url=url).address().path for url in paths} == paths
    assert LoadSettings(url="https://[::1]", endpoint="chat").address().path == "/v1/chat/completions"
    assert LoadSettings(url="https://[::1]").address().port == 443


def test_a_key_is_not_shown() -> None:
    assert "s3cret" not in repr(LoadSettings(url="http://h", api_key="s3cret"))


def test_prompts_differ_from_their_first_words_on_and_repeat_with_the_seed() -> None:
    first, second = Prompts(seed=7), Prompts(seed=7)
    prompts = [first.draw(number, n_words=5) for number in range(3000)]
    assert prompts == [second.draw(number, n_words=5) for number in range(3000)]
    assert len({tuple(prompt.split()[:2]) for prompt in prompts}) == len(prompts)
    assert {len(prompt.split()) for prompt in prompts} == {5}
    assert prompts[0].split()[0] != prompts[1].split()[0]
    assert prompts[:5] != [Prompts(seed=8).draw(number, n_words=5) for number in range(5)]
    assert len(Prompts(seed=7).draw(2999, n_words=1).split()) == 1
