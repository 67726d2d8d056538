"""The next release of the fork: its name, its commit, and what stands against it.

`v<base release>-local<NN>` tags local with its landed patches; `<base release>.<YYYYMMDD>` tags upstream's
base without them. Whether `verify` passes is asked before, by the cli.
"""

from __future__ import annotations

import re

from command.errors import StateError, refused

from . import plan as planned
from .facts import landed_topic
from .gather import base_release, read_servers
from .git import Git
from .pick import own_commit
from .plan import BranchPlan, Plan
from .recording import day
from .remote import fetch_objects, without_credentials
from .settings import Edit, Settings
from .stack import (
    RELEASE_TRAILER,
    ArchiveTag,
    Commit,
    DevelRelease,
    LocalRelease,
    Sha,
    archive_label,
    branch_ref,
    parse_release,
    tag_ref,
)
from .status import next_local_release


def plan_release(git: Git, settings: Settings, *, devel: bool) -> Plan:
    """The plan of the next release, numbered after the tags that are on the server.

    Errors: refused with all reasons.
    """
    servers = read_servers(git, settings)
    fork = settings.fork
    ref = branch_ref(fork.local)
    if ref not in servers.heads:
        raise refused(f"the fork has no branch {fork.local!r}")
    tip = servers.heads[ref].object
    fetch_objects(git, servers.push_url, [(ref, tip)])
    fetch_objects(git, servers.upstream_url, [(branch_ref(settings.upstream.branch), servers.upstream_head)])
    base = git.merge_base(tip, servers.upstream_head)
    release = base_release(git, servers.releases, base) if base else ""
    if base is None or not release:
        raise refused(
            f"the base of {fork.local} contains no release tag of upstream's",
            "tools/recut plan --onto <a release tag of upstream's>",
        )
    (base_commit, local) = git.commits([base, tip])
    landed = list(dict.fromkeys(filter(None, map(landed_topic, git.commits(git.range(base, tip))))))
    draft = Plan(
        kind="release",
        push_url=without_credentials(servers.push_url),
        remote=fork.remote,
        identity=git.identity(),
        branches=(),
        archive=(),
        old_base=base,
        new_base=base,
        old_release=release,
        new_release=release,
        upstream_head=servers.upstream_head,
        record_file=settings.record.file,
    )
    if devel:
        return planned.with_id(_devel(draft, base_commit, release, servers.tags))
    name = next_local_release(release, servers.tags)
    reasons = []
    if not landed:
        reasons.append(f"nothing has landed on {fork.local}, so the release would carry no fix")
    reasons += [
        f"{fork.local} was released as {tag[10:]} already, and nothing has landed since"
        for tag, value in servers.tags.items()
        if (value.peeled or value.object) == tip and _is_local_release(tag[10:])
    ]
    if reasons:
        raise refused(reasons, "tools/recut land TOPIC")
    return planned.with_id(_local(git, settings, draft, local, release, name, landed))


def _is_local_release(tag: str) -> bool:
    try:
        return isinstance(parse_release(tag), LocalRelease)
    except StateError:
        return False


def _devel(draft: Plan, base: Commit, release: str, tags: object) -> Plan:
    import msgspec

    name = DevelRelease(base=release, date=day(base.committer_date_s).replace("-", "")).name
    parse_release(name)
    if isinstance(tags, dict) and tag_ref(name) in tags:
        raise refused(f"{name} is on the server already")
    message = f"{name}\n\nUpstream at {base.sha}, without local patches.\n"
    return msgspec.structs.replace(draft, release_tag=name, release_commit=base.sha, release_message=message)


def _local(
    git: Git, settings: Settings, draft: Plan, local: Commit, release: str, name: str, landed: list[str]
) -> Plan:
    import msgspec

    parse_release(name)
    carries = "".join(f"  {topic}\n" for topic in landed)
    message = f"{name}\n\nUpstream {release} with:\n{carries}"
    if not settings.release.edits:
        return msgspec.structs.replace(draft, release_tag=name, release_commit=local.sha, release_message=message)
    commit = _release_commit(git, settings, draft, local, name, release)
    branch = BranchPlan(
        branch=settings.fork.local, old=local.sha, base=local.sha, onto=local.sha, new=commit, moves=True
    )
    tag = ArchiveTag(label=f"{archive_label(settings.fork.local)}-pre-release", commit=local.sha)
    return msgspec.structs.replace(
        draft,
        branches=(branch,),
        archive=(tag,),
        release_tag=name,
        release_commit=commit,
        release_message=message,
    )


def _release_commit(git: Git, settings: Settings, draft: Plan, local: Commit, name: str, release: str) -> Sha:
    """The commit that writes the release's name into files; the next re-cut drops it by its trailer."""
    version = f"{release.removeprefix('v')}+{name.rpartition('-')[2]}"
    files: dict[str, bytes] = {}
    for edit in settings.release.edits:
        content = files.get(edit.file) or git.file(local.sha, edit.file)
        if content is None:
            raise refused(f"release.edits: there is no file {edit.file!r} on {settings.fork.local}")
        files[edit.file] = _edited(content, edit, tag=name, version=version, base=release)
    return own_commit(
        git,
        git.with_files(local.tree, files),
        local.sha,
        draft.identity,
        date_s=local.committer_date_s,
        message=f"Release {name}\n\n{RELEASE_TRAILER}: {name}\n",
    ).commit


def _edited(content: bytes, edit: Edit, *, tag: str, version: str, base: str) -> bytes:
    new = edit.replace.format(tag=tag, version=version, base=base, port=tag.removeprefix("v"))
    text, count = re.subn(
        edit.find,
        lambda found: found.expand(new),
        content.decode(errors="surrogateescape"),
        flags=re.MULTILINE,
    )
    if not count:
        raise refused(f"release.edits: no line of {edit.file} matches {edit.find!r}")
    return text.encode(errors="surrogateescape")
