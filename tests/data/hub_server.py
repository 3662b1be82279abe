"""A local server that answers like the Hugging Face Hub, and fails like networks do."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "c0ffee" * 6 + "beef"
LICENSE = "cc-by-4.0"


def rows(first, count):
    return "".join(
        json.dumps({"en": f"the dog {i}", "de": f"der Hund {i}"}) + "\n"
        for i in range(first, first + count)
    )


FILES = {
    "train.jsonl": rows(0, 3000),
    "validation.jsonl": rows(3000, 20),
    "test.jsonl": rows(4000, 20),
}


def encoded(content):
    """The bytes of a file, which is given as text or as bytes."""
    return content if isinstance(content, bytes) else content.encode()


class Hub:
    """The server. The name of a repository chooses its behavior: `test/served`, `test/cut` and so
    on.
    """

    def __init__(self):
        self.requests = Counter()  # (method, repository, file)
        self.sent = Counter()  # bytes of content, by repository
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def info(self, repository):
        """The Hub's answer about a repository: its commit, its files, their sizes and hashes."""
        siblings = []
        for name, text in self.files(repository).items():
            content = encoded(text)
            sha256 = hashlib.sha256(content).hexdigest()
            if repository == "test/hash":
                sha256 = "0" * 64
            large = {"lfs": {"sha256": sha256, "size": len(content), "pointerSize": 134}}
            if repository == "test/small":  # not in LFS: has a git hash only
                large = {}
            git = hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()
            siblings.append({"rfilename": name, "size": len(content), "blobId": git, **large})
        return {
            "id": repository,
            "sha": COMMIT,
            "siblings": siblings,
            "cardData": {"license": LICENSE},
        }

    def files(self, repository):
        if repository == "test/script":
            return {"README.md": "", "script.py": "print(1)\n"}
        return FILES

    def _handler(hub):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *given):
                pass

            def do_HEAD(self):
                self.answer(body=False)

            def do_GET(self):
                self.answer(body=True)

            def answer(self, body):  # noqa: RET503
                path = unquote(urlsplit(self.path).path)
                if path.startswith("/api/datasets/"):
                    return self.api(path.removeprefix("/api/datasets/"))
                moved = path.startswith("/elsewhere")
                _, _, owner, name, _, revision, file = path.removeprefix("/elsewhere").split("/", 6)
                repository = f"{owner}/{name}"
                hub.requests[self.command, repository, file] += 1
                content = encoded(hub.files(repository).get(file, ""))
                etag = hashlib.sha256(content).hexdigest()
                headers = {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
                assert revision == COMMIT
                if repository == "test/missing":
                    return self.reply(404, {"X-Error-Code": "EntryNotFound", **headers}, b"", body)
                if repository == "test/busy":
                    return self.reply(500, headers, b"", body)
                if repository == "test/redirected" and not moved:
                    linked = {"X-Linked-Etag": headers["ETag"], "X-Linked-Size": str(len(content))}
                    place = {"Location": f"{hub.address}/elsewhere{path}"}
                    return self.reply(302, {**headers, **linked, **place}, b"", body)
                self.send(repository, file, headers, content, body)

            def api(self, path):  # noqa: RET503
                repository, _, revision = path.partition("/revision/")
                hub.requests["API", repository, revision] += 1
                if repository == "test/nothing":
                    return self.reply(404, {"X-Error-Code": "RepoNotFound"}, b"{}", True)
                if revision == "nowhere":
                    return self.reply(404, {"X-Error-Code": "RevisionNotFound"}, b"{}", True)
                if repository == "test/gated":
                    return self.reply(403, {"X-Error-Code": "GatedRepo"}, b"{}", True)
                self.reply(
                    200,
                    {"Content-Type": "application/json"},
                    json.dumps(hub.info(repository)).encode(),
                    True,
                )

            def send(self, repository, file, headers, content, body):
                """The file from the requested offset on; truncated if the repository's name asks
                for it.
                """
                asked = self.headers.get("Range")
                start = int(asked.removeprefix("bytes=").partition("-")[0]) if asked else 0
                span = (
                    {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
                    if asked
                    else {}
                )
                part = content[start:]
                sent = part
                if body and repository == "test/cut" and hub.requests["GET", repository, file] == 1:
                    sent = part[: len(part) // 2]
                elif body and repository == "test/truncated":
                    sent = part[: max(0, 1000 - start)]
                self.send_response(206 if asked else 200)
                for name, value in {**headers, **span, "Content-Length": str(len(part))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if body:
                    hub.sent[repository] += len(sent)
                    self.wfile.write(sent)
                if sent is not part:
                    self.wfile.flush()
                    self.close_connection = True

            def reply(self, status, headers, content, body):
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if body:
                    self.wfile.write(content)

        return Handler
