"""A small hub on a free local port: the two answers of a real one that `mlxcel pull` needs, and its troubles on cue.

    with small_hub() as hub:
        hub.add("owner/name", folder)               # at commit hub.commits["owner/name", "main"]
        hub.cuts["model.safetensors"] = [1000, 0]   # the next two answers end after so many bytes

Like the real one it redirects weights to another host, where the token must not go.
Source: https://huggingface.co/docs/hub/api
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

WAIT_S = 30.0


@dataclass(frozen=True)
class Asked:
    """A request for a file's bytes, or for a repository (then `file` is empty)."""

    file: str
    start: int
    has_token: bool
    is_redirected: bool


@dataclass
class Hold:
    """An answer that stops after `n_bytes` until `go` is set."""

    n_bytes: int
    reached: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)


class SmallHub:
    """What it holds and which troubles are on. Set them before the request that they are for."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.commits: dict[tuple[str, str], str] = {}
        self.statuses: dict[str, tuple[int, dict[str, str], bytes]] = {}
        """By repository or file: what is answered instead."""
        self.cuts: dict[str, list[int]] = defaultdict(list)
        self.damaged: set[str] = set()
        self.holds: dict[str, Hold] = {}
        self.claimed_bytes: dict[str, int] = {}
        self.without_ranges: set[str] = set()
        self.is_dead = False
        """Takes connections and closes them without a word."""
        self.dies_with_next_cut = False
        self._folders: dict[str, Path] = {}
        hub = self

        class Handler(_Handler):
            def __init__(self, *arguments: Any) -> None:
                self.hub = hub
                super().__init__(*arguments)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def add(self, repo: str, folder: Path, revision: str = "main") -> str:
        """Put a folder at a revision of a repository; returns its commit, which every change of a file changes."""
        content = hashlib.sha1()
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            content.update(path.name.encode() + hashlib.sha1(path.read_bytes()).digest())
        commit = content.hexdigest()
        self.commits[repo, revision] = self.commits[repo, commit] = commit
        self._folders[commit] = folder
        return commit

    def fetches(self, file: str) -> list[int]:
        """Where each request for the bytes of `file` began."""
        return [asked.start for asked in self.asked if asked.file == file and not self._is_redirect(asked)]

    def describe(self, repo: str, commit: str) -> dict[str, Any]:
        folder = self._folders[commit]
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        return {
            "_id": "0",
            "id": repo,
            "sha": commit,
            "private": False,
            "tags": [],
            "siblings": [self._sibling(path, str(path.relative_to(folder))) for path in paths],
        }

    def path_of(self, commit: str, file: str) -> Path:
        return self._folders[commit] / file

    def close(self) -> None:
        for hold in self.holds.values():
            hold.go.set()
        self._server.shutdown()
        self._thread.join(WAIT_S)
        self._server.server_close()

    def _sibling(self, path: Path, name: str) -> dict[str, Any]:
        content = path.read_bytes()
        size = self.claimed_bytes.get(name, len(content))
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        sibling: dict[str, Any] = {"rfilename": name, "size": size, "blobId": blob}
        if is_large(name):
            sibling["blobId"] = "0" * 40  # of the pointer, not of the content
            sibling["lfs"] = {"size": size, "sha256": hashlib.sha256(content).hexdigest(), "pointerSize": 130}
        return sibling

    def _is_redirect(self, asked: Asked) -> bool:
        return is_large(asked.file) and not asked.is_redirected


def is_large(name: str) -> bool:
    return name.endswith((".safetensors", ".bin"))


@contextmanager
def small_hub() -> Iterator[SmallHub]:
    hub = SmallHub()
    try:
        yield hub
    finally:
        hub.close()


class _Handler(BaseHTTPRequestHandler):
    """/api/models/REPO/revision/REVISION, /REPO/resolve/REVISION/FILE, and /cdn/COMMIT/FILE for large ones."""

    protocol_version = "HTTP/1.1"
    hub: SmallHub

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.hub.is_dead:
            self.close_connection = True
            return
        path = unquote(urlsplit(self.path).path)
        if path.startswith("/api/models/"):
            repo, _, revision = path.removeprefix("/api/models/").partition("/revision/")
            self._answer_repo(repo, revision or "main")
        elif path.startswith("/cdn/"):
            commit, file = path.removeprefix("/cdn/").split("/", 1)
            self._answer_file(commit, file, is_redirected=True)
        elif "/resolve/" not in path:
            self._note(path, is_redirected=False)  # no one has a reason to ask for anything else
            self._send(404, {}, b"")
        else:
            repo, _, rest = path[1:].partition("/resolve/")
            revision, file = rest.split("/", 1)
            self._answer_file(self.hub.commits[repo, revision], file, is_redirected=False)

    def _answer_repo(self, repo: str, revision: str) -> None:
        self._note("", is_redirected=False)
        commit = self.hub.commits.get((repo, revision))
        if repo in self.hub.statuses:
            self._send(*self.hub.statuses[repo])
        elif commit is None:
            self._send(404, {}, b'{"error": "not found"}')
        else:
            body = json.dumps(self.hub.describe(repo, commit)).encode()
            self._send(200, {"Content-Type": "application/json"}, body)

    def _answer_file(self, commit: str, file: str, *, is_redirected: bool) -> None:
        start = self._note(file, is_redirected=is_redirected)
        if file in self.hub.statuses:
            self._send(*self.hub.statuses[file])
        elif is_large(file) and not is_redirected:
            self._send(302, {"Location": f"http://localhost:{self.hub.port}/cdn/{commit}/{file}"}, b"")
        else:
            content = bytearray(self.hub.path_of(commit, file).read_bytes())
            if file in self.hub.damaged:
                content[len(content) // 2] ^= 1
            if file in self.hub.without_ranges:
                start = 0
            self._send_content(file, bytes(content[start:]), start, len(content))

    def _send_content(self, file: str, content: bytes, start: int, total: int) -> None:
        """`content` is the rest of a file of `total` bytes."""
        headers = {"Content-Range": f"bytes {start}-{total - 1}/{total}"} if start else {}
        self._send_head(206 if start else 200, headers, len(content))
        if self.hub.cuts[file]:
            self.wfile.write(content[: self.hub.cuts[file].pop(0)])
            self.hub.is_dead = self.hub.is_dead or self.hub.dies_with_next_cut
            self.close_connection = True
        elif hold := self.hub.holds.pop(file, None):
            self.wfile.write(content[: hold.n_bytes])
            hold.reached.set()
            hold.go.wait(WAIT_S)
            try:
                self.wfile.write(content[hold.n_bytes :])
            except OSError:
                self.close_connection = True  # the reader is gone
        else:
            self.wfile.write(content)

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self._send_head(status, headers, len(body))
        self.wfile.write(body)

    def _send_head(self, status: int, headers: dict[str, str], n_bytes: int) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(n_bytes)}.items():
            self.send_header(name, value)
        self.end_headers()

    def _note(self, file: str, *, is_redirected: bool) -> int:
        span = self.headers.get("Range", "bytes=0-")
        start = int(span.removeprefix("bytes=").removesuffix("-"))
        has_token = "Authorization" in self.headers
        self.hub.asked.append(Asked(file, start, has_token, is_redirected))
        return start
