"""A command or a client: which service it talks to, and as whom."""

from __future__ import annotations

from waypost.settings.row import Setting

CONNECTING = (
    Setting(
        name="server",
        kind="text",
        in_file=False,
        shown_default="http://127.0.0.1:PORT",
        doc="The service that a command or a `Client` talks to.",
    ),
    Setting(
        name="token",
        kind="text",
        in_file=False,
        shown_default="DATA/admin.token, when the service is on this machine",
        doc="The bearer token that is sent with each request.",
    ),
    Setting(
        name="timeout",
        kind="seconds",
        default=30.0,
        least=0.001,
        in_file=False,
        doc="How long to wait for an answer, in seconds.",
    ),
    Setting(
        name="ca",
        kind="folder",
        in_file=False,
        shown_default="the usual authorities",
        doc="Authorities by which the service is known (PEM), for https.",
    ),
    Setting(
        name="cert",
        kind="folder",
        in_file=False,
        shown_default="none",
        doc="A client certificate to show, with its key or beside `cert_key` (PEM).",
    ),
    Setting(
        name="cert_key",
        kind="folder",
        in_file=False,
        shown_default="the key in `cert`",
        doc="The private key of the client certificate (PEM).",
    ),
)
