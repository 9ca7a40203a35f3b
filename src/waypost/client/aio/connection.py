"""A connection pool to one service: sends requests, repeats those that may be repeated, maps failures to errors."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import msgspec

from waypost import limits
from waypost.client.calls import AddressCheck, AgentRequest, AgentResponse, CallTarget, choose_address
from waypost.client.http import (
    LineDecoder,
    Retry,
    agent_unreachable,
    async_pause,
    async_resolve,
    error_from_response,
    error_from_transport,
    tls_context,
)
from waypost.client.requests import AnswerT, ApiRequest, parse_answer
from waypost.errors import TooLarge, WaypostError
from waypost.settings import ConnectionSettings, is_loopback

CONSISTENCY_TOKEN = "Waypost-Consistency-Token"


class AgentConnection:
    """Requests to one endpoint of an agent. It connects to the address that was checked, so that a name cannot be rebound."""

    def __init__(self, target: CallTarget, check: AddressCheck, address: ConnectionSettings) -> None:
        """Prepare requests.

        Args:
            target: The binding.
            check: Raises an error for an address that must not be connected to.
            address: Timeout and certificate authorities. No credential of the service is sent to an agent.
        """
        self._target = target
        self._check = check
        tls = msgspec.structs.replace(address, base_url=target.endpoint, cert=None, cert_key=None)
        self._http = httpx2.AsyncClient(
            headers={"User-Agent": "waypost"}, timeout=address.timeout, verify=tls_context(tls), trust_env=False
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def send(self, request: AgentRequest) -> AgentResponse:
        """Send a request and read the answer. Redirects are not followed.

        Args:
            request: The request.
        """
        host, port = self._target.address
        address = choose_address(host, port, await async_resolve(host, port), self._check)
        url = httpx2.URL(request.url)
        sent = self._http.build_request(
            request.method,
            url.copy_with(host=address),
            headers={**request.headers, "Host": url.netloc.decode("ascii")},
            content=request.body or None,
            extensions={"sni_hostname": url.host},
        )
        body = bytearray()
        try:
            response = await self._http.send(sent, stream=True)
            try:
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > limits.CALL_BYTES:
                        raise TooLarge(
                            f"The answer of the agent has more than {limits.CALL_BYTES} bytes.", path="bindings"
                        )
            finally:
                await response.aclose()
        except httpx2.HTTPError as error:
            raise agent_unreachable(error, self._target.endpoint) from error
        return AgentResponse(status=response.status_code, headers=dict(response.headers), body=bytes(body))


class Connection:
    """The HTTP side of the client. It does not know the operations."""

    def __init__(
        self,
        address: ConnectionSettings,
        retry: Retry,
        transport: httpx2.AsyncBaseTransport | None = None,
        signer: httpx2.Auth | None = None,
    ) -> None:
        """Create the pool. With a `signer`, requests are signed and carry no token."""
        self.base_url = address.base_url
        self.retry = retry
        headers = {"User-Agent": "waypost", "Accept": "application/json"}
        if address.token and signer is None:
            headers["Authorization"] = f"Bearer {address.token}"
        self._http = httpx2.AsyncClient(
            base_url=address.base_url,
            headers=headers,
            timeout=address.timeout,
            transport=transport,
            auth=signer,
            verify=tls_context(address),
            trust_env=not is_loopback(httpx2.URL(address.base_url).host),  # no proxy for loopback
        )
        self._timeout = address.timeout

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def ask(self, kind: type[AnswerT], request: ApiRequest) -> AnswerT:
        """Send a request and decode its answer into a response type."""
        return parse_answer(kind, await self.send(request))

    async def send(self, request: ApiRequest) -> httpx2.Response:
        """Send a request and read the whole answer. Raises the error that the service reports."""
        attempt = 1
        while True:
            try:
                return await self._read(request)
            except WaypostError as error:
                await self._pause_or_raise(error, request, attempt)
            attempt += 1

    async def exchange(self, request: ApiRequest) -> httpx2.Response:
        """Send a request once and return the answer whatever its status, for a proxy."""
        sent = self._http.build_request(
            request.method,
            request.path,
            headers=request.headers,
            content=request.content,
            timeout=request.read_seconds or self._timeout,
        )
        try:
            return await self._http.send(sent)
        except httpx2.HTTPError as error:
            raise error_from_transport(error, self.base_url) from error

    @asynccontextmanager
    async def stream(self, request: ApiRequest) -> AsyncIterator[tuple[httpx2.Headers, AsyncIterator[bytes]]]:
        """The headers of an answer, and its body as it arrives. Only the opening is retried."""
        response = await self._open_with_retry(request)
        try:
            yield response.headers, self._chunks(response)
        finally:
            await response.aclose()

    async def lines(self, request: ApiRequest) -> AsyncIterator[bytes]:
        """The lines of an answer as they arrive, without blank ones."""
        decoder = LineDecoder()
        async with self.stream(request) as (_, chunks):
            async for chunk in chunks:
                for line in decoder.feed(chunk):
                    if line:
                        yield line
        if rest := decoder.rest():
            yield rest

    async def _open_with_retry(self, request: ApiRequest) -> httpx2.Response:
        attempt = 1
        while True:
            try:
                return await self._open(request)
            except WaypostError as error:
                await self._pause_or_raise(error, request, attempt)
            attempt += 1

    async def _pause_or_raise(self, error: WaypostError, request: ApiRequest, attempt: int) -> None:
        delay = self.retry.delay(error, attempt, repeatable=request.repeatable, chance=random.random())
        if delay is None:
            raise error
        await async_pause(delay)

    async def _read(self, request: ApiRequest) -> httpx2.Response:
        response = await self._open(request)
        try:
            await response.aread()
        except httpx2.HTTPError as error:
            raise error_from_transport(error, self.base_url) from error
        finally:
            await response.aclose()
        return response

    async def _open(self, request: ApiRequest) -> httpx2.Response:
        """The answer with its body unread. Raises the error that the service reports."""
        timeout = httpx2.Timeout(self._timeout, read=request.read_seconds or self._timeout)
        sent = self._http.build_request(
            request.method,
            request.path,
            params=request.params,
            headers=request.headers,
            content=request.content,
            timeout=timeout,
        )
        try:
            response = await self._http.send(sent, stream=True)
            self._remember_token(response)
            if response.is_success:
                return response
            body = await response.aread()
        except httpx2.HTTPError as error:
            raise error_from_transport(error, self.base_url) from error
        raise error_from_response(response.status_code, response.headers, body)

    def _remember_token(self, response: httpx2.Response) -> None:
        """Send the token of the last write with later requests, so that they see it on every node of a cluster."""
        token = response.headers.get(CONSISTENCY_TOKEN)
        if token is not None:
            self._http.headers[CONSISTENCY_TOKEN] = token

    async def _chunks(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        try:
            async for chunk in response.aiter_bytes():
                yield chunk
        except httpx2.HTTPError as error:
            raise error_from_transport(error, self.base_url) from error
