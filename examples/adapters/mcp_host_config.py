"""MCP hosts: print the configuration with which Claude, Cursor and VS Code use the tools of the registry.

Start: scripts/serve, then python examples/adapters/mcp_host_config.py

The command does the same: `waypost mcp --print-config vscode > .vscode/mcp.json`.
"""

import json

from waypost import SyncClient
from waypost.adapters.mcp_hosts import HOSTS


def main() -> None:
    with SyncClient() as client:
        for name, configure in HOSTS.items():
            print(f"# {name}")
            print(json.dumps(configure(client.base_url, None), indent=2))


if __name__ == "__main__":
    main()
