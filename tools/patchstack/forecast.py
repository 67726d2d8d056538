"""Replays a branch in memory and says what becomes of each patch.

The same function makes the forecast of `plan` and the commits of a run; a run hands in what people decided
at the conflicts. It writes objects only. It knows nothing of servers, journals or worktrees.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from .attributes import attributes_of
from .git import Git
from .pick import Picked, Spot, merge_patch, put_commit
from .plan import BranchPlan, PatchPlan
from .stack import CarriedRow, Commit, CommitKind, PatchClass, Sha, Value


class Decision(Value, frozen=True, kw_only=True):
    """What a person decided about one patch: `resolved` (its new commit), or dropped as superseded by
    `upstream`, or withdrawn for `reason`."""

    resolved: Sha | None = None
    upstream: Sha | None = None
    reason: str = ""


class Job(Value, frozen=True, kw_only=True):
    """One branch to replay: `patches`, oldest first, from `base` onto `onto`."""

    branch: str
    old: Sha
    base: Sha
    onto: Sha
    patches: tuple[Commit, ...]
    is_local: bool
    kinds: Mapping[Sha, CommitKind]
    topics: Mapping[Sha, str]
    """For commits of local: the topic that each landed from."""
    land: str = ""
    replaced: tuple[CarriedRow, ...] = ()
    new_base: Sha
    """Where superseding commits are looked for: base..new_base."""


class Replay(Value, frozen=True, kw_only=True):
    """A replayed branch. `stopped`: the patch that needs a decision, and where it would have gone."""

    plan: BranchPlan
    tip: Spot
    made: Mapping[Sha, Sha]
    """Patch -> its new commit; after a conflict that was passed over, a stand-in that shows the class."""
    stopped: PatchPlan | None = None


WITHDRAWN = "withdrawn: "
"""How the note of a patch begins that a person gave up; the reason follows."""

Watcher = Callable[[str], None]
"""Told the branch of each patch that is about to be replayed; the cli shows progress with it."""


def ignore_patches(_branch: str) -> None:
    """The watcher that does nothing."""


def forecast_branches(
    git: Git, jobs: Sequence[Job], *, tests: Sequence[str], watch: Watcher = ignore_patches
) -> tuple[BranchPlan, ...]:
    """Replay every job past its conflicts and say what becomes of each patch.

    tests: globs of test files, to tell a fix that upstream took with another test.
    """
    git.commits([patch.parents[0] for job in jobs for patch in job.patches])
    replays: list[Replay] = []
    for onto, group in itertools.groupby(jobs, key=lambda job: job.onto):
        with attributes_of(git, onto) as sealed:
            replays += [_replay(sealed, job, tests, {}, goes_on=True, watch=watch) for job in group]
    ranges = [UpstreamRange(git, job.base, job.new_base, tests) for job in jobs]
    return _classified(git, replays, ranges)


def replay_branch(
    git: Git,
    job: Job,
    *,
    tests: Sequence[str],
    decisions: Mapping[Sha, Decision],
) -> Replay:
    """Replay `job` until a patch needs a decision."""
    with attributes_of(git, job.onto) as sealed:
        return _replay(sealed, job, tests, decisions, goes_on=False, watch=ignore_patches)


def _replay(
    git: Git,
    job: Job,
    tests: Sequence[str],
    decided: Mapping[Sha, Decision],
    *,
    goes_on: bool,
    watch: Watcher,
) -> Replay:
    """`goes_on`: past a patch that needs a decision, markers and all, without ids."""
    upstream = UpstreamRange(git, job.base, job.new_base, tests)
    (onto,) = git.commits([job.onto])
    tip = Spot(commit=onto.sha, tree=onto.tree)
    plans: list[PatchPlan] = []
    made: dict[Sha, Sha] = {}
    known = True
    for patch in job.patches:
        watch(job.branch)
        plan = PatchPlan(
            patch=patch.sha,
            subject=patch.subject,
            fate=PatchClass.UNTOUCHED,
            kind=job.kinds.get(patch.sha),
            topic=job.topics.get(patch.sha, job.land),
        )
        decision = decided.get(patch.sha)
        if decision:
            plan, tip = _as_decided(git, plan, decision, tip)
            plans.append(plan)
            continue
        (parent,) = git.commits(patch.parents)
        picked = merge_patch(git, patch, tip, parent_tree=parent.tree)
        if picked.conflicts or (picked.tree == tip.tree and patch.tree != parent.tree):
            plan = _explain(upstream, patch, picked, plan)
            plans.append(plan)
            if plan.stops and not goes_on:
                return Replay(plan=_branch_plan(job, plans, None), tip=tip, made=made, stopped=plan)
            if plan.stops:
                known = False
                tip = put_commit(git, patch, tip, picked.tree)
            continue
        tip = put_commit(git, patch, tip, picked.tree, topic=job.land)
        made[patch.sha] = tip.commit
        fate = PatchClass.EMPTY if patch.tree == parent.tree else PatchClass.UNTOUCHED
        plans.append(_change(plan, fate=fate, new=tip.commit if known else None))
    return Replay(plan=_branch_plan(job, plans, tip.commit if known else None), tip=tip, made=made)


def _as_decided(git: Git, plan: PatchPlan, decision: Decision, tip: Spot) -> tuple[PatchPlan, Spot]:
    if decision.resolved is None:
        return _dropped(git, plan, decision), tip
    (resolved,) = git.commits([decision.resolved])
    spot = Spot(commit=resolved.sha, tree=resolved.tree)
    return _change(plan, fate=PatchClass.ADAPTED, new=spot.commit, note="resolved by hand"), spot


def _change(plan: PatchPlan, **fields: object) -> PatchPlan:
    return msgspec.structs.replace(plan, **fields)


def _branch_plan(job: Job, plans: Sequence[PatchPlan], new: Sha | None) -> BranchPlan:
    dropped_all = bool(plans) and all(p.new is None and not p.stops for p in plans) and new is not None
    return BranchPlan(
        branch=job.branch,
        old=job.old,
        base=job.base,
        onto=job.onto,
        new=new,
        moves=not dropped_all or job.is_local,
        patches=tuple(plans),
        topic=job.land,
        replaced=job.replaced,
    )


def _dropped(git: Git, plan: PatchPlan, decision: Decision) -> PatchPlan:
    if decision.upstream is None:
        return _change(plan, fate=PatchClass.SUPERSEDED, note=f"{WITHDRAWN}{decision.reason}")
    subject = git.commits([decision.upstream])[0].subject
    return _change(
        plan, fate=PatchClass.SUPERSEDED, upstream=decision.upstream, upstream_subject=subject,
        note="superseded, as decided by hand",
    )  # fmt: skip


def _explain(upstream: UpstreamRange, patch: Commit, picked: Picked, plan: PatchPlan) -> PatchPlan:
    """A patch that does not go in as it is: superseded, or a conflict with what is known about it."""
    found = upstream.superseding(patch, becomes_empty=not picked.conflicts)
    named: dict[str, object] = {}
    if found:
        named = {"upstream": found.commit.sha, "upstream_subject": found.commit.subject}
    if not picked.conflicts and found:
        return _change(plan, fate=PatchClass.SUPERSEDED, note=found.why, **named)
    note = found.why if found else ""
    if not picked.conflicts:
        note = "nothing is left of it, but no single upstream commit explains that"
    return _change(plan, fate=PatchClass.CONFLICT, conflicts=picked.conflicts, note=note, **named)


def _classified(git: Git, replays: Sequence[Replay], ranges: Sequence[UpstreamRange]) -> tuple[BranchPlan, ...]:
    """The plans with untouched, adapted and partly superseded told apart, by the patches before and after."""
    moved = {
        patch.patch: replay.made[patch.patch]
        for replay in replays
        for patch in replay.plan.patches
        if patch.fate is PatchClass.UNTOUCHED and replay.made[patch.patch] != patch.patch
    }
    ids = git.patch_ids(list(dict.fromkeys([*moved, *moved.values()])))
    changed = {patch: new for patch, new in moved.items() if ids[patch] != ids[new]}
    lines = changed_lines(git.diffs([*changed, *changed.values()]))

    def classify(plan: PatchPlan, upstream: UpstreamRange) -> PatchPlan:
        if plan.patch not in changed or plan.fate is not PatchClass.UNTOUCHED:
            return plan
        before = lines.get(plan.patch, Counter())
        after = lines.get(changed[plan.patch], Counter())
        return _partly(git, plan, before, after, upstream)

    return tuple(
        msgspec.structs.replace(replay.plan, patches=tuple(classify(patch, upstream) for patch in replay.plan.patches))
        for replay, upstream in zip(replays, ranges, strict=True)
    )


def _partly(git: Git, plan: PatchPlan, before: Lines, after: Lines, upstream: UpstreamRange) -> PatchPlan:
    """Partly superseded where some of the patch's lines are gone and none is new; else adapted."""
    if not after < before:
        return _change(plan, fate=PatchClass.ADAPTED)
    files = sorted({path.decode(errors="replace") for path, _ in before - after})
    (patch,) = git.commits([plan.patch])
    found = upstream.superseding(patch, becomes_empty=False)
    return _change(
        plan,
        fate=PatchClass.PARTLY_SUPERSEDED,
        note=f"upstream already has its change to {', '.join(files)}",
        upstream=found.commit.sha if found else None,
        upstream_subject=found.commit.subject if found else "",
    )


Lines = Counter[tuple[bytes, bytes]]
"""How often each (path, added or removed line) occurs in a patch."""
_COMMIT_LINE = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


def changed_lines(diffs: bytes) -> dict[Sha, Lines]:
    """Commit -> its changed lines, from `-U0` diffs that each follow a line with the commit's id."""
    found: dict[Sha, Lines] = {}
    current: Lines = Counter()
    path = b""
    left = 0
    for line in diffs.split(b"\n"):
        if left:
            if not line.startswith(b"\\"):
                current[path, line] += 1
                left -= 1
        elif _COMMIT_LINE.fullmatch(line):
            current = found.setdefault(Sha(line.decode()), Counter())
        elif line.startswith(b"diff --git "):
            path = line.rpartition(b" b/")[2]
            current[path, b""] += 1
        elif hunk := _HUNK.match(line):
            left = sum(int(count) if count is not None else 1 for count in hunk.groups())
        elif line and not line.startswith((b"index ", b"--- ", b"+++ ")):
            current[path, line] += 1
    return found


class Superseding(Value, frozen=True, kw_only=True):
    """The upstream commit that took a patch, and how that is known."""

    commit: Commit
    why: str


class UpstreamRange:
    """The upstream commits between two bases, searched for one that took a patch; nothing is read before."""

    def __init__(self, git: Git, base: Sha, new_base: Sha, tests: Sequence[str]) -> None:
        self._git = git
        self._range = f"{base}..{new_base}"
        self._tests = tests

    def superseding(self, patch: Commit, *, becomes_empty: bool) -> Superseding | None:
        """Errors: none; None where no single commit took it."""
        git = self._git
        paths = [change.path for change in git.changes([patch.sha])[patch.sha]]
        rows = git.lines(
            "rev-list", "--reverse", "--topo-order", "--no-merges", self._range, "--",
            *(f":(literal,top){path}" for path in paths),
        )  # fmt: skip
        candidates = [Sha(row) for row in rows]
        if not candidates:
            return None
        for exclude, why in (((), "the same change"), (self._tests, "the same fix, with other tests")):
            ids = git.patch_ids([patch.sha, *candidates], exclude=exclude)
            same = [commit for commit in candidates if ids[commit] and ids[commit] == ids[patch.sha]]
            if same:
                return self._found(same[-1], why)
        if not becomes_empty:
            return None
        return self._first_that_empties(patch, candidates)

    def _found(self, commit: Sha, why: str) -> Superseding:
        return Superseding(commit=self._git.commits([commit])[0], why=why)

    def _first_that_empties(self, patch: Commit, candidates: Sequence[Sha]) -> Superseding | None:
        """The commit at which the patch turns empty, by bisection: empty there, not empty just before."""
        low, high = -1, len(candidates) - 1
        if not self._is_empty_on(patch, candidates[high]):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            if self._is_empty_on(patch, candidates[middle]):
                high = middle
            else:
                low = middle
        return self._found(candidates[high], "from that commit on, upstream has all of it")

    def _is_empty_on(self, patch: Commit, commit: Sha) -> bool:
        parent, onto = self._git.commits([patch.parents[0], commit])
        spot = Spot(commit=onto.sha, tree=onto.tree)
        picked = merge_patch(self._git, patch, spot, parent_tree=parent.tree)
        return not picked.conflicts and picked.tree == onto.tree
