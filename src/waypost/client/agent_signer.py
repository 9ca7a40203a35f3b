"""Requests that an agent signs with its key instead of sending a token (P-5): `Client(url, signer=AgentSigner(agent, key))`.

The service finds the key through the agent's domain, or it was pinned there. Signed requests work for tasks and swarms; all
other requests need a token.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Generator

import httpx2

from waypost.messaging.request_signatures import AGENT_URI_PREFIX, parse_agent_uri, sign_request
from waypost.trust.keys.private_key import PrivateKey


class AgentSigner(httpx2.Auth):
    """Signs each request as an agent."""

    requires_request_body = True

    def __init__(
        self, agent: str, key: PrivateKey, to: str | None = None, *, now: Callable[[], float] = time.time
    ) -> None:
        """Sign requests as an agent.

        Args:
            agent: The Agent URI of the sender.
            key: Its private key.
            to: The addressee of requests that name none with `agent=`. Default: the agent of the server's host name.
            now: The clock.
        """
        self.agent = parse_agent_uri(agent, "agent")
        self._key = key
        self._to = to
        self._now = now

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Add the signature headers to a request."""
        to = request.url.params.get("agent") or self._to or f"{AGENT_URI_PREFIX}{request.url.host}"
        signed = (str(uuid.uuid4()), self.agent, to)
        path = request.url.raw_path.partition(b"?")[0].decode("ascii")
        request.headers.update(sign_request(self._key, signed, request.method, path, self._now(), request.content))
        request.headers.pop("Authorization", None)
        yield request
