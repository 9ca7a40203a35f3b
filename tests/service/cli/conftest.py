"""One service for the commands of these tests, and a shell to run them in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.server import RunningServer, running_server
from support.shell import Shell


@pytest.fixture(scope="session")
def server() -> Iterator[RunningServer]:
    with running_server("--allow-cidrs", "127.0.0.1/32") as running:
        yield running


@pytest.fixture
def shell(tmp_path: Path, server: RunningServer) -> Shell:
    return Shell(tmp_path, server.environment())


@pytest.fixture
def agent(request: pytest.FixtureRequest) -> dict[str, Any]:
    """A document that no other test registers."""
    name = request.node.name.split("[")[0]
    return {
        "id": f"https://agents.example.net/{name}",
        "name": name.replace("_", " "),
        "description": "Translates invoices between French and German.",
        "tags": ["translation", name.replace("_", "-")[:60]],
        "examples": [{"text": "Translate this invoice to German."}],
        "bindings": [{"protocol": "https", "endpoint": "https://agents.example.net/invoke"}],
        "status": "active",
        "version": "1.0.0",
        "updated_at": "2026-05-08T00:00:00Z",
    }
