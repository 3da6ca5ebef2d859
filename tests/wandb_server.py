"""Fake W&B server: stores all requests and sends the responses that the W&B client needs."""

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PROJECT = {"id": "p", "name": "label-noise", "entity": {"id": "e", "name": "a-team"}}

VIEWER = {
    "id": "u",
    "entity": "a-team",
    "username": "u",
    "email": "",
    "flags": "{}",
    "teams": {"edges": []},
}


class Server(ThreadingHTTPServer):
    """`received` has all requests, `rows` the history of the run."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.received: list[bytes] = []
        self.rows: list[dict[str, Any]] = []
        self.exit_codes: list[int] = []
        self.views: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def run(self, name: str) -> dict[str, Any]:
        """The run in the form of the W&B API."""
        tail = [json.dumps({"_step": self.rows[-1]["_step"], "_runtime": 1})] if self.rows else []
        texts = {
            "summaryMetrics": "{}",
            "config": "{}",
            "historyTail": json.dumps(tail),
            "eventsTail": "[]",
            "wandbConfig": '{"t": 1}',
        }
        counts = {"logLineCount": 0, "eventsLineCount": 0, "historyLineCount": len(self.rows)}
        return {
            "id": "UnVu",
            "name": name,
            "displayName": name,
            "description": "",
            "sweepName": None,
            "tags": [],
            "project": PROJECT,
            **texts,
            **counts,
        }

    def respond(self, operation: str, variables: dict[str, Any]) -> dict[str, Any]:
        name = str(variables.get("name"))
        if operation == "RunResumeStatus":
            return {"data": {"model": {**PROJECT, "bucket": self.run(name) if self.rows else None}}}
        if operation == "UpsertBucket":
            return {"data": {"upsertBucket": {"bucket": self.run(name), "inserted": not self.rows}}}
        if operation in ("Viewer", "GetDefaultEntity"):
            return {"data": {"viewer": VIEWER}}
        if operation == "UpsertView2":
            self.views.append(variables)
            view = {"id": "v", "name": variables["name"]}
            return {"data": {"upsertView": {"view": view, "inserted": True}}}
        return {"data": None, "errors": [{"message": f"{operation} is not supported"}]}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        headers = {name: value for name, value in self.headers.items() if name != "Authorization"}
        self.server.received.append(f"{self.path} {headers}\n".encode() + body)
        sent = json.loads(body or b"{}")
        if self.path.endswith("/file_stream"):
            lines = (sent.get("files") or {}).get("wandb-history.jsonl", {}).get("content", [])
            self.server.rows += [json.loads(line) for line in lines]
            self.server.exit_codes += [sent["exitcode"]] if sent.get("complete") else []
            response: dict[str, Any] = {"exitcode": None, "limits": {}}
        else:
            operation = (
                sent.get("operationName") or sent.get("query", "").replace("(", " ").split()[1]
            )
            response = self.server.respond(operation, sent.get("variables") or {})
        content = json.dumps(response).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *parts: Any) -> None:
        pass


@contextmanager
def wandb_server() -> Iterator[Server]:
    with Server() as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
