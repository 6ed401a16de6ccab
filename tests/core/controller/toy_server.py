"""A server with one canned answer, run in a process of its own by the controller's tests. Standard library only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

STATE = {"progress": 0, "running": 0, "healthy": True, "refuse": False}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.answer(200 if STATE["healthy"] else 500, {"alive": STATE["healthy"], **STATE, "pid": os.getpid()})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])) or b"{}")
        if self.path == "/state":
            STATE.update(body)
            return self.answer(200, STATE)
        if STATE["refuse"] and self.path == "/pause":
            return self.answer(500, {"error": "refused"})
        if self.path in ("/pause", "/continue", "/abort"):
            return self.answer(200, {"path": self.path, "body": body})
        if body.get("die"):
            os._exit(9)
        if body.get("sleep_s"):
            time.sleep(body["sleep_s"])
        return self.answer(200, {"id": body["id"], "key": self.headers["authorization"]})

    def answer(self, status: int, content: dict[str, Any]) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        return


def main(host: str, port: int, behaviour: str) -> None:
    """Behaviours: ``good``; ``crash`` at the start; ``hang`` without ever listening; ``slow`` to start."""
    helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    print(f"toy server {behaviour} with helper {helper.pid}", flush=True)
    if behaviour == "crash":
        sys.exit("ValueError: cannot load the weights")
    if behaviour == "hang":
        time.sleep(600)
    if behaviour == "slow":
        time.sleep(1.5)
    ThreadingHTTPServer((host, port), Handler).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
