"""The table of operations is complete: every row has a command and a method, every route has a row."""

from __future__ import annotations

import inspect
from pathlib import Path

import click
import pytest

from support.service import service
from waypost import errors
from waypost.app.http import MOUNTED_ROUTES
from waypost.cli.main import COMMANDS, cli
from waypost.client.aio.client import Client
from waypost.client.sync.client import SyncClient
from waypost.errors import ERROR_CODES
from waypost.model.principal import SCOPES
from waypost.registry.operations import OPERATIONS, Operation
from waypost.server.http.routing import Route

# Commands that no operation names. Most do not call the service: they start one, describe the installation, use the LAN or
# stdin, or read the data folder. The others, such as `apply`, use operations that name another command.
WITHOUT_OPERATION = {
    "serve",
    "demo",
    "completion",
    "version",
    "announce",
    "browse",
    "mcp",
    "backup",
    "restore",
    "check",
    "store",
    "validate",
    "apply",
    "call",
    "conformance",
}
# Methods of the clients that are no operation: another form of an operation's result, and closing the client.
EXTRA_METHODS = {
    "document",
    "discover_agents",
    "keep",
    "call",
    "page",
    "wait_task",
    "export_lines",
    "health",
    "version",
    "aclose",
    "close",
}

rows = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=list(OPERATIONS))


def find_command(words: str) -> click.Command | None:
    """The command behind `token mint`, or None."""
    found: click.Command | None = cli
    for word in words.split():
        if not isinstance(found, click.Group):
            return None
        found = found.get_command(click.Context(found), word)
    return found


@rows
def test_the_command_of_an_operation_exists_and_has_help(operation: Operation) -> None:
    if operation.command is not None:
        command = find_command(operation.command)
        assert command is not None, f"add {operation.command!r} to COMMAND_GROUPS in cli/main.py"
        assert command.help


@rows
def test_the_method_of_an_operation_exists_on_both_clients(operation: Operation) -> None:
    if operation.method is not None:
        for client in (Client, SyncClient):
            method = getattr(client, operation.method, None)
            assert inspect.isfunction(method), (
                f"add {operation.method} to client/aio/client.py, then run scripts/unasync.py"
            )
            assert method.__doc__


@rows
def test_scope_and_errors_of_an_operation_are_known(operation: Operation) -> None:
    assert operation.scope in (None, *SCOPES)
    assert set(operation.errors) <= set(ERROR_CODES)
    if operation.scope is not None:
        assert {errors.Unauthorized, errors.MissingScope} <= set(operation.errors)


def test_every_command_belongs_to_an_operation_or_has_none_on_purpose() -> None:
    named = {str(row.command).split()[0] for row in OPERATIONS.values() if row.command}
    missing = set(COMMANDS) - WITHOUT_OPERATION - named
    assert not missing, (
        f"name {missing} as `command` of an operation in registry/operations.py or, if it has none of its own, "
        "in WITHOUT_OPERATION"
    )
    assert named <= set(COMMANDS), "an operation names a command that COMMANDS in cli/main.py lacks"
    both = named & WITHOUT_OPERATION
    assert not both, f"an operation names {both}: remove it from WITHOUT_OPERATION"


@pytest.mark.parametrize("client", [Client, SyncClient])
def test_every_method_of_a_client_is_an_operation(client: type) -> None:
    methods = {name for name, _ in inspect.getmembers(client, inspect.isfunction) if not name.startswith("_")}
    named = {row.method for row in OPERATIONS.values() if row.method}
    unnamed, missing = methods - EXTRA_METHODS - named, named - methods
    assert not unnamed, f"name {unnamed} as `method` of an operation in registry/operations.py"
    assert not missing, f"add {missing} to client/aio/client.py, then run scripts/unasync.py"


async def test_every_route_has_a_row_and_every_row_a_route(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        routes = [*bench.application.http_app.router.routes, *MOUNTED_ROUTES]
        without_route = set(OPERATIONS) - {route.operation for route in routes}
        assert not without_route, (
            f"add a route for {without_route} in server/api/, and list its API class in make_http_app of app/http.py"
        )
        open_paths = {route.path for route in routes if route.open or OPERATIONS[route.operation].scope is None}
        # SURFACE: always open, with the assets of the pages; each checks the caller itself.
        assert open_paths == {
            "/",
            "/style.css",
            "/page.js",
            "/icon.svg",
            "/preview.png",
            "/favicon.ico",
            "/a/{id}",
            "/changes",
            "/changes/stream",
            "/stats",
            "/peers",
            "/reference",
            "/register",
            "/sign-in",
            "/sign-out",
            "/agent/connect",
            "/agent/chat",  # a peer authenticates by its hello
            "/.well-known/agent.json",
            "/.well-known/agent-capabilities.json",  # what `cap` of a zone names, and the same under a provider's name:
            "/.well-known/agents/{id}.json",  # who resolves a domain has no token
            "/.well-known/agent-capabilities/{id}.json",
            "/.well-known/agent-card.json",
            "/.well-known/agent-card",
            "/a2a",  # POST: searches the public agents
            "/a2a/.well-known/agent-card.json",  # the service itself
            "/a2a/{id}/.well-known/agent-card.json",
            "/.well-known/ai-catalog.json",
            "/ard/",  # what the catalog says of the registry
            "/v0.1/servers",  # the MCP registry API
            "/v0.1/servers/{name}/versions",
            "/v0.1/servers/{name}/versions/{version}",
            "/v0/servers",
            "/v0/servers/{name}/versions",
            "/v0/servers/{name}/versions/{version}",
            "/.well-known/oauth-protected-resource",
            "/schemas/{id}.json",
            "/audit/checkpoint",  # tells nothing of hidden agents: it grows with time alone
            "/audit/proof",
            "/healthz",
            "/readyz",
        }


def test_a_route_of_an_unknown_operation_says_where_to_add_it() -> None:
    with pytest.raises(ValueError, match=r"GET /new: .* 'new'.* registry/operations\.py"):
        Route(method="GET", path="/new", operation="new")


async def test_the_table_is_served_as_it_stands(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        served = (await bench.admin().get("/api/v1/operations")).json()["operations"]
    assert [row["name"] for row in served] == list(OPERATIONS)
    for row in served:
        operation = OPERATIONS[row["name"]]
        assert (row["scope"], row["command"], row["method"]) == (operation.scope, operation.command, operation.method)
        assert set(row["errors"]) == {error.code for error in operation.errors}
