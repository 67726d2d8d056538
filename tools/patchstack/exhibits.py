"""What an audit looks at, read once: from the two servers, or offline from this clone's own refs.

Nothing here is taken from a plan or a journal: an audit must not believe the program that it audits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from command.errors import ToolError, refused

from . import record as page
from .facts import commit_kind
from .gather import base_release, read_servers
from .git import Git
from .remote import fetch_objects
from .settings import Settings
from .stack import Commit, CommitKind, Record, RemoteRef, Sha, branch_ref, tag_ref


class Exhibits:
    """The refs as one side shows them, and the record on local there.

    source: the server's URL, or "this clone". `upstream_head` None: offline, and never fetched.
    upstream_tags: names of all of upstream's tags; None offline, where a clone cannot tell whose a tag is.
    """

    def __init__(
        self,
        git: Git,
        settings: Settings,
        *,
        source: str,
        heads: dict[str, RemoteRef],
        tags: dict[str, RemoteRef],
        releases: dict[str, Sha],
        upstream_head: Sha | None,
        upstream_tags: frozenset[str] | None,
    ) -> None:
        self.git = git
        self.settings = settings
        self.source = source
        self.tags = tags
        self.releases = releases
        self.upstream_head = upstream_head
        self.upstream_tags = upstream_tags
        self.branches = {ref.removeprefix("refs/heads/"): value.object for ref, value in sorted(heads.items())}
        self.local = self.branches[settings.fork.local]
        self.record_error: ToolError | None = None

    @cached_property
    def text(self) -> str | None:
        return self.text_at(self.local)

    def text_at(self, commit: Sha) -> str | None:
        content = self.git.file(commit, self.settings.record.file)
        return None if content is None else content.decode(errors="surrogateescape")

    @cached_property
    def record(self) -> Record | None:
        """None where local has none, or it cannot be read (`record_error` says why)."""
        if self.text is None:
            return None
        try:
            return page.parse(self.text, source=self.settings.record.file)
        except ToolError as error:
            self.record_error = error
            return None

    @cached_property
    def archive(self) -> dict[str, RemoteRef]:
        """Short name -> what the ref holds, of every tag under archive/."""
        prefix = tag_ref("archive/")
        return {ref[len("refs/tags/") :]: value for ref, value in self.tags.items() if ref.startswith(prefix)}

    @cached_property
    def topics(self) -> dict[str, Sha]:
        """Topic -> tip."""
        fork = self.settings.fork
        return {fork.topic_name(branch): tip for branch, tip in self.branches.items() if branch.startswith(fork.topics)}

    def base_of(self, commit: Sha) -> Sha | None:
        """The upstream commit that `commit` is cut from: the newest that upstream's branch, as known here,
        or the record's base have in common with it. A tracking branch can be older than the base.
        """
        known = [self.upstream_head, self.record.base if self.record else None]
        here = [tip for tip in dict.fromkeys(known) if tip and not self.git.missing([tip])]
        bases = [base for tip in here if (base := self.git.merge_base(commit, tip))]
        if len(bases) == 2 and self.git.is_ancestor(bases[0], bases[1]):
            return bases[1]
        return bases[0] if bases else None

    def own_commits(self, base: Sha, tip: Sha) -> list[tuple[Commit, CommitKind]]:
        """The commits of base..tip, oldest first, and what each is there for."""
        commits = self.git.commits(self.git.range(base, tip))
        changes = self.git.changes([commit.sha for commit in commits])
        file = self.settings.record.file
        return [(c, commit_kind(c, (f.path for f in changes[c.sha]), file)) for c in commits]

    @cached_property
    def carried(self) -> list[tuple[Commit, CommitKind]]:
        """Everything on local above its base."""
        base = self.base_of(self.local)
        return self.own_commits(base, self.local) if base else []

    def base_release(self, commit: Sha) -> str:
        return base_release(self.git, self.releases, commit)

    def is_reachable(self, commit: Sha) -> bool:
        """Whether a branch or a tag of this side reaches `commit`."""
        if self.git.missing([commit]):
            return False
        tips = {value.peeled or value.object for value in self.tags.values()} | set(self.branches.values())
        here = sorted(tips - set(self.git.missing(tips)))
        rows = "".join([f"{commit}\n", *(f"^{tip}\n" for tip in here)])
        return not self.git.lines("rev-list", "--max-count=1", "--stdin", stdin=rows.encode())

    def absent(self, commits: Iterable[Sha]) -> list[Sha]:
        return self.git.missing(commits)


def read_exhibits(git: Git, settings: Settings, *, remote: bool) -> Exhibits:
    """Errors: refused for a shallow clone, a missing remote or a missing local branch."""
    if git.is_shallow:
        raise refused("this clone is shallow, so ancestors cannot be told", "git fetch --unshallow")
    return _from_servers(git, settings) if remote else _from_clone(git, settings)


def _from_servers(git: Git, settings: Settings) -> Exhibits:
    servers = read_servers(git, settings)
    upstream_ref = branch_ref(settings.upstream.branch)
    _require_local(settings, servers.heads, servers.push_url)
    fetch_objects(git, servers.upstream_url, [(upstream_ref, servers.upstream_head)])
    wanted = [(ref, value.object) for ref, value in servers.heads.items()]
    wanted += [(ref, value.peeled) for ref, value in servers.tags.items() if value.peeled]
    lightweight = [(ref, value.object) for ref, value in servers.tags.items() if not value.peeled]
    fetch_objects(git, servers.push_url, [*wanted, *lightweight])
    return Exhibits(
        git,
        settings,
        source=servers.push_url,
        heads=servers.heads,
        tags=servers.tags,
        releases=servers.releases,
        upstream_head=servers.upstream_head,
        upstream_tags=frozenset(ref.removeprefix("refs/tags/") for ref in servers.release_refs),
    )


def _from_clone(git: Git, settings: Settings) -> Exhibits:
    upstream, fork = settings.upstream, settings.fork
    prefix = f"refs/remotes/{fork.remote}/"
    tracked = {branch_ref(ref.removeprefix(prefix)): tip for ref, tip in git.refs(prefix).items()}
    heads = {ref: RemoteRef(tip, None) for ref, tip in (tracked | git.refs("refs/heads/")).items()}
    _require_local(settings, heads, "this clone")
    tracking = f"refs/remotes/{upstream.remote}/{upstream.branch}"
    tags = _own_tags(git)
    names = {ref.removeprefix("refs/tags/"): value.peeled or value.object for ref, value in tags.items()}
    return Exhibits(
        git,
        settings,
        source="this clone",
        heads=heads,
        tags=tags,
        releases={name: commit for name, commit in names.items() if upstream.is_release(name)},
        upstream_head=git.refs(tracking).get(tracking),
        upstream_tags=None,
    )


def _require_local(settings: Settings, heads: dict[str, RemoteRef], source: str) -> None:
    if branch_ref(settings.fork.local) not in heads:
        raise refused(f"{source} has no branch {settings.fork.local!r}, so there is nothing to verify")


def _own_tags(git: Git) -> dict[str, RemoteRef]:
    rows: Sequence[str] = git.lines("for-each-ref", "--format=%(refname) %(objectname) %(*objectname)", "refs/tags/")
    found = {}
    for row in rows:
        ref, value, *peeled = row.split(" ")
        found[ref] = RemoteRef(Sha(value), Sha(peeled[0]) if peeled and peeled[0] else None)
    return found
