"""One connection pool to one service: sends calls, tries again what may be tried again, turns failures into errors."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2

from waypost.client.http import LineDecoder, Retry, error_from_response, error_from_transport, tls_context
from waypost.client.pause import async_pause
from waypost.client.requests import ApiRequest
from waypost.errors import WaypostError
from waypost.settings import ConnectionSettings as Address
from waypost.settings import is_loopback


class Connection:
    """Knows how to ask; knows nothing of what is asked."""

    def __init__(
        self,
        address: Address,
        retry: Retry,
        transport: httpx2.AsyncBaseTransport | None = None,
        signer: httpx2.Auth | None = None,
    ) -> None:
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
            trust_env=not is_loopback(httpx2.URL(address.base_url).host),  # a proxy never stands before loopback
        )
        self._timeout = address.timeout

    async def aclose(self) -> None:
        await self._http.aclose()

    async def send(self, call: ApiRequest) -> httpx2.Response:
        """The whole answer of a call that succeeded."""
        attempt = 1
        while True:
            try:
                return await self._answer(call)
            except WaypostError as error:
                await self._pause_or_give_up(error, call, attempt)
            attempt += 1

    async def exchange(self, call: ApiRequest) -> httpx2.Response:
        """The whole answer, a refusal too: for who passes on what others say."""
        request = self._http.build_request(
            call.method,
            call.path,
            headers=call.headers,
            content=call.content,
            timeout=call.read_seconds or self._timeout,
        )
        try:
            return await self._http.send(request)
        except httpx2.HTTPError as error:
            raise error_from_transport(error, self.base_url) from error

    @asynccontextmanager
    async def stream(self, call: ApiRequest) -> AsyncIterator[tuple[httpx2.Headers, AsyncIterator[bytes]]]:
        """The headers of an answer, and its body as it arrives. Only its opening is tried again."""
        response = await self._open_again(call)
        try:
            yield response.headers, self._chunks(response)
        finally:
            await response.aclose()

    async def lines(self, call: ApiRequest) -> AsyncIterator[bytes]:
        """The lines of an answer as they arrive, blank ones left out."""
        lines = LineDecoder()
        async with self.stream(call) as (_, chunks):
            async for chunk in chunks:
                for line in lines.feed(chunk):
                    if line:
                        yield line
        if rest := lines.rest():
            yield rest

    async def _open_again(self, call: ApiRequest) -> httpx2.Response:
        attempt = 1
        while True:
            try:
                return await self._open(call)
            except WaypostError as error:
                await self._pause_or_give_up(error, call, attempt)
            attempt += 1

    async def _pause_or_give_up(self, error: WaypostError, call: ApiRequest, attempt: int) -> None:
        delay = self.retry.delay(error, attempt, repeatable=call.repeatable, chance=random.random())
        if delay is None:
            raise error
        await async_pause(delay)

    async def _answer(self, call: ApiRequest) -> httpx2.Response:
        response = await self._open(call)
        try:
            await response.aread()
        except httpx2.HTTPError as error:
            raise error_from_transport(error, self.base_url) from error
        finally:
            await response.aclose()
        return response

    async def _open(self, call: ApiRequest) -> httpx2.Response:
        """The answer with its body unread, or the error that it tells of."""
        timeout = httpx2.Timeout(self._timeout, read=call.read_seconds or self._timeout)
        request = self._http.build_request(
            call.method, call.path, params=call.params, headers=call.headers, content=call.content, timeout=timeout
        )
        try:
            response = await self._http.send(request, stream=True)
            if response.is_success:
                return response
            body = await response.aread()
        except httpx2.HTTPError as error:
            raise error_from_transport(error, self.base_url) from error
        raise error_from_response(response.status_code, response.headers, body)

    async def _chunks(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        try:
            async for chunk in response.aiter_bytes():
                yield chunk
        except httpx2.HTTPError as error:
            raise error_from_transport(error, self.base_url) from error
