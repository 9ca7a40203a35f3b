"""Two registries of different operators: one follows the other, and an agent of one is found in both, with its origin.

Start: python examples/two_registries.py          (starts its own services)
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from waypost import Agent, SyncClient

LEDGER = Agent("ledger-keeper", "Ledger Keeper", "Balances the ledgers of small companies.", tags=["finance"])
LEDGER.bind("https", "https://ledger.example.com/")


def start_registry(stack: ExitStack, data: Path, *flags: str) -> SyncClient:
    """A registry, and a client that is its admin."""
    command = [sys.executable, "-m", "waypost", "serve", "--port", "0", "--data", str(data), "--no-health-checks"]
    server = subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    stack.callback(server.wait)
    stack.callback(server.terminate)
    ready = server.stdout.readline() if server.stdout else ""
    if not ready:
        sys.exit(f"The registry in {data} did not start.")
    return stack.enter_context(SyncClient(ready.split()[-1], (data / "admin.token").read_text().strip()))


def wait_until(is_true: Callable[[], object]) -> float:
    """How many seconds it took."""
    start = time.monotonic()
    while not is_true() and time.monotonic() - start < 30:
        time.sleep(0.02)
    return time.monotonic() - start


def main() -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        # A private network must be allowed; to everybody else, only https is used.
        here = start_registry(stack, folder / "here", "--allow-cidrs", "127.0.0.0/8")
        there = start_registry(stack, folder / "there", "--anonymous-read")

        def find() -> list[str]:
            return [candidate.id for candidate in here.find("balance a ledger").candidates]

        peer = here.peers_add(there.base_url, name="there")
        print(f"here follows there, whose key is {peer.key[:23]}…")
        there.register(LEDGER)
        print(f"found here after {wait_until(find):.1f} s")
        origin = here.find("balance a ledger").candidates[0].federation
        print("its origin is there:", origin is not None and origin.origin_service == there.base_url.rstrip("/"))
        there.withdraw("ledger-keeper")
        print(f"gone here after {wait_until(lambda: not find()):.1f} s")

        here.peers_remove("there")
        here.peers_add(there.base_url, name="there", pull=False, ask=True)  # copy nothing, ask instead
        there.register(LEDGER)
        print("asked by default:", bool(find()))
        asked = here.find("balance a ledger", federation="auto")
        print("asked when the search says so:", [candidate.name for candidate in asked.candidates])


if __name__ == "__main__":
    main()
