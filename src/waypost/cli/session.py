"""A session of a command: connection to a service and output format, from the shared options."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import httpx2
import msgspec

from waypost.cli.options import merge_options, shared_options
from waypost.cli.output import Printer
from waypost.client.sync.client import SyncClient
from waypost.settings import ConnectionSettings, Settings, load_connection_settings, load_settings


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


def with_session(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the shared options; the command receives them as its first argument, a `Session`."""

    @click.pass_context
    @functools.wraps(function)
    def command(context: click.Context, /, **given: Any) -> Any:
        shared = {name: given.pop(name) for name in Session.__struct_fields__}
        return function(Session(**merge_options(context, shared)), **given)

    return shared_options(command)
