"""A newcomer: from the first line of the README to a called agent, in a clean clone with an empty home.

    python tests/e2e/newcomer.py            says how many seconds each success took
    python tests/e2e/newcomer.py --json     the same as JSON

What the README shows is typed as it is written, on a free port. Then the newcomer registers an agent of their own, which
answers on localhost, finds it and calls it. Typing is not waited for, but counted.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "http://127.0.0.1:8440"  # of the README
READY_SECONDS = 600
TYPED_PER_SECOND = 3.3  # characters: 40 words a minute
PASSED_ON = ("PIP_", "SSL_CERT", "REQUESTS_CA", "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY")
BLOCK = re.compile(r"^```sh[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


class OwnAgent(BaseHTTPRequestHandler):
    """The agent that the newcomer has: it speaks A2A 1.0, and its card is where clients look for it."""

    def do_GET(self) -> None:
        if self.path != "/.well-known/agent-card.json":
            self._answer({"error": "not found"}, 404)
            return
        self._answer(
            {
                "name": "Haiku Writer",
                "description": "Writes a haiku about any subject.",
                "version": "1.0.0",
                "supportedInterfaces": [
                    {"url": f"http://{self.headers['Host']}/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
                ],
                "capabilities": {},
                "defaultInputModes": ["text/plain"],
                "defaultOutputModes": ["text/plain"],
                "skills": [{"id": "haiku", "name": "Haiku", "description": "A poem of three lines.", "tags": ["poem"]}],
            }
        )

    def do_POST(self) -> None:
        call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        poem = "An old silent pond / a frog jumps into the pond / splash! Silence again."
        message = {"messageId": "1", "role": "ROLE_AGENT", "parts": [{"text": poem}]}
        self._answer({"jsonrpc": "2.0", "id": call["id"], "result": {"message": message}})

    def _answer(self, document: object, status: int = 200) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Print nothing for a request."""


class Newcomer:
    """A terminal in the clone, a clock, and a count of what was typed."""

    def __init__(self, clone: Path, home: Path, port: int) -> None:
        self.clone = clone
        self.address = f"http://127.0.0.1:{port}"
        self.environment = {
            **{name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)},
            "HOME": str(home),
            "PATH": f"{clone}/.venv/bin:/usr/local/bin:/usr/bin:/bin",
            "WAYPOST_SERVER": self.address,
        }
        self.started = time.monotonic()
        self.typed = 0

    def seconds(self) -> float:
        return round(time.monotonic() - self.started, 1)

    def type(self, line: str) -> str:
        """Type a command; it must succeed."""
        self.typed += len(line)
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line.replace(ADDRESS, self.address)],
            cwd=self.clone,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=READY_SECONDS,
            check=False,
        )
        if done.returncode:
            sys.exit(f"$ {line}\n{done.stdout}{done.stderr}")
        return done.stdout


def readme_lines(text: str) -> tuple[str, list[str]]:
    """The command that starts Waypost, and the lines of the tour."""
    first, tour = BLOCK.findall(text)[:2]
    lines: list[str] = []
    for line in tour.strip().splitlines():
        if lines and lines[-1].count("'") % 2:  # an open quote
            lines[-1] += f"\n{line}"
        else:
            lines.append(line)
    return str(first).splitlines()[0].partition("#")[0].strip(), lines


@contextmanager
def serving(newcomer: Newcomer, command: str, port: int) -> Iterator[None]:
    """The first terminal. Returns when the page answers."""
    process = subprocess.Popen(
        ["bash", "-c", f"exec {command} --port {port}"],
        cwd=newcomer.clone,
        env={name: value for name, value in newcomer.environment.items() if name != "WAYPOST_SERVER"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    progress: list[str] = []
    reader = threading.Thread(target=lambda: progress.extend(process.stderr or ()), daemon=True)
    reader.start()
    try:
        if not process.stdout or not process.stdout.readline().startswith("waypost ready "):
            sys.exit("".join(progress[-40:]) or "the service did not start")
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


def play(folder: Path) -> dict[str, float]:
    """The first hour; the seconds since its beginning at each success."""
    home, clone = folder / "home", folder / "waypost"
    home.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    newcomer = Newcomer(clone, home, port)
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True, timeout=READY_SECONDS)
    command, tour = readme_lines((clone / "README.md").read_text(encoding="utf-8"))
    reached = {"cloned": newcomer.seconds()}
    with serving(newcomer, command, port):
        reached["ready"] = newcomer.seconds()
        with urllib.request.urlopen(urllib.request.Request(newcomer.address, headers={"Accept": "text/html"})) as page:
            if b"<title>" not in page.read():
                sys.exit("the first page is no page")
        reached["first page"] = newcomer.seconds()
        for line in tour:
            output = newcomer.type(line)
            if " find " in line and "first find" not in reached:
                if "Invoice Translator" not in output:
                    sys.exit(f"$ {line}\n{output}")
                reached["first find"] = newcomer.seconds()
        reached["tour"] = newcomer.seconds()
        return reached | _own_agent(newcomer)


def _own_agent(newcomer: Newcomer) -> dict[str, float]:
    before, typed = newcomer.seconds(), newcomer.typed
    with HTTPServer(("127.0.0.1", 0), OwnAgent) as agent:
        threading.Thread(target=agent.serve_forever, daemon=True).start()
        newcomer.type(f"waypost register http://localhost:{agent.server_port}")
        if "Haiku Writer" not in newcomer.type("waypost find write a poem about autumn"):
            sys.exit("the newcomer's own agent is not found")
        found = newcomer.seconds()
        typing = (newcomer.typed - typed) / TYPED_PER_SECOND
        if "frog" not in newcomer.type('waypost call "haiku writer" A poem about autumn'):
            sys.exit("the newcomer's own agent did not answer")
        agent.shutdown()
    return {"own agent found, with typing": round(found - before + typing, 1), "called": newcomer.seconds()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="waypost-newcomer-") as folder:
        reached = play(Path(folder))
    if options.json:
        print(json.dumps(reached))
    else:
        print("\n".join(f"{seconds:6.1f} s  {name}" for name, seconds in reached.items()))


if __name__ == "__main__":
    main()
