"""A stand-in for W&B's server: keeps all that is sent to it, and answers as much as the client needs to go on."""

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PROJECT = {"id": "p", "name": "label-noise", "entity": {"id": "e", "name": "a-team"}}


class Server(ThreadingHTTPServer):
    """`received` is every request in full; `rows` what a run's history has become."""

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
        """The run as the server knows it."""
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

    def answer(self, operation: str, variables: dict[str, Any]) -> dict[str, Any]:
        name = str(variables.get("name"))
        if operation == "RunResumeStatus":
            return {"data": {"model": {**PROJECT, "bucket": self.run(name) if self.rows else None}}}
        if operation == "UpsertBucket":
            return {"data": {"upsertBucket": {"bucket": self.run(name), "inserted": not self.rows}}}
        if operation in ("Viewer", "GetDefaultEntity"):
            return {
                "data": {
                    "viewer": {
                        "id": "u",
                        "entity": "a-team",
                        "username": "u",
                        "email": "",
                        "flags": "{}",
                        "teams": {"edges": []},
                    }
                }
            }
        if operation == "UpsertView2":
            self.views.append(variables)
            return {
                "data": {
                    "upsertView": {"view": {"id": "v", "name": variables["name"]}, "inserted": True}
                }
            }
        return {"data": None, "errors": [{"message": f"{operation} is not answered here"}]}


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
            answer: dict[str, Any] = {"exitcode": None, "limits": {}}
        else:
            operation = (
                sent.get("operationName") or sent.get("query", "").replace("(", " ").split()[1]
            )
            answer = self.server.answer(operation, sent.get("variables") or {})
        content = json.dumps(answer).encode()
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
