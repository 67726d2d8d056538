"""The plan of a run as a value: every patch, tag, lease and id, its form as a file, and what differs.

Pure: it starts no git and reads no file.
"""

from __future__ import annotations

import hashlib

import msgspec

from command.errors import usage

from .stack import (
    ArchiveTag,
    CarriedRow,
    CommitKind,
    Identity,
    Move,
    PatchClass,
    Record,
    Sha,
    Value,
)

SCHEMA = "recut.plan/1"


class PatchPlan(Value, frozen=True, kw_only=True):
    """What becomes of one commit. `new` None: dropped, or known only after a conflict is resolved."""

    patch: Sha
    subject: str
    fate: PatchClass
    kind: CommitKind | None = None
    """For commits of local; None for a topic's."""
    topic: str = ""
    new: Sha | None = None
    upstream: Sha | None = None
    """The upstream commit that supersedes it (or, beside a conflict, may do so)."""
    upstream_subject: str = ""
    conflicts: tuple[str, ...] = ()
    note: str = ""

    @property
    def stops(self) -> bool:
        """Whether a run stops here for a person's decision."""
        return self.fate is PatchClass.CONFLICT


class BranchPlan(Value, frozen=True, kw_only=True):
    """One branch of a run: `patches` go, oldest first, onto `onto`. `new` None: known after resolution."""

    branch: str
    old: Sha
    base: Sha
    onto: Sha
    new: Sha | None
    moves: bool
    patches: tuple[PatchPlan, ...] = ()
    topic: str = ""
    """With `land`: the topic whose trailer the new commits get."""
    replaced: tuple[CarriedRow, ...] = ()
    """Record and release commits that are left out by name."""


class Plan(Value, frozen=True, kw_only=True):
    """Everything a run will do, with exact ids. `id` is a digest of all the rest."""

    kind: str
    """recut, land, undo, release or archive."""
    push_url: str
    remote: str
    """The fork's remote in this clone, whose tracking branches follow a publish."""
    identity: Identity
    branches: tuple[BranchPlan, ...]
    """Topics first, local last."""
    archive: tuple[ArchiveTag, ...]
    schema: str = SCHEMA
    id: str = ""
    onto: str = ""
    only_topics: tuple[str, ...] = ()
    topic: str = ""
    old_base: Sha | None = None
    new_base: Sha | None = None
    old_release: str = ""
    new_release: str = ""
    describe: str = ""
    base_date_s: int = 0
    upstream_head: Sha | None = None
    record_file: str = ""
    record_before: Record | None = None
    archive_before: tuple[ArchiveTag, ...] = ()
    """The archive tags on the server when planning."""
    record_after: Record | None = None
    """The tables of the record to come; an id that a resolution will decide is missing in it."""
    record_commit: Sha | None = None
    """None: no record is written, or its id is known only after resolution."""
    writes_record: bool = False
    mirror: Move | None = None
    release_tag: str = ""
    release_commit: Sha | None = None
    release_message: str = ""
    undoes: str = ""
    """The run that this one takes back."""
    notes: tuple[str, ...] = ()

    @property
    def n_conflicts(self) -> int:
        return sum(patch.stops for branch in self.branches for patch in branch.patches)

    @property
    def moves(self) -> list[Move]:
        """The branch moves whose new tip is known."""
        return [
            Move(branch=branch.branch, old=branch.old, new=branch.new)
            for branch in self.branches
            if branch.moves and branch.new and branch.new != branch.old
        ]

    @property
    def drops(self) -> list[PatchPlan]:
        return [p for b in self.branches for p in b.patches if p.fate is PatchClass.SUPERSEDED]


def with_id(plan: Plan) -> Plan:
    """`plan` with the id that its content gives."""
    bare = msgspec.structs.replace(plan, id="")
    digest = hashlib.sha256(msgspec.json.encode(bare, order="sorted")).hexdigest()
    return msgspec.structs.replace(plan, id=digest[:12])


def encode(plan: Plan) -> bytes:
    return msgspec.json.format(msgspec.json.encode(plan), indent=2) + b"\n"


def decode(text: bytes, *, source: str) -> Plan:
    """The plan in a file that somebody hands in. Errors: usage where it is none, or was edited."""
    plan = decode_own(text, source=source)
    if with_id(plan).id != plan.id:
        raise usage(f"{source} was changed after planning, or made by another version: its id does not match")
    return plan


def decode_own(text: bytes, *, source: str) -> Plan:
    """A plan that this tool put away, perhaps in an earlier version. Errors: usage where it is none."""
    try:
        plan = msgspec.json.decode(text, type=Plan)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise usage(f"{source} is not a plan: {error}", "tools/recut plan --onto REF -o plan.json") from error
    if plan.schema != SCHEMA:
        raise usage(f"{source} is of the schema {plan.schema}, this tool reads {SCHEMA}")
    return plan


def differences(planned: Plan, now: Plan) -> list[str]:
    """In words, what makes `now` another plan than `planned`."""
    reasons = []
    then_branches = {branch.branch: branch for branch in planned.branches}
    now_branches = {branch.branch: branch for branch in now.branches}
    for name in sorted(then_branches.keys() | now_branches.keys()):
        then, current = then_branches.get(name), now_branches.get(name)
        if then is None or current is None:
            reasons.append(f"{name} {'appeared' if then is None else 'is gone'} since the plan was made")
        elif then.old != current.old:
            reasons.append(f"{name} was {then.old[:12]} when planned and is {current.old[:12]} on the server now")
        elif then != current:
            reasons.append(f"{name} would become {str(current.new)[:12]}, the plan says {str(then.new)[:12]}")
    for field in ("new_base", "push_url", "identity", "archive", "mirror", "upstream_head"):
        if getattr(planned, field) != getattr(now, field):
            reasons.append(f"{field.replace('_', ' ')} is not what the plan says")
    if not reasons and planned.id != now.id:
        reasons.append("the plan made now differs from the one given")
    return reasons
