"""An agent that registers itself when it starts, renews its lease while it runs, and is withdrawn when it ends.

Start: scripts/serve, then python examples/keep_registered.py
"""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from waypost import Agent, KeptAgent, SyncClient


class Greeter(BaseHTTPRequestHandler):
    """The agent: it greets whoever sends a name."""

    def do_POST(self) -> None:
        name = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.end_headers()
        self.wfile.write(f"Good morning, {name}!".encode())

    def log_message(self, *_: object) -> None:
        """Print nothing for a request."""


def report(kept: KeptAgent) -> None:
    """Called after each renewal: `error` says why one failed; it is tried again."""
    print("renewed" if kept.error is None else f"not renewed: {kept.error}")


def main() -> None:
    with HTTPServer(("127.0.0.1", 0), Greeter) as server, SyncClient() as waypost:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        greeter = Agent("morning-greeter", "Morning Greeter", "Greets a guest by name.", tags=["greeting"])
        greeter.bind("http", f"http://127.0.0.1:{server.server_port}/")
        with waypost.keep(greeter, on_change=report) as kept:
            print(f"registered {kept.id} until {kept.receipt.expires_at}")
            print("called:", waypost.call("morning-greeter", "Ada"))
        print("withdrawn:", not waypost.find("greet a guest by name", tags=["greeting"]).candidates)
        server.shutdown()


if __name__ == "__main__":
    main()
