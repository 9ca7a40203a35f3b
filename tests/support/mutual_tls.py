"""Clients that show a certificate to a service in this process."""

from __future__ import annotations

import datetime
from typing import Any

import httpx2

from support.certificates import Authority, Issued
from support.service import Bench
from waypost.net.clock import ManualClock


def with_certificate(bench: Bench, shown: Issued, **headers: str) -> httpx2.AsyncClient:
    """A client whose connection showed a certificate, in the form that the listener passes on."""
    chain = {"tls": {"client_cert_chain": (shown.certificate.read_text(),)}}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await bench.application.http_app({**scope, "extensions": chain}, receive, send)

    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="https://127.0.0.1", headers=headers)


def tls(authority: Authority, **more: Any) -> dict[str, Any]:
    server = authority.server()
    return {"tls_cert": server.certificate, "tls_key": server.key, "client_ca": authority.certificate, **more}


def today() -> ManualClock:
    return ManualClock(datetime.datetime.now().timestamp())
