"""A session of a command: connection to a service and output format, from the shared options."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click
import httpx2
import msgspec

from waypost import limits
from waypost.cli.options import merge_options, shared_options
from waypost.cli.output import Printer, join_alternatives
from waypost.client.sync.client import SyncClient
from waypost.errors import Forbidden, NotFound, Unauthorized, Unavailable, WaypostError
from waypost.settings import ConnectionSettings, Settings, load_connection_settings, load_settings

Result = TypeVar("Result")

_TOKEN_HINT = (
    "Pass --token or set WAYPOST_TOKEN. On the machine of the service, --data DIR or WAYPOST_DATA names its data folder, "
    "which has the admin token."
)


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """The shared options of one command."""

    server: str | None = None
    token: str | None = None
    timeout: float | None = None
    ca: Path | None = None
    cert: Path | None = None
    cert_key: Path | None = None
    data: Path | None = None
    config: Path | None = None
    output: str = "human"

    def client(self, signer: httpx2.Auth | None = None) -> SyncClient:
        return SyncClient(
            self.server,
            self.token,
            self.timeout,
            data=self.data,
            config=self.config,
            ca=self.ca,
            cert=self.cert,
            cert_key=self.cert_key,
            signer=signer,
        )

    def connection(self) -> ConnectionSettings:
        flags = {"server": self.server, "token": self.token, "timeout": self.timeout, "data": self.data}
        flags |= {"ca": self.ca, "cert": self.cert, "cert_key": self.cert_key}
        return load_connection_settings(flags, config=self.config)

    def settings(self) -> Settings:
        return load_settings({"data": self.data}, config=self.config)

    def printer(self) -> Printer:
        return Printer(self.output)


def use_agent(client: SyncClient, name: str, operation: Callable[[str], Result]) -> Result:
    """Apply an operation to the agent with this id or alias; if there is none, to the one that the short name means.

    The service resolves a short name when it reads an agent. The other operations take ids only, so that a program never
    changes an agent that it did not name.
    """
    try:
        return operation(name)
    except NotFound as error:
        try:
            agent_id = client.get(name).id
        except (Unauthorized, Forbidden):
            raise error from None
        except NotFound as unknown:
            raise _suggest_by_search(client, name, unknown) from None
        if agent_id == name:
            raise
        return operation(agent_id)


def find_agent_uri(session: Session, agent: str) -> str:
    """The Agent URI of an Agent URI, a domain, or the id or short id of an agent in the registry."""
    if agent.startswith("agent:"):
        return agent
    try:
        with session.client() as client:
            found = use_agent(client, agent, lambda name: client.document(name, "adp")).body["identity"]
            if found["id"] != f"agent:{urlsplit(session.connection().base_url).hostname}":
                return str(found["id"])
            raise Unavailable(
                f"{agent} has no domain, and so no Agent URI.",
                path="agent",
                hint="Give it one with `waypost host DOMAIN AGENT`, or use the Agent URI of the service.",
            )
    except NotFound:
        if "." not in agent and agent != "localhost":
            raise
    except WaypostError:
        if "/" in agent or ":" in agent:
            raise
    return f"agent:{agent}"


def _suggest_by_search(client: SyncClient, name: str, error: NotFound) -> NotFound:
    """The service suggests ids that are written alike; if there are none, suggest agents that fit the name as a query."""
    if error.details.get("suggestions"):
        return error
    try:
        found = client.find(
            name.replace("-", " ").replace("_", " "), limit=limits.NEAR_IDS, min_match="possible", detail="minimal"
        ).candidates
    except WaypostError:
        return error
    if found:
        error.hint = f"Did you mean {join_alternatives([candidate.id for candidate in found])}?"
    return error


def with_session(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the shared options; the command receives them as its first argument, a `Session`."""

    @click.pass_context
    @functools.wraps(function)
    def command(context: click.Context, /, **given: Any) -> Any:
        shared = {name: given.pop(name) for name in Session.__struct_fields__}
        session = Session(**merge_options(context, shared))
        try:
            return function(session, **given)
        except Unauthorized as error:
            if session.connection().token is None:
                error.hint = _TOKEN_HINT
            raise

    return shared_options(command)
