"""Who may ask: keys, hosts, and pages of other origins."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.support.raw_http import ask, head
from tests.support.server_process import ServerProcess, serving

KEYS = ("sk-first-0123456789", "second~key!")
FROM_ENVIRONMENT = "sk-third-of-the-environment"
GOOD = {"prompt": "a", "max_tokens": 1}
CHALLENGE = 'Bearer realm="mlxcel"'


@pytest.fixture(scope="module")
def keys_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.touch(mode=0o600)
    file.write_text(f"# for the editor\n{KEYS[0]}\n\n  {KEYS[1]}\n")
    return file


@pytest.fixture(scope="module")
def guarded(tiny_model: Path, keys_file: Path) -> Iterator[ServerProcess]:
    origins, names = "http://localhost:3000,https://chat.example.org", "llm.example.org, llm"
    flags = ["--api-keys-file", str(keys_file), "--cors-origins", origins, "--allowed-hosts", names]
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MLXCEL_API_KEYS", f" {FROM_ENVIRONMENT} ,")
            server = stack.enter_context(serving(tiny_model, *flags))
        yield server
        assert server.stop() == 0
        for key in (*KEYS, FROM_ENVIRONMENT):
            assert key not in server.text


@pytest.mark.parametrize("key", [*KEYS, FROM_ENVIRONMENT])
def test_each_key_is_taken_in_either_header(guarded: ServerProcess, key: str) -> None:
    with guarded.client() as client:
        for headers in ({"Authorization": f"Bearer {key}"}, {"authorization": f"bearer {key}"}, {"x-api-key": key}):
            assert client.post("/v1/completions", json=GOOD, headers=headers).status_code == 200
            assert client.get("/metrics", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Basic {KEYS[0]}"},
        {"Authorization": KEYS[0]},
        {"Authorization": f"Bearer {KEYS[0]}x"},
        {"Authorization": f"Bearer {KEYS[0][:-1]}"},
        {"Authorization": f"Bearer {KEYS[0].upper()}"},
        {"x-api-key": ""},
        {"x-api-key": "# for the editor"},
        {"x-api-key": f"{KEYS[0]},{KEYS[1]}"},
        {"x-api-key": "\xe9"},
        {"api-key": KEYS[0]},
    ],
    ids=str,
)
def test_without_a_known_key_every_path_but_the_open_ones_is_401(
    guarded: ServerProcess, headers: dict[str, str]
) -> None:
    sent = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    with guarded.client() as client:
        for method, path in [
            ("POST", "/v1/completions"),
            ("GET", "/v1/models"),
            ("GET", "/metrics"),
            ("GET", "/"),
            ("GET", "/nothing"),
            ("GET", "/health/"),
        ]:
            refused = client.request(method, path, headers=sent, json=GOOD if method == "POST" else None)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, CHALLENGE)
            assert refused.json()["error"]["code"] == "invalid_api_key"
        anthropic = client.post("/v1/messages", headers=sent, json={})
        assert anthropic.json()["error"]["type"] == "authentication_error"
        assert anthropic.json()["request_id"] == anthropic.headers["x-request-id"]
        assert client.get("/health", headers=sent).status_code == 200


def test_options_is_answered_before_the_key_is_asked_for(guarded: ServerProcess) -> None:
    answer = httpx.options(f"{guarded.url}/v1/completions")
    assert (answer.status_code, answer.headers["allow"]) == (204, "OPTIONS, POST")
    assert httpx.options(f"{guarded.url}/nothing").status_code == 404


def preflight(
    server: ServerProcess, origin: str, *, path: str = "/v1/chat/completions", method: str = "POST"
) -> httpx.Response:
    headers = {
        "Origin": origin,
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": "authorization, content-type, x-stainless-os",
    }
    return httpx.options(f"{server.url}{path}", headers=headers)


@pytest.mark.parametrize("origin", ["http://localhost:3000", "https://chat.example.org"])
def test_a_named_origin_may_ask_and_read_refusals_too(guarded: ServerProcess, origin: str) -> None:
    asked = preflight(guarded, origin)
    assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (200, origin)
    assert "POST" in asked.headers["access-control-allow-methods"]
    assert "x-stainless-os" in asked.headers["access-control-allow-headers"]
    refused = httpx.get(f"{guarded.url}/v1/models", headers={"Origin": origin})
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, origin)
    assert "x-request-id" in refused.headers["access-control-expose-headers"]


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:3001", "https://localhost:3000"])
def test_another_origin_may_neither_ask_nor_read(guarded: ServerProcess, origin: str) -> None:
    sent = {"Origin": origin, "Content-Type": "text/plain", "x-api-key": KEYS[0]}
    for answer in (
        preflight(guarded, origin),
        httpx.get(f"{guarded.url}/health", headers={"Origin": origin}),
        httpx.post(f"{guarded.url}/v1/completions", content=b'{"prompt": "a", "max_tokens": 1}', headers=sent),
    ):
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "foreign_origin")
        assert "access-control-allow-origin" not in answer.headers


def test_a_preflight_for_what_no_path_has_permits_nothing(guarded: ServerProcess) -> None:
    nowhere = preflight(guarded, "https://chat.example.org", path="/nothing")
    assert (nowhere.status_code, nowhere.json()["error"]["code"]) == (404, "not_found")
    for method in ("PUT", "DELETE"):
        unknown = preflight(guarded, "https://chat.example.org", method=method)
        assert (unknown.status_code, unknown.headers["allow"]) == (204, "OPTIONS, POST")
        assert "access-control-allow-methods" not in unknown.headers


def test_pages_of_the_host_that_a_request_names_are_our_own(guarded: ServerProcess) -> None:
    for host, origin, status in [
        ("llm:8080", "http://llm:8080", 200),
        ("LLM.example.org", "https://llm.example.org", 200),
        ("llm:8080", "http://llm:8081", 403),
        ("llm:8080", "http://llm", 403),
    ]:
        assert ask(guarded.url, head("GET /health HTTP/1.1", f"Origin: {origin}", host=host)).status == status


def test_without_named_origins_there_is_no_cors_and_without_keys_no_key_is_asked(tiny_model: Path) -> None:
    with serving(tiny_model, "--cors-origins", "*") as server:
        for origin in ("https://a.example", "null"):
            any_origin = httpx.get(f"{server.url}/v1/models", headers={"Origin": origin})
            assert (any_origin.status_code, any_origin.headers["access-control-allow-origin"]) == (200, "*")
    with serving(tiny_model) as server:
        own = httpx.get(f"{server.url}/v1/models", headers={"Origin": server.url})
        for answer, status in (
            (preflight(server, "https://a.example"), 403),
            (httpx.get(f"{server.url}/v1/models", headers={"Origin": "https://a.example"}), 403),
            (own, 200),
            (httpx.get(f"{server.url}/v1/models"), 200),
        ):
            assert answer.status_code == status
            assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize("host", ["llm.example.org", "LLM.example.org.:443", "llm:8080", "localhost", "127.0.0.1:1"])
def test_named_hosts_are_answered_to_beside_our_own(guarded: ServerProcess, host: str) -> None:
    assert ask(guarded.url, head("GET /health HTTP/1.1", host=host)).status == 200


@pytest.mark.parametrize("host", ["example.org", "x.llm.example.org", "llm.example.org.evil.example"])
def test_a_host_that_was_not_named_is_421_before_any_key_is_looked_at(guarded: ServerProcess, host: str) -> None:
    answer = ask(guarded.url, head("GET /v1/models HTTP/1.1", f"x-api-key: {KEYS[0]}", host=host))
    assert (answer.status, answer.error["code"]) == (421, "foreign_host")


def command(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mlxcel", *arguments],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **environ},
    )  # fmt: skip


def test_keys_that_others_may_read_end_a_start_and_a_check_with_78(tiny_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(KEYS[0])
    file.chmod(0o640)
    for done in (
        command("serve", str(tiny_model), "--port", "0", "--api-keys-file", str(file)),
        command("config", "check", MLXCEL_API_KEYS_FILE=str(file)),
    ):
        assert done.returncode == 78
        assert f"chmod 600 {file}" in done.stderr
        assert KEYS[0] not in done.stderr


def test_keys_of_the_environment_are_shown_nowhere() -> None:
    shown = command("config", "show", "--json", MLXCEL_API_KEYS=KEYS[0])
    assert shown.returncode == 0
    assert KEYS[0] not in shown.stdout + shown.stderr
    assert '"api_keys"' not in shown.stdout


def test_a_server_for_the_network_without_keys_warns(tiny_model: Path) -> None:
    with serving(tiny_model, "--host", "0.0.0.0") as server:
        port = server.url.rpartition(":")[2]
        assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
        assert "no keys are set" in server.text
