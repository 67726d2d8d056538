"""The command that makes recut.toml: init."""

from __future__ import annotations

import sys
from typing import Annotated, Optional

import typer

from command.errors import Outcome, refused

from .desk import Desk
from .settings import FILE, Fork, Pins, Settings, Upstream, parse_settings, render_settings


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("init")(init)


def init(
    context: typer.Context,
    upstream: Annotated[Optional[str], typer.Option(help="Remote that is followed.")] = None,
    branch: Annotated[Optional[str], typer.Option(help="Upstream's branch.")] = None,
    release_tags: Annotated[Optional[str], typer.Option(help="Glob of upstream's release tags.")] = None,
    fork: Annotated[Optional[str], typer.Option(help="Remote that is published to.")] = None,
    local: Annotated[Optional[str], typer.Option(help="Branch that carries what has landed.")] = None,
    topics: Annotated[Optional[str], typer.Option(help="Prefix of topic branches.")] = None,
    mirror: Annotated[Optional[str], typer.Option(help="The fork's copy of upstream's branch.")] = None,
    pin: Annotated[Optional[list[str]], typer.Option(help="A dependency the record shows; repeatable.")] = None,
) -> Outcome:
    """Write recut.toml, asking on a terminal for what no option says."""
    desk: Desk = context.obj
    if desk.git.top is None:
        raise refused("this repository has no checkout to write recut.toml into")
    path = desk.git.top / FILE
    if path.exists():
        raise refused(f"{FILE} is here already", f"edit {path}", state="It is unchanged.")
    u, f = Upstream(), Fork()
    settings = Settings(
        upstream=Upstream(
            remote=_answer("Remote that is followed", upstream, u.remote),
            branch=_answer("Upstream's branch", branch, u.branch),
            release_tags=_answer("Glob of upstream's release tags", release_tags, u.release_tags),
        ),
        fork=Fork(
            remote=_answer("Remote that is published to", fork, f.remote),
            local=_answer("Branch that carries what has landed", local, f.local),
            topics=_answer("Prefix of topic branches", topics, f.topics),
            mirror=_answer("The fork's copy of upstream's branch", mirror, f.mirror),
        ),
        pins=Pins(names=tuple(pin or ())),
    )
    text = render_settings(settings)
    parse_settings(text)
    path.write_text(text, encoding="utf-8")
    remotes = desk.git.remotes()
    print(f"wrote {path}")
    for name in (settings.upstream.remote, settings.fork.remote):
        if name not in remotes:
            print(f"there is no remote {name!r} yet: git remote add {name} URL")
    print(f"Next: git add {FILE} on {settings.fork.local}, then tools/recut status")
    return Outcome.DONE


def _answer(question: str, given: str | None, default: str) -> str:
    if given is not None:
        return given
    if sys.stdin.isatty() and sys.stdout.isatty():
        return str(typer.prompt(question, default=default))
    return default
