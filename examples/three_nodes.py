"""Three equal nodes over one PostgreSQL: what one acknowledges, the others know; one may fail.

Start: python examples/three_nodes.py postgresql://user:password@host/database          (needs: pip install '.[postgresql]')

The database should be empty. `scripts/cluster.py` starts a PostgreSQL and nodes to play with.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from waypost import Agent, SyncClient

GREETER = Agent("cluster-greeter", "Greeter", "Greets guests.").bind("https", "https://greeter.example.com/")


def start_node(stack: ExitStack, data: Path, database: str) -> tuple[subprocess.Popen[str], str]:
    """A node and its address."""
    command = [sys.executable, "-m", "waypost", "serve", "--port", "0", "--data", str(data), "--no-health-checks"]
    environment = {**os.environ, "WAYPOST_STORE": database}  # not as a flag: the URL may hold a password
    node = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    stack.callback(node.wait)
    stack.callback(node.terminate)
    ready = node.stdout.readline() if node.stdout else ""
    if not ready:
        sys.exit(f"The node in {data} did not start: is {database.rpartition('@')[2]} the right database?")
    return node, ready.split()[-1]


def main(database: str) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        nodes = []
        for number in (1, 2, 3):
            data = folder / f"node-{number}"
            data.mkdir(mode=0o700)
            if number > 1:  # every node has the same key, so that all accept the same tokens
                shutil.copy(folder / "node-1" / "cluster.key", data)
            nodes.append(start_node(stack, data, database))
        token = (folder / "node-1" / "admin.token").read_text().strip()
        addresses = [address for _, address in nodes]
        with SyncClient(addresses[0], token) as first:
            print("node 1:", first.register(GREETER).outcome)
        with SyncClient(addresses[2], token) as third:
            print("node 3:", third.get("cluster-greeter").description)
            nodes[0][0].kill()
            print("node 1 is gone; node 3:", third.find("greet guests").candidates[0].id)
            third.withdraw("cluster-greeter")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else sys.exit(__doc__))
