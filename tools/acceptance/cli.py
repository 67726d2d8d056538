"""The commands of tools/evidence and the process edge: arguments in, an exit code out."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Optional

import msgspec
import typer

from command.edge import Tool, print_json
from command.errors import Outcome, usage
from command.paper import Paper
from command.text_file import read_text_file

from .settings import LENGTHS, NO_BATCH_LENGTHS


def _joined(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


Json = Annotated[bool, typer.Option("--json", help="Answer as JSON, for scripts.")]


NOTHING_WRITTEN = "No report was written; every process that was started has been stopped."
TOOL = Tool(
    name="tools/evidence",
    error_schema="evidence.error/1",
    unchanged=NOTHING_WRITTEN,
    on_interrupt=NOTHING_WRITTEN,
    on_bug=NOTHING_WRITTEN,
)


def build_app() -> typer.Typer:
    app = typer.Typer(
        name="evidence",
        help="Show that a fix works: any OpenAI-compatible server against mlx_lm, row by row.",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        no_args_is_help=True,
    )
    app.command("run")(_run)
    app.command("compare")(_compare)
    app.command("matrices")(_matrices)
    return app


def run(args: Sequence[str]) -> int:
    """Run one command; the exit code (command.errors.EXIT_CODES)."""

    def command() -> object:
        return build_app()(list(args) or ["--help"], prog_name=TOOL.name, standalone_mode=False)

    return TOOL.run(command, as_json="--json" in args)


def _run(
    server: Annotated[str, typer.Option(help="'CMD with {port} {model} {args}', or a URL.")],
    model: Annotated[Path, typer.Option(help="The model folder; mlx_lm reads it too.")],
    baseline: Annotated[Optional[str], typer.Option(help="The same for the column before.")] = None,
    flag: Annotated[Optional[list[str]], typer.Option(help="NAME='FLAG {n}', see `matrices`; repeatable.")] = None,
    baseline_flag: Annotated[
        Optional[list[str]], typer.Option(help="The baseline's flags; without any, those of --flag.")
    ] = None,
    matrix: Annotated[str, typer.Option(help="Names with commas, or all.")] = "all",
    only: Annotated[str, typer.Option(help="Try only rows with this in their name.")] = "",
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the report and the logs.")] = Path("evidence"),
    title: Annotated[Optional[str], typer.Option(help="The report's title.")] = None,
    source: Annotated[Path, typer.Option(help="Checkout that the server was built from.")] = Path(),
    baseline_source: Annotated[Optional[Path], typer.Option(help="The same for the baseline.")] = None,
    lengths: Annotated[str, typer.Option(help="Prompt lengths of the length matrix.")] = _joined(LENGTHS),
    no_batch_lengths: Annotated[str, typer.Option(help="Those of no-batch.")] = _joined(NO_BATCH_LENGTHS),
    tokens: Annotated[int, typer.Option(min=8, help="Tokens of an answer.")] = 24,
    batch_size: Annotated[int, typer.Option(min=2, help="Requests at once.")] = 8,
    queue_depth: Annotated[int, typer.Option(min=2, help="The depth N of the queue matrix.")] = 3,
    runs: Annotated[int, typer.Option(min=1, help="Runs of each eos row.")] = 3,
    model_id: Annotated[Optional[str], typer.Option(help="The model that requests name; else none.")] = None,
    request_timeout: Annotated[float, typer.Option(min=0.1, help="Seconds one request may take.")] = 120.0,
    start_timeout: Annotated[float, typer.Option(min=0.1, help="Seconds a server may take to start.")] = 300.0,
    stop_timeout: Annotated[float, typer.Option(min=0.1, help="Seconds it may take to stop.")] = 30.0,
    lock_wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for another run's end.")] = 600.0,
    lock_file: Annotated[Optional[Path], typer.Option(help="Lock that runs on one machine share.")] = None,
    as_json: Json = False,
) -> Outcome:
    """Drive a server through the matrices; write evidence.md, evidence.json and junit.xml."""
    from .evidence import Party, Wish, make_evidence
    from .folder import write_report
    from .lock import LOCK_FILE
    from .matrices import MATRICES
    from .server import parse_target
    from .settings import Settings
    from .show import show_report, show_result

    flags = _flags(flag or [])
    after = Party(label="after", target=parse_target(server, flags), source=source)
    before = None
    if baseline is not None:
        target = parse_target(baseline, _flags(baseline_flag) if baseline_flag else flags)
        before = Party(label="before", target=target, source=baseline_source or source)
    settings = Settings(
        model=model.resolve(),
        lengths=_numbers(lengths, "--lengths"),
        no_batch_lengths=_numbers(no_batch_lengths, "--no-batch-lengths"),
        n_tokens=tokens,
        n_batch=batch_size,
        n_queue=queue_depth,
        n_runs=runs,
        only=only,
        model_id=model_id,
        request_s=request_timeout,
        start_s=start_timeout,
        stop_s=stop_timeout,
    )
    wish = Wish(
        settings=settings,
        matrices=_names(matrix, list(MATRICES)),
        after=after,
        before=before,
        title=title or f"{model.resolve().name} on {shlex.split(server)[0]}",
        made_by=f"tools/evidence {shlex.join(sys.argv[1:])}",
        folder=out,
        lock_wait_s=lock_wait,
        lock_file=lock_file or LOCK_FILE,
    )
    progress = Paper(sys.stderr)
    report = make_evidence(wish, lambda *said: show_result(progress, *said))
    files = write_report(report, out)
    outcome = Outcome.DONE if report.conclusion.holds else Outcome.CHECK_FAILED
    if as_json:
        print_json({"outcome": outcome.value, **msgspec.to_builtins(report)})
        return outcome
    paper = Paper()
    show_report(paper, report)
    paper.line(f"Written: {', '.join(map(str, files))}; logs beside them.")
    return outcome


def _compare(
    first: Annotated[Path, typer.Argument(help="An evidence.json.")],
    second: Annotated[Path, typer.Argument(help="A later one.")],
    as_json: Json = False,
) -> Outcome:
    """Say what changed between two reports; exit 1 where a row that passed does not any more."""
    from .compare import SCHEMA, compare
    from .report import parse
    from .show import show_comparison

    comparison = compare(*(parse(read_text_file(path), source=str(path)) for path in (first, second)))
    outcome = Outcome.CHECK_FAILED if comparison.regressions else Outcome.DONE
    if as_json:
        print_json({"schema": SCHEMA, "outcome": outcome.value, **msgspec.to_builtins(comparison)})
    else:
        show_comparison(Paper(), comparison)
    return outcome


def _matrices(as_json: Json = False) -> Outcome:
    """List the matrices, what each shows and what it needs of a server."""
    from .matrices import MATRICES
    from .server import FLAGS
    from .show import show_matrices

    if as_json:
        listed = [{"name": m.name, "shows": m.shows, "needs": m.needs} for m in MATRICES.values()]
        print_json({"schema": "evidence.matrices/1", "outcome": "done", "matrices": listed, "flags": FLAGS})
    else:
        show_matrices(Paper(), MATRICES, FLAGS)
    return Outcome.DONE


def _flags(given: Sequence[str]) -> dict[str, str]:
    """Errors: usage for a name that no matrix knows, or a number without {n}."""
    from .server import FLAGS, NUMBERED_FLAGS

    made = {}
    for text in given:
        name, equals, words = text.partition("=")
        if not equals or name not in FLAGS:
            raise usage(f"--flag {text!r} names none of {', '.join(FLAGS)}", "tools/evidence matrices")
        if (name in NUMBERED_FLAGS) != ("{n}" in words):
            wanted = "needs a place {n} for its number" if name in NUMBERED_FLAGS else "has no number {n}"
            raise usage(f"--flag {text!r}: {name} {wanted}")
        made[name] = words
    return made


def _names(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """The matrices asked for, in the order in which they run."""
    asked = [name.strip() for name in text.split(",") if name.strip()]
    if asked == ["all"]:
        return tuple(known)
    unknown = [name for name in asked if name not in known]
    if unknown or not asked:
        raise usage(
            f"--matrix {text!r}: there is no matrix {unknown[0] if unknown else ''!r}", "tools/evidence matrices"
        )
    return tuple(name for name in known if name in asked)


def _numbers(text: str, option: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise usage(f"{option} {text!r} is no list of numbers from 1 on, as in 1,33,200")
    return numbers
