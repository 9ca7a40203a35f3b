"""Requests that an agent signs itself, instead of showing a token (P-5): `Client(url, signer=AgentSigner(agent, key))`.

Other services know the agent by the key that its domain gives, or that somebody pinned. Good for tasks and swarms; everything
else asks for a token.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Generator

import httpx2

from waypost.messaging.request_signatures import AGENT_URI_PREFIX, parse_agent_uri, sign_request
from waypost.trust.keys.private_key import PrivateKey


class AgentSigner(httpx2.Auth):
    """`to` is the agent that is spoken to: by default the one that the request names, else the one of the server's name."""

    requires_request_body = True

    def __init__(
        self, agent: str, key: PrivateKey, to: str | None = None, *, now: Callable[[], float] = time.time
    ) -> None:
        self.agent = parse_agent_uri(agent, "agent")
        self._key = key
        self._to = to
        self._now = now

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        to = request.url.params.get("agent") or self._to or f"{AGENT_URI_PREFIX}{request.url.host}"
        signed = (str(uuid.uuid4()), self.agent, to)
        path = request.url.raw_path.partition(b"?")[0].decode("ascii")
        headers = sign_request(self._key, signed, request.method, path, self._now(), request.content)
        request.headers.update(headers)
        request.headers.pop("Authorization", None)
        yield request
