"""A repository of a hub becomes a model folder, whole or not at all.

    ask what the revision means -> choose the files -> fetch them into a draft beside the target -> check -> rename

The draft outlives a failure and a killed process: the next pull of the same commit goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from mlxcel.errors import FileExistsAlready, ModelError, StateError
from mlxcel.folder import new_folder, refusal_of, refuse_lack_of_room
from mlxcel.store.catalogue import check_name
from mlxcel.store.fetch import complete
from mlxcel.store.hub import BrokenTransfer, Hub, HubFile, Snapshot
from mlxcel.store.integrity import INDEX, check_whole, fault_in, weight_map
from mlxcel.store.part import Part
from mlxcel.store.record import Record, read_record, write_record
from mlxcel.store.refusal import NotWhole
from mlxcel.store.selection import model_files

Progress = Callable[[int, int], None]
"""Called with the bytes that are in place and those of the whole model."""


@dataclass(frozen=True)
class PullReport:
    """`fetched_bytes` were sent now; the others were there from an earlier try."""

    name: str
    folder: str
    repo: str
    commit: str
    n_files: int
    n_bytes: int
    fetched_bytes: int


def pull_model(
    hub: Hub,
    repo: str,
    models_dir: Path,
    *,
    revision: str = "main",
    name: str | None = None,
    n_retries: int = 0,
    progress: Progress = lambda done, total: None,
) -> PullReport:
    """Fetch `repo` into the models folder, as `name` or under its own id.

    A connection that breaks is taken up again at once if bytes came over it, else `n_retries` times. A model that is
    there at that commit is left as it is, and that is no error.

    Errors: InputError for what the hub does not have or does not give, ModelError for a repository that is no whole
    MLX model, FileExistsAlready if there is another model of that name, StateError while another process pulls it,
    when the hub fails, a file arrives damaged or the disk is full: then what arrived stays for the next try.
    """
    check_name(repo, param="repo")
    target = models_dir / check_name(name or repo, param="name")
    try:
        snapshot = hub.snapshot(repo, revision)
        files = model_files(snapshot)
        record = _record(hub, snapshot, revision, files)
        fetched_bytes = 0
        if _is_there(target, record):
            progress(record.n_bytes, record.n_bytes)
        else:
            with new_folder(target, resume_key=snapshot.commit) as draft:
                write_record(draft, record)
                refuse_lack_of_room(draft, record.n_bytes - _held_bytes(draft, record))
                fetched_bytes = _fill(draft, hub, snapshot, files, n_retries, progress)
                check_whole(draft)
    except NotWhole as error:
        raise ModelError(
            f"{repo} is not whole on the hub: {error.reason}; nothing was made. Choose another repository, or another "
            "--revision",
            param="repo",
        ) from error
    except BrokenTransfer as error:
        raise StateError(
            f"{error.message}; {target} was not made, and what arrived is kept. Run the same command again to go on",
            code=error.code,
        ) from error
    except OSError as error:
        raise refusal_of(error, target) from error
    return PullReport(
        name=name or repo,
        folder=str(target),
        repo=repo,
        commit=snapshot.commit,
        n_files=len(files),
        n_bytes=record.n_bytes,
        fetched_bytes=fetched_bytes,
    )


def _record(hub: Hub, snapshot: Snapshot, revision: str, files: tuple[HubFile, ...]) -> Record:
    return Record(
        repo=snapshot.repo,
        revision=revision,
        commit=snapshot.commit,
        endpoint=hub.endpoint,
        files={file.name: (file.n_bytes, file.digest) for file in files},
    )


def _fill(
    draft: Path, hub: Hub, snapshot: Snapshot, files: tuple[HubFile, ...], n_retries: int, progress: Progress
) -> int:
    """Make every file whole; returns the bytes that the hub sent."""
    total_bytes = sum(file.n_bytes for file in files)
    held_bytes = fetched_bytes = 0
    for file in files:
        with closing(Part(draft, file)) as part:
            held_bytes += part.n_bytes
            progress(held_bytes + fetched_bytes, total_bytes)
            for piece_bytes in complete(part, hub, snapshot, file, n_retries=n_retries):
                fetched_bytes += piece_bytes
                progress(held_bytes + fetched_bytes, total_bytes)
        if file.name == INDEX:
            _refuse_lack_of_shards(draft, snapshot)
    return fetched_bytes


def _refuse_lack_of_shards(draft: Path, snapshot: Snapshot) -> None:
    """Before gigabytes are fetched for nothing: the index is small, and comes first."""
    if missing := sorted({*weight_map(draft).values()} - {file.name for file in snapshot.files}):
        raise NotWhole(draft, f"{INDEX} names {', '.join(missing)}, which it lacks")


def _held_bytes(draft: Path, record: Record) -> int:
    return sum((draft / name).stat().st_size for name in record.files if (draft / name).exists())


def _is_there(target: Path, record: Record) -> bool:
    """Errors: FileExistsAlready when something else is."""
    if not target.exists():
        return False
    held = read_record(target)
    if held is not None and (held.repo, held.commit) == (record.repo, record.commit) and fault_in(target) is None:
        return True
    what = "not whole" if held and held.commit == record.commit else str(held) if held else "not from a hub"
    raise FileExistsAlready(
        f"{target} exists ({what}) and was left as it is; the hub has {record.commit[:12]}. Give another --name, or "
        "'mlxcel rm' this one first",
        param="name",
    )
