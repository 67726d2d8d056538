from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxcel.cli.commands import app
from mlxcel.config.settings import DEFAULT_QUEUE_DEPTH, ServeSettings
from mlxcel.config.sources import bytes_of, config_path, default_models_dir, read_sources, resolve
from mlxcel.errors import ConfigError

KEYS = [field.name for field in dataclasses.fields(ServeSettings)]
NOWHERE = {"HOME": "/nonexistent"}


def refusal_of(
    flags: dict[str, Any] | None = None, environ: dict[str, str] | None = None, file: Path | None = None
) -> ConfigError:
    with pytest.raises(ConfigError) as refusal:
        resolve(flags or {}, {**NOWHERE, **(environ or {})}, file)
    assert "nothing was started" in refusal.value.message
    return refusal.value


def test_without_any_source_every_key_has_its_default() -> None:
    resolved = resolve({}, NOWHERE)
    assert resolved.settings == ServeSettings(models_dir=str(default_models_dir(NOWHERE)))
    assert resolved.origins == dict.fromkeys(KEYS, "default")


def test_flags_come_before_the_environment_before_the_file_before_defaults(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('port = 1\nhost = "file"\nalias = "file"\nmax_batch_size = 5\n')
    environ = {"MLXCEL_PORT": "2", "MLXCEL_HOST": "environment", **NOWHERE}
    resolved = resolve({"port": 3, "host": None}, environ, file)
    made, origins = resolved.settings, resolved.origins
    assert (made.port, made.host, made.alias, made.max_batch_size) == (3, "environment", "file", 5)
    assert (origins["port"], origins["host"]) == ("--port", "MLXCEL_HOST")
    assert origins["alias"] == origins["max_batch_size"] == str(file) and origins["strict"] == "default"


def test_a_wrong_value_is_refused_even_where_another_source_would_win(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("port = -1\n")
    assert str(file) in refusal_of({"port": 3}, file=file).message


def test_every_fault_is_named_at_once_one_a_line(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('port = -1\nprot = 1\nhost = "here"\n')
    refusal = refusal_of({"top_p": 2}, {"MLXCEL_STRICT": "maybe"}, file)
    lines = refusal.message.splitlines()
    assert [line.split()[0] for line in lines] == ["port", "prot", "strict", "top_p"] and refusal.param == "port"
    resolved, faults = read_sources({"top_p": 2}, {**NOWHERE, "MLXCEL_STRICT": "maybe"}, file)
    assert [fault.message for fault in faults] == lines
    assert (resolved.settings.host, resolved.settings.port, resolved.settings.top_p) == ("here", 8080, None)
    assert (resolved.origins["host"], resolved.origins["port"]) == (str(file), "default")


def test_a_file_that_cannot_be_read_hides_no_fault_of_another_source(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("port =\n")
    resolved, faults = read_sources({"alias": "mine", "port": "x"}, NOWHERE, file)
    assert [fault.param for fault in faults] == [None, "port"] and str(file) in faults[0].message
    assert resolved.settings.alias == "mine"


def test_the_file_is_found_by_variable_by_xdg_or_in_the_home_folder(tmp_path: Path) -> None:
    assert config_path({"MLXCEL_CONFIG": "/a/b.toml", "HOME": "/h"}) == Path("/a/b.toml")
    assert config_path({"XDG_CONFIG_HOME": "/x", "HOME": "/h"}) == Path("/x/mlxcel/config.toml")
    assert config_path({"HOME": "/h"}) == Path("/h/.config/mlxcel/config.toml")
    (tmp_path / "mlxcel").mkdir()
    (tmp_path / "mlxcel" / "config.toml").write_text("port = 7")
    assert resolve({}, {"XDG_CONFIG_HOME": str(tmp_path)}).settings.port == 7
    named = tmp_path / "named.toml"
    named.write_text("port = 8")
    assert resolve({}, {"XDG_CONFIG_HOME": str(tmp_path), "MLXCEL_CONFIG": str(named)}).settings.port == 8


def test_a_file_that_is_named_must_exist_and_one_that_is_not_may_be_missing(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    assert str(missing) in refusal_of(file=missing).message
    assert str(missing) in refusal_of(environ={"MLXCEL_CONFIG": str(missing)}).message
    assert set(resolve({}, {"XDG_CONFIG_HOME": str(tmp_path), "MLXCEL_CONFIG": ""}).origins.values()) == {"default"}
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"port = ", b"port = 1\nport = 2", b"\xff\xfe", b"port 8080"])
def test_a_broken_file_is_refused_by_name_and_left_alone(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(content)
    assert str(file) in refusal_of(file=file).message
    assert file.read_bytes() == content and list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("flags", "environ", "toml", "origin"),
    [
        ({"prot": 1}, {}, "", "--prot"),
        ({}, {"MLXCEL_PROT": "1"}, "", "MLXCEL_PROT"),
        ({}, {}, "prot = 1", "config.toml"),
        ({}, {}, "[prot]\nx = 1", "config.toml"),
    ],
)
def test_an_unknown_key_is_refused_with_its_origin_and_the_near_one(
    tmp_path: Path, flags: dict[str, Any], environ: dict[str, str], toml: str, origin: str
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(toml)
    refusal = refusal_of(flags, environ, file)
    assert refusal.param == "prot" and origin in refusal.message and "Did you mean port?" in refusal.message
    assert "config show" in refusal_of({"zzzzzz": 1}).message


def test_every_number_has_a_lowest_and_a_highest_value() -> None:
    for field in dataclasses.fields(ServeSettings):
        if re.match("int|float", str(field.type)):
            assert None not in (field.metadata["at_least"], field.metadata["at_most"]), field.name


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ('no_batch = "yes"', "true or false"),
        ('strict = "true"', "true or false"),
        ("strict = 1", "true or false"),
        ('port = "8080"', "a whole number"),
        ('max_queue_depth = "5"', "a whole number"),
        ('drain_timeout_s = "5"', "a number"),
        ('cors_origins = "https://a.example,https://b.example"', "a list of origins"),
        ("host = 5", "a text"),
    ],
)
def test_a_value_in_the_file_has_the_type_that_the_file_can_give_it(tmp_path: Path, line: str, wanted: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(line)
    refusal = refusal_of(file=file)
    assert refusal.param == line.split()[0] and f"(from {file}) is not {wanted}" in refusal.message


def test_sizes_and_words_are_text_in_the_file_too(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('max_body_bytes = "1MiB"\nmax_queue_depth = "unbounded"\nmlx_cache_bytes = "auto"\n')
    made = resolve({}, NOWHERE, file).settings
    assert (made.max_body_bytes, made.max_queue_depth, made.mlx_cache_bytes) == (2**20, None, "auto")


def test_a_config_file_that_is_a_pipe_or_a_device_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        refusal = refusal_of(file=place)
        assert refusal.message.startswith(f"{place} cannot be read: ")
    assert "no regular file" in refusal_of(file=tmp_path / "pipe").message
    assert refusal_of(environ={"MLXCEL_CONFIG": str(tmp_path / "pipe")}).message


WRONG: list[tuple[str, list[Any]]] = [
    ("port", ["x", "", "80.5", -1, 65536, True, "true", [1], "nan", "inf", "1e400", "9" * 400, 10**400]),
    ("max_batch_size", [10**22, 4097, 0, -1, "0", 1.5, False, "unbounded", float("nan")]),
    ("max_queue_depth", [10**6 + 1, -1, "-1", "many", "unlimited", 0.5, True]),
    ("prefill_chunk_size", [2**31, -1, "auto", 2.5]),
    (
        "kv_cache_budget_bytes",
        ["1025TiB", 0, "0", "4XB", "-1GiB", "1.0000001KiB", "9" * 400 + "T", "1e400", True],
    ),
    ("max_body_bytes", ["1025TiB", 0, "unbounded", "auto", "-5"]),
    ("temperature", [-0.1, 100.5, "nan", "inf", float("inf"), "warm", True]),
    ("top_p", [-0.1, 1.01, "x"]),
    ("top_k", [-1, 2**31, 0.5]),
    ("min_p", [-1, 2]),
    ("no_batch", ["maybe", "", 2, 0.0, "None"]),
    ("strict", ["on!", 1]),
    ("host", ["", 5, True]),
    ("alias", ["", 5]),
    ("drain_timeout_s", [1e300, "1e300", -1, "soon", "nan"]),
    ("step_timeout_s", [1e308, 366 * 86400 + 1, 0, 0.05]),
]


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in WRONG for value in values])
def test_a_value_of_the_wrong_kind_or_size_is_refused_with_key_value_and_origin(key: str, value: Any) -> None:
    refusal = refusal_of({key: value})
    assert refusal.param == key and refusal.message.startswith(f"{key} = ") and "(from --" in refusal.message
    if isinstance(value, str):
        name = f"MLXCEL_{key.upper()}"
        assert f"(from {name})" in refusal_of(environ={name: value}).message


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("port", "0", 0),
        ("port", 65535, 65535),
        ("no_batch", "TRUE", True),
        ("no_batch", "0", False),
        ("strict", "yes", True),
        ("max_queue_depth", "unbounded", None),
        ("max_queue_depth", "0", 0),
        ("max_queue_depth", "auto", "auto"),
        ("kv_cache_budget_bytes", "unbounded", None),
        ("kv_cache_budget_bytes", "auto", "auto"),
        ("kv_cache_budget_bytes", "4GiB", 4 * 2**30),
        ("kv_cache_budget_bytes", "512M", 512_000_000),
        ("kv_cache_budget_bytes", "1.5 GiB", 3 * 2**29),
        ("kv_cache_budget_bytes", "64kb", 64_000),
        ("kv_cache_budget_bytes", "2TiB", 2**41),
        ("kv_cache_budget_bytes", 1, 1),
        ("max_body_bytes", "8MiB", 8 * 2**20),
        ("temperature", 0, 0.0),
        ("temperature", "1e-3", 0.001),
        ("top_k", 2**31 - 1, 2**31 - 1),
        ("prefill_chunk_size", 0, 0),
        ("drain_timeout_s", "0", 0.0),
    ],
)
def test_a_value_is_converted_to_its_keys_type(key: str, value: Any, expected: Any) -> None:
    got = getattr(resolve({key: value}, NOWHERE).settings, key)
    assert got == expected and type(got) is type(expected)


@settings(max_examples=150, deadline=None)
@given(key=st.sampled_from(KEYS), value=st.text() | st.floats() | st.integers() | st.booleans() | st.none())
def test_any_value_becomes_a_setting_or_a_refusal(key: str, value: Any) -> None:
    try:
        resolved = resolve({key: value}, NOWHERE)
    except ConfigError as refusal:
        assert refusal.param == key
    else:
        assert resolved.origins[key] == ("default" if value is None else flag_of(key))


def test_the_models_folder_is_the_users_own_unless_it_is_named() -> None:
    def models_dir(value: str | None = None, **environ: str) -> str:
        return resolve({"models_dir": value}, {**NOWHERE, "HOME": "/home/me", **environ}).settings.models_dir

    assert models_dir() == "/home/me/.local/share/mlxcel/models"
    assert models_dir(XDG_DATA_HOME="/data") == "/data/mlxcel/models"
    assert models_dir(MLXCEL_MODELS_DIR="~/models", XDG_DATA_HOME="/data") == "/home/me/models"
    assert models_dir("/srv/models", MLXCEL_MODELS_DIR="~/models") == "/srv/models"


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        ("16GiB", 16 * 2**30),
        ("1.5kB", 1500),
        ("7", 7),
        ("0", 0),
        ("-1", None),
        ("much", None),
        ("", None),
    ],
)
def test_a_size_is_read_as_people_write_it(text: str, n_bytes: int | None) -> None:
    assert bytes_of(text) == n_bytes


def flag_of(key: str) -> str:
    return "--" + re.sub(r"_s$|(?<=budget)_bytes$", "", key).replace("_", "-")


def test_an_origin_is_a_flag_that_serve_has() -> None:
    flags = {option for param in typer.main.get_command(app).commands["serve"].params for option in param.opts}  # type: ignore[attr-defined]
    assert {flag_of(key) for key in KEYS if key != "model"} <= flags


@pytest.mark.parametrize(
    ("flags", "rows", "depth"),
    [
        ({}, 32, DEFAULT_QUEUE_DEPTH),
        ({"no_batch": True}, 1, None),
        ({"no_batch": True, "max_batch_size": 8}, 1, None),
        ({"no_batch": True, "max_queue_depth": "8"}, 1, 8),
        ({"no_batch": True, "max_queue_depth": 0}, 1, 0),
        ({"max_queue_depth": "unbounded", "max_batch_size": 4}, 4, None),
    ],
)
def test_rows_and_queue_depth_follow_from_no_batch(flags: dict[str, Any], rows: int, depth: int | None) -> None:
    made = resolve(flags, NOWHERE).settings
    assert (made.batch_rows, made.queue_depth) == (rows, depth)


def test_several_texts_are_a_list_in_a_file_and_apart_by_commas_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('allowed_hosts = ["a.example", "[fe80::1]"]\ncors_origins = []\n')
    resolved = resolve({"cors_origins": "https://a.example, http://localhost:3000,*"}, {}, file)
    assert resolved.settings.allowed_hosts == ("a.example", "[fe80::1]")
    assert resolved.settings.cors_origins == ("https://a.example", "http://localhost:3000", "*")
    assert resolve({}, {"MLXCEL_ALLOWED_HOSTS": "*"}).settings.allowed_hosts == ("*",)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cors_origins", "https://a.example/"),
        ("cors_origins", "a.example"),
        ("cors_origins", "https://a.example/x"),
        ("cors_origins", "https://a.example,,https://b.example"),
        ("cors_origins", 7),
        ("cors_origins", ["https://a.example", 7]),
        ("allowed_hosts", "a.example:80"),
        ("allowed_hosts", "https://a.example"),
        ("allowed_hosts", "*.a.example"),
        ("log_format", "yaml"),
        ("request_timeout_s", 0),
        ("request_read_timeout_s", -1),
    ],
)
def test_a_name_or_a_bound_that_could_never_work_is_refused(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{key} = .* is not") as refused:
        resolve({key: value}, {})
    assert refused.value.param == key
