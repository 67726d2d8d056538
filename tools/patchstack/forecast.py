"""Replays a branch in memory and says what becomes of each patch.

The same function makes the forecast of `plan` and the commits of a run; a run hands in what people decided
at the conflicts. It writes objects only. It knows nothing of servers, journals or worktrees.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

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
    stopped: PatchPlan | None = None


def replay_branch(
    git: Git,
    job: Job,
    *,
    tests: Sequence[str],
    decisions: Mapping[Sha, Decision] | None = None,
    goes_on: bool = False,
) -> Replay:
    """Replay `job`. `goes_on`: past a conflict, markers and all, to forecast what follows (without ids).

    tests: globs of test files, to tell a fix that upstream took with another test.
    """
    decided = decisions or {}
    upstream = UpstreamRange(git, job.base, job.new_base, tests)
    onto = git.commits([job.onto])[0]
    tip = Spot(commit=onto.sha, tree=onto.tree)
    parents = {c.sha: c for c in git.commits([patch.parents[0] for patch in job.patches])}
    plans: list[PatchPlan] = []
    known = True
    clean: list[tuple[int, Commit, Sha]] = []
    for patch in job.patches:
        base_plan = PatchPlan(
            patch=patch.sha,
            subject=patch.subject,
            fate=PatchClass.UNTOUCHED,
            kind=job.kinds.get(patch.sha),
            topic=job.topics.get(patch.sha, job.land),
        )
        decision = decided.get(patch.sha)
        if decision and decision.resolved:
            resolved = git.commits([decision.resolved])[0]
            tip = Spot(commit=resolved.sha, tree=resolved.tree)
            plans.append(_change(base_plan, fate=PatchClass.ADAPTED, new=tip.commit, note="resolved by hand"))
            continue
        if decision:
            plans.append(_dropped(git, base_plan, decision))
            continue
        parent_tree = parents[patch.parents[0]].tree
        picked = merge_patch(git, patch, tip, parent_tree=parent_tree)
        if picked.conflicts or (picked.tree == tip.tree and patch.tree != parent_tree):
            plan = _explain(upstream, patch, picked, base_plan)
            plans.append(plan)
            if plan.stops and not goes_on:
                return Replay(plan=_branch_plan(job, plans, None), tip=tip, stopped=plan)
            if plan.stops:
                known = False
                tip = Spot(commit=tip.commit, tree=picked.tree)
            continue
        if known:
            tip = put_commit(git, patch, tip, picked.tree, topic=job.land)
            clean.append((len(plans), patch, tip.commit))
        else:
            tip = Spot(commit=tip.commit, tree=picked.tree)
        fate = PatchClass.EMPTY if patch.tree == parent_tree else PatchClass.UNTOUCHED
        plans.append(_change(base_plan, fate=fate, new=tip.commit if known else None))
    _classify(git, plans, clean, upstream)
    return Replay(plan=_branch_plan(job, plans, tip.commit if known else None), tip=tip)


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
        return _change(plan, fate=PatchClass.SUPERSEDED, note=f"withdrawn: {decision.reason}")
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


def _classify(
    git: Git, plans: list[PatchPlan], clean: Sequence[tuple[int, Commit, Sha]], upstream: UpstreamRange
) -> None:
    """Tell untouched, adapted and partly superseded apart, by the patches before and after."""
    moved = [(index, patch, new) for index, patch, new in clean if patch.sha != new]
    pairs = list(dict.fromkeys(commit for _, patch, new in moved for commit in (patch.sha, new)))
    ids = git.patch_ids(pairs)
    changed = [(index, patch, new) for index, patch, new in moved if ids[patch.sha] != ids[new]]
    lines = changed_lines(git.diffs([commit for _, patch, new in changed for commit in (patch.sha, new)]))
    for index, patch, new in changed:
        before, after = lines.get(patch.sha, Counter()), lines.get(new, Counter())
        if after < before:
            files = sorted({path.decode(errors="replace") for path, _ in before - after})
            found = upstream.superseding(patch, becomes_empty=False)
            plans[index] = _change(
                plans[index],
                fate=PatchClass.PARTLY_SUPERSEDED,
                note=f"upstream already has its change to {', '.join(files)}",
                upstream=found.commit.sha if found else None,
                upstream_subject=found.commit.subject if found else "",
            )
        else:
            plans[index] = _change(plans[index], fate=PatchClass.ADAPTED)


_COMMIT_LINE = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


def changed_lines(diffs: bytes) -> dict[Sha, Counter[tuple[bytes, bytes]]]:
    """Commit -> how often each (path, added or removed line) occurs, from `-U0` diffs with commit lines."""
    found: dict[Sha, Counter[tuple[bytes, bytes]]] = {}
    current: Counter[tuple[bytes, bytes]] = Counter()
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
