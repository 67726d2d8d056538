"""The commands and their flags."""

from __future__ import annotations

import json
import os
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, Optional

import typer

from mlxcel.cli.columns import show
from mlxcel.cli.configuring import config_app
from mlxcel.cli.exits import leave, say_json
from mlxcel.cli.models import models_app
from mlxcel.cli.options import ConfigOption, JsonOption, ModelArgument, ModelsDirOption
from mlxcel.cli.servicing import service_app
from mlxcel.cli.systemwide import ForSystemOption, PrefixOption, become_owner_of, check_readable, system_settings
from mlxcel.config.keys import read_keys
from mlxcel.config.settings import ServeSettings
from mlxcel.config.sources import all_of, config_path, read_sources, resolve
from mlxcel.errors import InputError

app = typer.Typer(
    name="mlxcel",
    help="An OpenAI-compatible server for MLX language models.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(models_app)
app.add_typer(config_app, name="config")
app.add_typer(service_app, name="service")

PromptOption = Annotated[str, typer.Option("--prompt", "-p", help="Text to go on from; - reads stdin.")]
MaxTokensOption = Annotated[Optional[int], typer.Option(min=1, help="Most new tokens.")]
TemperatureOption = Annotated[Optional[float], typer.Option(min=0, help="0 is greedy.")]
TopPOption = Annotated[Optional[float], typer.Option(min=0, max=1)]
TopKOption = Annotated[Optional[int], typer.Option(min=0)]
MinPOption = Annotated[Optional[float], typer.Option(min=0, max=1)]
TypicalPOption = Annotated[Optional[float], typer.Option(min=0, max=1)]
RepetitionPenaltyOption = Annotated[Optional[float], typer.Option(help="Above 1 penalises tokens seen lately.")]
SeedOption = Annotated[Optional[int], typer.Option(min=0, max=2**63 - 1)]


@app.command()
def serve(
    model: ModelArgument = None,
    host: Annotated[Optional[str], typer.Option(help="Address to listen on.")] = None,
    port: Annotated[Optional[int], typer.Option(help="Port; 0 picks a free one.")] = None,
    alias: Annotated[Optional[str], typer.Option(help="Model id for clients.")] = None,
    no_batch: Annotated[Optional[bool], typer.Option("--no-batch", help="One sequence at a time.")] = None,
    max_batch_size: Annotated[Optional[int], typer.Option(help="Sequences that run at once.")] = None,
    max_queue_depth: Annotated[
        Optional[str], typer.Option(help="Requests that may wait: a number, or unbounded.")
    ] = None,
    prefill_chunk_size: Annotated[
        Optional[int], typer.Option(help="Most prompt tokens in one turn; 0 is a whole prompt.")
    ] = None,
    kv_cache_budget: Annotated[
        Optional[str], typer.Option(help="Memory for keys and values: 4GiB, auto, or unbounded.")
    ] = None,
    prefix_cache_bytes: Annotated[
        Optional[str], typer.Option(help="Of that, most for prompts that may come again: 1GiB, auto, or 0.")
    ] = None,
    prefix_cache_ttl: Annotated[
        Optional[float], typer.Option(help="Seconds to keep a prompt that nobody asks.")
    ] = None,
    mlx_cache_bytes: Annotated[
        Optional[str], typer.Option(help="Freed memory that MLX may keep: 1GiB, or auto.")
    ] = None,
    temperature: TemperatureOption = None,
    top_p: TopPOption = None,
    top_k: TopKOption = None,
    min_p: MinPOption = None,
    typical_p: TypicalPOption = None,
    repetition_penalty: RepetitionPenaltyOption = None,
    max_body_bytes: Annotated[Optional[str], typer.Option(help="Largest request body.")] = None,
    strict: Annotated[Optional[bool], typer.Option("--strict", help="400 for unknown fields.")] = None,
    api_keys_file: Annotated[Optional[str], typer.Option(help="File of the keys that clients must send.")] = None,
    allowed_hosts: Annotated[Optional[str], typer.Option(help="More Host names to answer to, or *.")] = None,
    cors_origins: Annotated[Optional[str], typer.Option(help="Origins whose pages may ask, or *.")] = None,
    request_read_timeout: Annotated[Optional[float], typer.Option(help="Seconds a request may arrive in.")] = None,
    request_timeout: Annotated[
        Optional[float], typer.Option(help="Seconds a request may take, from its head to its answer's end.")
    ] = None,
    write_timeout: Annotated[Optional[float], typer.Option(help="Seconds an answer may stay unread.")] = None,
    log_format: Annotated[Optional[str], typer.Option(help="text or json.")] = None,
    log_prompts: Annotated[Optional[bool], typer.Option("--log-prompts", help="Log what clients send.")] = None,
    drain_timeout: Annotated[Optional[float], typer.Option(help="Seconds to finish after SIGTERM.")] = None,
    step_timeout: Annotated[
        Optional[float], typer.Option(help="Seconds one call of the model or the chat template may take.")
    ] = None,
    log_file: Annotated[Optional[str], typer.Option(help="The server's own log; stderr if unset.")] = None,
    models_dir: ModelsDirOption = None,
    config: ConfigOption = None,
) -> None:
    """Serve a model over HTTP."""
    flags = {
        "model": model,
        "models_dir": models_dir,
        "host": host,
        "port": port,
        "alias": alias,
        "no_batch": no_batch,
        "max_batch_size": max_batch_size,
        "max_queue_depth": max_queue_depth,
        "prefill_chunk_size": prefill_chunk_size,
        "kv_cache_budget_bytes": kv_cache_budget,
        "prefix_cache_bytes": prefix_cache_bytes,
        "prefix_cache_ttl_s": prefix_cache_ttl,
        "mlx_cache_bytes": mlx_cache_bytes,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "typical_p": typical_p,
        "repetition_penalty": repetition_penalty,
        "max_body_bytes": max_body_bytes,
        "strict": strict,
        "api_keys_file": api_keys_file,
        "allowed_hosts": allowed_hosts,
        "cors_origins": cors_origins,
        "request_read_timeout_s": request_read_timeout,
        "request_timeout_s": request_timeout,
        "write_timeout_s": write_timeout,
        "log_format": log_format,
        "log_prompts": log_prompts,
        "drain_timeout_s": drain_timeout,
        "step_timeout_s": step_timeout,
        "log_file": log_file,
    }

    def read_settings() -> ServeSettings:
        return resolve(flags, os.environ, config).settings

    resolved, faults = read_sources(flags, os.environ, config)
    settings = resolved.settings
    if settings.log_format == "json":
        say_json()
    if faults:
        raise all_of(faults)
    keys = read_keys(settings.api_keys_file, os.environ)
    if sys.platform == "darwin":
        from mlxcel.device import probe_device

        probe_device()
    from mlxcel.cli.serving import serve as run

    run(settings, read_settings=read_settings, keys=keys)
    leave(0)


@app.command()
def generate(
    model: ModelArgument = None,
    prompt: PromptOption = "-",
    max_tokens: MaxTokensOption = None,
    temperature: TemperatureOption = None,
    top_p: TopPOption = None,
    top_k: TopKOption = None,
    min_p: MinPOption = None,
    seed: SeedOption = None,
    chat: Annotated[bool, typer.Option("--chat", help="Ask through the model's chat template.")] = False,
    models_dir: ModelsDirOption = None,
    config: ConfigOption = None,
) -> None:
    """Print the model's continuation of a prompt."""
    from mlxcel.cli.local import Sampling
    from mlxcel.cli.local import generate as run

    settings = resolve({"model": model, "models_dir": models_dir}, os.environ, config).settings
    text = _prompt_text(prompt)
    sampling = Sampling(temperature, top_p, top_k, min_p, seed)
    leave(run(settings, text, max_tokens=max_tokens, sampling=sampling, is_chat=chat))


def _prompt_text(prompt: str) -> str:
    """The prompt itself, or stdin for "-". Errors: InputError for bytes that are no UTF-8."""
    try:
        text = sys.stdin.read() if prompt == "-" else prompt
        text.encode()
    except UnicodeError as error:
        raise InputError(f"the prompt is not UTF-8: {error}; nothing was done", param="prompt") from error
    return text


@app.command()
def run(
    model: ModelArgument = None,
    system: Annotated[Optional[str], typer.Option(help="System message.")] = None,
    max_tokens: MaxTokensOption = None,
    temperature: TemperatureOption = None,
    top_p: TopPOption = None,
    top_k: TopKOption = None,
    min_p: MinPOption = None,
    seed: SeedOption = None,
    models_dir: ModelsDirOption = None,
    config: ConfigOption = None,
) -> None:
    """Chat with a model in the terminal. Ctrl-C stops the answer; Ctrl-D ends the program."""
    from mlxcel.cli.local import Sampling, chat

    settings = resolve({"model": model, "models_dir": models_dir}, os.environ, config).settings
    sampling = Sampling(temperature, top_p, top_k, min_p, seed)
    leave(chat(settings, system=system, max_tokens=max_tokens, sampling=sampling))


@app.command("import")
def import_(
    source: Annotated[Path, typer.Argument(metavar="FILE.gguf", help="GGUF file of the llama family.")],
    target: Annotated[
        Optional[Path],
        typer.Argument(metavar="DIR", help="Folder to make; in the models folder if unset.", show_default=False),
    ] = None,
    dequantize: Annotated[
        bool, typer.Option("--dequantize", help="Store types that cannot be kept as float16.")
    ] = False,
    float16_norms: Annotated[
        bool, typer.Option("--float16-norms", help="Store norms as float16: faster on a GPU, very slow on a CPU.")
    ] = False,
    models_dir: ModelsDirOption = None,
    config: ConfigOption = None,
    system: ForSystemOption = False,
    prefix: PrefixOption = None,
    as_json: JsonOption = False,
) -> None:
    """Turn a GGUF file into an MLX model folder, losslessly."""
    from mlxcel.cli.importing import run as run_import
    from mlxcel.store.catalogue import check_name

    if system:
        folder = Path(system_settings(prefix, own=(models_dir, config, target)).models_dir)
        become_owner_of(folder)
        check_readable(source, folder)
        target = folder / check_name(source.stem, param="FILE.gguf")
    elif target is None:
        settings = resolve({"models_dir": models_dir}, os.environ, config).settings
        target = Path(settings.models_dir) / check_name(source.stem, param="DIR")
    run_import(source, target, dequantize=dequantize, float16_norms=float16_norms, as_json=as_json)


class Endpoint(str, Enum):
    completions = "completions"
    chat = "chat"


@app.command()
def bench(
    url: Annotated[str, typer.Argument(help="Base URL of an OpenAI-compatible server.")],
    clients: Annotated[int, typer.Option(help="Streaming clients at once.")] = 8,
    requests: Annotated[int, typer.Option(help="Requests per client.")] = 3,
    prompt_words: Annotated[int, typer.Option(help="Prompt length in words.")] = 200,
    prompt_tokens: Annotated[Optional[int], typer.Option(help="Prompt length in tokens.")] = None,
    max_tokens: Annotated[int, typer.Option(help="New tokens per request.")] = 128,
    endpoint: Annotated[Endpoint, typer.Option(help="Which endpoint.")] = Endpoint.completions,
    model: Annotated[Optional[str], typer.Option(help="Model id to ask for.")] = None,
    api_key: Annotated[Optional[str], typer.Option(envvar="OPENAI_API_KEY", help="API key.")] = None,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Of the prompts.")] = 0,
    ramp: Annotated[float, typer.Option(help="Seconds over which clients start.")] = 0.0,
    request_timeout: Annotated[float, typer.Option(help="Seconds per request.")] = 600.0,
    total_timeout: Annotated[float, typer.Option(help="Seconds in all.")] = 3600.0,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Ask for the full length.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure a server with streaming clients: tokens/s, time to first token, gaps between tokens."""
    from mlxcel.cli.benching import run as run_bench
    from mlxcel.load import LoadSettings

    run_bench(
        LoadSettings(
            url=url,
            n_clients=clients,
            n_requests=requests,
            prompt_words=prompt_words,
            prompt_tokens=prompt_tokens,
            max_tokens=max_tokens,
            endpoint=endpoint.value,
            model=model,
            api_key=api_key,
            temperature=temperature,
            seed=seed,
            ramp_s=ramp,
            request_timeout_s=request_timeout,
            total_timeout_s=total_timeout,
            extra={"ignore_eos": True} if ignore_eos else {},
        ),
        as_json=as_json,
    )


@app.command()
def doctor(
    model: ModelArgument = None,
    host: Annotated[Optional[str], typer.Option(help="Address that the server would listen on.")] = None,
    port: Annotated[Optional[int], typer.Option(help="Its port.")] = None,
    models_dir: ModelsDirOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Look at everything that could keep a server from starting. Reads no weights; exits 1 if there is a problem."""
    from mlxcel.cli.doctoring import run as run_doctor

    flags = {"model": model, "host": host, "port": port, "models_dir": models_dir}
    resolved, faults = read_sources(flags, os.environ, config)
    run_doctor(resolved.settings, faults, file=config or config_path(os.environ), as_json=as_json)


@app.command()
def version(as_json: JsonOption = False) -> None:
    """Print the versions of mlxcel, mlx and mlx-lm."""
    from mlxcel.versions import installed_versions

    versions = installed_versions()
    show(json.dumps(versions) if as_json else "\n".join(f"{name} {v}" for name, v in versions.items()))
