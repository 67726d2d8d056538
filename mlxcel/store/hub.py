"""The hub: what a repository holds at a revision, and the bytes of its files from any place on.

huggingface_hub finds the token, the proxies and the errors; the bytes are read here, since its own download throws
away what arrived when it is interrupted (docs/adr/0015). It knows nothing of the disk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

from huggingface_hub import HfApi, get_session, hf_hub_url, hf_raise_for_status
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

# httpx's in huggingface_hub 1.x, httpx2's in 2.x.
from huggingface_hub.errors import HTTPError as HubHTTPError  # type: ignore[attr-defined]
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from mlxcel.errors import ConfigError, InputError, MlxcelError, StateError, reason_of

DEFAULT_ENDPOINT = "https://huggingface.co"
_ENDPOINT = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?")
_COMMIT = re.compile("[0-9a-f]{40}([0-9a-f]{24})?")
TIMEOUT_S = 30.0
"""For an answer to begin, and between two pieces of it."""


class BrokenTransfer(StateError):
    """The hub or the way to it failed; the same request may succeed soon. The message is the reason alone."""

    code = "broken_transfer"


@dataclass(frozen=True)
class HubFile:
    """`digest` is `sha256:...` of the content, or `git-sha1:...` as git names a blob."""

    name: str
    n_bytes: int
    digest: str


@dataclass(frozen=True)
class Snapshot:
    """A repository at one commit."""

    repo: str
    commit: str
    files: tuple[HubFile, ...]


class Hub:
    """One endpoint, and the token that huggingface_hub finds for it."""

    def __init__(self, endpoint: str) -> None:
        """Errors: ConfigError when `endpoint` is no address."""
        if not _ENDPOINT.fullmatch(endpoint):
            raise ConfigError(
                f"HF_ENDPOINT = {endpoint!r} is no address; nothing was fetched. Give one like {DEFAULT_ENDPOINT}",
                param="HF_ENDPOINT",
            )
        self.endpoint = endpoint.rstrip("/")

    def snapshot(self, repo: str, revision: str) -> Snapshot:
        """What `revision` (a branch, tag or commit) of `repo` means now.

        Errors: InputError when there is none, or none for this token; StateError when the hub cannot say now.
        """
        what = f"{repo} at {revision}"
        with self._refusals(what):
            try:
                info = HfApi(endpoint=self.endpoint).model_info(
                    repo, revision=revision, files_metadata=True, timeout=TIMEOUT_S
                )
            except HFValidationError as error:
                raise InputError(f"{repo!r} is no repository id; nothing was fetched. {error}", param="repo") from error
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise self._not_a_hub(what) from error
            commit = info.sha or ""
            if not _COMMIT.fullmatch(commit) or info.siblings is None:
                raise self._not_a_hub(what)
            files = []
            for file in info.siblings:
                digest = f"sha256:{file.lfs.sha256}" if file.lfs else f"git-sha1:{file.blob_id}" if file.blob_id else ""
                files.append(HubFile(file.rfilename, -1 if file.size is None else file.size, digest))
            return Snapshot(repo, commit, tuple(files))

    @contextmanager
    def open(self, snapshot: Snapshot, file: HubFile, *, start: int) -> Iterator[Iterator[bytes]]:
        """The file's bytes from `start` on.

        Errors: BrokenTransfer, in the middle too; InputError and StateError as for `snapshot`.
        """
        url = hf_hub_url(snapshot.repo, file.name, revision=snapshot.commit, endpoint=self.endpoint)
        headers = {**build_hf_headers(), "Accept-Encoding": "identity"}  # a compressed body has no byte positions
        if start:
            headers["Range"] = f"bytes={start}-"
        what = f"{file.name} of {snapshot.repo}"
        with (
            self._refusals(what),
            get_session().stream("GET", url, headers=headers, timeout=TIMEOUT_S, follow_redirects=True) as response,
        ):
            hf_raise_for_status(response)
            is_from_start = response.status_code != 206  # a hub, or a proxy before it, that knows no Range
            yield _without_first(start if is_from_start else 0, response.iter_bytes())

    @contextmanager
    def _refusals(self, what: str) -> Iterator[None]:
        try:
            yield
        except OfflineModeIsEnabled as error:
            raise ConfigError(
                "HF_HUB_OFFLINE is set, so no hub may be asked; nothing was fetched. Unset it", param="HF_HUB_OFFLINE"
            ) from error
        except HfHubHTTPError as error:
            self._refuse_status(what, error)
        except HubHTTPError as error:
            raise BrokenTransfer(f"{self.endpoint} gave no answer for {what}: {reason_of(error)}") from error

    def _refuse_status(self, what: str, error: HfHubHTTPError) -> NoReturn:
        status, wait_s = error.response.status_code, error.response.headers.get("Retry-After", "")
        said = f"{self.endpoint} answers {status} for {what}"
        if status == 404:
            raise InputError(
                f"{said}; nothing was made. Check the name and the revision", param="repo", code="not_found"
            ) from error
        if status in (401, 403):
            raise InputError(
                f"{said}: it is private, gated, or does not exist; nothing was made. Ask for access on its page and "
                "set HF_TOKEN",
                param="repo",
                code="no_access",
            ) from error
        if status == 429:
            after_s = int(wait_s) if wait_s.isdecimal() else None
            hint = f"Try again in {after_s} s" if after_s is not None else "Try again later"
            raise StateError(
                f"{said}: too many requests; what arrived is kept. {hint}", code="rate_limited", retry_after_s=after_s
            ) from error
        if status == 408 or status >= 500:
            raise BrokenTransfer(said) from error
        raise self._not_a_hub(what) from error

    def _not_a_hub(self, what: str) -> MlxcelError:
        return StateError(
            f"{self.endpoint} gives no answer of a hub for {what}; nothing was made. Check HF_ENDPOINT and proxies"
        )


def _without_first(n_bytes: int, pieces: Iterator[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        if rest := piece[n_bytes:]:
            yield rest
        n_bytes = max(0, n_bytes - len(piece))
