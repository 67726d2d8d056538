"""Reads what a plan needs to know from this repository and the two servers. It decides nothing.

Reads only: objects are fetched, no ref, index or file of the user's is written. The tips are the server's,
read from the push URL, for that is where the leases must hold.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from command.errors import InputError, StateError, ToolError, refused

from . import record
from .facts import BranchFacts, Facts, Servers, first_parents
from .git import Git
from .remote import fetch_commit, fetch_objects, fetch_url, push_url, read_refs, without_credentials
from .settings import Settings
from .stack import Record, Sha, branch_ref, is_sha, tag_ref, version_key


def read_servers(git: Git, settings: Settings) -> Servers:
    """Errors: refused where a remote or a branch that must be there is missing, with all that is missing."""
    upstream, fork = settings.upstream, settings.fork
    missing: list[ToolError] = []
    urls = []
    for ask, name in ((fetch_url, upstream.remote), (push_url, fork.remote)):
        try:
            urls.append(ask(git, name))
        except (StateError, InputError) as error:
            missing.append(error)
    if missing:
        raise refused(
            [reason for error in missing for reason in error.reasons],
            *(step for error in missing for step in error.next_steps),
        )
    upstream_refs = read_refs(git, urls[0], branch_ref(upstream.branch), "refs/tags/*")
    fork_refs = read_refs(git, urls[1], "refs/heads/*", "refs/tags/*")
    head = upstream_refs.get(branch_ref(upstream.branch))
    if head is None:
        raise refused(
            f"upstream ({without_credentials(urls[0])}) has no branch {upstream.branch!r}",
            "edit [upstream] in recut.toml",
        )
    tags = {ref[10:]: value for ref, value in upstream_refs.items() if ref.startswith("refs/tags/")}
    releases = {tag: value.peeled or value.object for tag, value in tags.items() if upstream.is_release(tag)}
    return Servers(
        upstream_url=urls[0],
        push_url=urls[1],
        upstream_head=head.object,
        releases=releases,
        release_refs={tag_ref(tag): value.peeled or value.object for tag, value in tags.items()},
        heads={ref: value for ref, value in fork_refs.items() if ref.startswith("refs/heads/")},
        tags={ref: value for ref, value in fork_refs.items() if ref.startswith("refs/tags/")},
    )


def gather(
    git: Git,
    settings: Settings,
    *,
    onto: str | None,
    topics: Sequence[str] = (),
    upstream_head: Sha | None = None,
) -> Facts:
    """Read everything. `onto` None: the base stays. `topics`: only these, else all on the server.
    `upstream_head`: upstream as an earlier plan saw it, which must still be part of its branch.

    Errors: refused where something a plan cannot do without is missing; usage for an unknown name.
    """
    git.require_version(2, 39)
    if git.is_shallow:
        raise refused(
            "this clone is shallow: git would answer wrongly about ancestors, so nothing can be planned",
            "git fetch --unshallow",
        )
    servers = read_servers(git, settings)
    fork = settings.fork
    local_ref = branch_ref(fork.local)
    if local_ref not in servers.heads:
        raise refused(
            f"the fork ({without_credentials(servers.push_url)}) has no branch {fork.local!r}",
            f"git push {fork.remote} <upstream commit>:{local_ref}",
        )
    names = _topic_branches(servers, settings, topics)
    wanted = {ref: servers.heads[ref].object for ref in (local_ref, *map(branch_ref, names))}
    fetch_objects(git, servers.push_url, wanted.items())
    fetch_objects(git, servers.upstream_url, [(branch_ref(settings.upstream.branch), servers.upstream_head)])
    if upstream_head and _contains(git, servers.upstream_head, upstream_head):
        servers = msgspec.structs.replace(servers, upstream_head=upstream_head)
    local, *open_topics = _branches(git, [fork.local, *names], wanted, servers.upstream_head)
    text, value, error = _read_record(git, settings, local.tip)
    new_base = _resolve_onto(git, servers, settings, onto) if onto else local.base
    if new_base is None:
        raise refused(f"{fork.local} and upstream have no history in common")
    own_heads = git.refs("refs/heads/")
    new_release = base_release(git, servers.releases, new_base)
    mirror = servers.heads.get(branch_ref(fork.mirror)) if fork.mirror else None
    return Facts(
        settings=settings,
        identity=git.identity(),
        upstream_url=servers.upstream_url,
        push_url=servers.push_url,
        upstream_head=servers.upstream_head,
        releases=servers.releases,
        new_base=new_base,
        new_base_from_upstream=_is_upstreams(git, servers, new_base),
        heads=servers.heads,
        tags=servers.tags,
        local=local,
        topics=tuple(open_topics),
        record_text=text,
        record=value,
        record_error=error,
        own_heads=own_heads,
        own_tags=git.refs("refs/tags/"),
        own_unpushed=_unpushed(git, wanted, own_heads),
        old_release=base_release(git, servers.releases, local.base) if local.base else "",
        new_release=new_release,
        new_describe=describe(git, servers.releases, new_release, new_base),
        new_base_date_s=git.commits([new_base])[0].committer_date_s,
        has_replaced_objects=bool(git.refs("refs/replace/")) or (git.common_dir / "info/grafts").exists(),
        mirror_can_follow=mirror is not None and _contains(git, servers.upstream_head, mirror.object),
    )


def _topic_branches(servers: Servers, settings: Settings, topics: Sequence[str]) -> list[str]:
    prefix = branch_ref(settings.fork.topics)
    names = sorted(ref[len("refs/heads/") :] for ref in servers.heads if ref.startswith(prefix))
    if not topics:
        return names
    asked = [settings.fork.topic_branch(name) for name in topics]
    unknown = [name for name in asked if name not in names]
    if unknown:
        raise refused([f"the fork has no branch {name!r}" for name in unknown], f"git ls-remote {settings.fork.remote}")
    return sorted(set(asked))


def _branches(git: Git, names: Sequence[str], tips: dict[str, Sha], upstream_head: Sha) -> list[BranchFacts]:
    graph = git.graph([tips[branch_ref(name)] for name in names], without=[upstream_head])
    bases, own = {}, {}
    for name in names:
        bases[name], above = first_parents(graph, tips[branch_ref(name)])
        has_merges = any(len(graph[commit]) > 1 for commit in above)
        base = bases[name]
        own[name] = git.range(base, tips[branch_ref(name)]) if base and has_merges else above[::-1]
    every = list(dict.fromkeys(commit for commits in own.values() for commit in commits))
    values = dict(zip(every, git.commits(every), strict=True))
    changes = git.changes(every)
    return [
        BranchFacts(
            branch=name,
            tip=tips[branch_ref(name)],
            base=bases[name],
            commits=tuple(values[commit] for commit in own[name]),
            changes={commit: changes[commit] for commit in own[name]},
        )
        for name in names
    ]


def _read_record(git: Git, settings: Settings, tip: Sha) -> tuple[str | None, Record | None, str]:
    content = git.file(tip, settings.record.file)
    if content is None:
        return None, None, ""
    text = content.decode(errors="surrogateescape")
    try:
        return text, record.parse(text), ""
    except ToolError as error:
        return text, None, "; ".join(error.reasons)


def _resolve_onto(git: Git, servers: Servers, settings: Settings, onto: str) -> Sha:
    """The commit that `onto` names: upstream's branch, a tag of upstream's, or an id."""
    branch = settings.upstream.branch
    if onto in (branch, f"{settings.upstream.remote}/{branch}", branch_ref(branch)):
        return servers.upstream_head
    tag = servers.release_refs.get(onto if onto.startswith("refs/tags/") else tag_ref(onto))
    if tag:
        fetch_objects(git, servers.upstream_url, [(tag_ref(onto.removeprefix("refs/tags/")), tag)])
        return tag
    if is_sha(onto) and git.missing([Sha(onto)]):
        fetch_commit(git, servers.upstream_url, Sha(onto))
    found = git.resolve(onto)
    if found is None:
        raise refused(
            f"{onto!r} is neither upstream's branch {branch!r}, nor a tag of upstream's, nor a commit here",
            f"tools/recut plan --onto {settings.upstream.remote}/{branch}",
        )
    return found


def _contains(git: Git, commit: Sha, ancestor: Sha) -> bool:
    return not git.missing([ancestor]) and git.is_ancestor(ancestor, commit)


def _is_upstreams(git: Git, servers: Servers, base: Sha) -> bool:
    if base in servers.release_refs.values():
        return True
    return git.is_ancestor(base, servers.upstream_head)


def _unpushed(git: Git, wanted: dict[str, Sha], own_heads: dict[str, Sha]) -> dict[str, int]:
    ahead = {
        ref[len("refs/heads/") :]: int(git.text("rev-list", "--count", f"{tip}..{own_heads[ref]}"))
        for ref, tip in wanted.items()
        if ref in own_heads and own_heads[ref] != tip
    }
    return {branch: count for branch, count in ahead.items() if count}


def base_release(git: Git, releases: dict[str, Sha], base: Sha) -> str:
    """The newest release tag contained in `base`, "" where there is none."""
    for tag in sorted(releases, key=version_key, reverse=True):
        if not git.missing([releases[tag]]) and git.is_ancestor(releases[tag], base):
            return tag
    return ""


def describe(git: Git, releases: dict[str, Sha], release: str, base: Sha) -> str:
    """`release`, or `release`-<n>-g<7 hex> for a base n commits after it, or the 7 hex alone."""
    if not release:
        return base[:7]
    n_commits = int(git.text("rev-list", "--count", f"{releases[release]}..{base}"))
    return f"{release}-{n_commits}-g{base[:7]}" if n_commits else release
