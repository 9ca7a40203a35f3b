# Generated from waypost/client/aio by scripts/unasync.py. Edit that, then run the script.
"""One connection pool to one service: sends calls, tries again what may be tried again, turns failures into errors."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2

from waypost.client.http import LineDecoder, Retry, error_from_response, error_from_transport, tls_context
from waypost.client.pause import pause
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
        transport: httpx2.BaseTransport | None = None,
        signer: httpx2.Auth | None = None,
    ) -> None:
        self.base_url = address.base_url
        self.retry = retry
        headers = {"User-Agent": "waypost", "Accept": "application/json"}
        if address.token and signer is None:
            headers["Authorization"] = f"Bearer {address.token}"
        self._http = httpx2.Client(
            base_url=address.base_url,
            headers=headers,
            timeout=address.timeout,
            transport=transport,
            auth=signer,
            verify=tls_context(address),
            trust_env=not is_loopback(httpx2.URL(address.base_url).host),  # a proxy never stands before loopback
        )
        self._timeout = address.timeout

    def close(self) -> None:
        self._http.close()

    def send(self, call: ApiRequest) -> httpx2.Response:
        """The whole answer of a call that succeeded."""
        attempt = 1
        while True:
            try:
                return self._answer(call)
            except WaypostError as error:
                self._pause_or_give_up(error, call, attempt)
            attempt += 1

    def exchange(self, call: ApiRequest) -> httpx2.Response:
        """The whole answer, a refusal too: for who passes on what others say."""
        request = self._http.build_request(
            call.method,
            call.path,
            headers=call.headers,
            content=call.content,
            timeout=call.read_seconds or self._timeout,
        )
        try:
            return self._http.send(request)
        except httpx2.HTTPError as error:
            raise error_from_transport(error, self.base_url) from error

    @contextmanager
    def stream(self, call: ApiRequest) -> Iterator[tuple[httpx2.Headers, Iterator[bytes]]]:
        """The headers of an answer, and its body as it arrives. Only its opening is tried again."""
        response = self._open_again(call)
        try:
            yield response.headers, self._chunks(response)
        finally:
            response.close()

    def lines(self, call: ApiRequest) -> Iterator[bytes]:
        """The lines of an answer as they arrive, blank ones left out."""
        lines = LineDecoder()
        with self.stream(call) as (_, chunks):
            for chunk in chunks:
                for line in lines.feed(chunk):
                    if line:
                        yield line
        if rest := lines.rest():
            yield rest

    def _open_again(self, call: ApiRequest) -> httpx2.Response:
        attempt = 1
        while True:
            try:
                return self._open(call)
            except WaypostError as error:
                self._pause_or_give_up(error, call, attempt)
            attempt += 1

    def _pause_or_give_up(self, error: WaypostError, call: ApiRequest, attempt: int) -> None:
        delay = self.retry.delay(error, attempt, repeatable=call.repeatable, chance=random.random())
        if delay is None:
            raise error
        pause(delay)

    def _answer(self, call: ApiRequest) -> httpx2.Response:
        response = self._open(call)
        try:
            response.read()
        except httpx2.HTTPError as error:
            raise error_from_transport(error, self.base_url) from error
        finally:
            response.close()
        return response

    def _open(self, call: ApiRequest) -> httpx2.Response:
        """The answer with its body unread, or the error that it tells of."""
        timeout = httpx2.Timeout(self._timeout, read=call.read_seconds or self._timeout)
        request = self._http.build_request(
            call.method, call.path, params=call.params, headers=call.headers, content=call.content, timeout=timeout
        )
        try:
            response = self._http.send(request, stream=True)
            if response.is_success:
                return response
            body = response.read()
        except httpx2.HTTPError as error:
            raise error_from_transport(error, self.base_url) from error
        raise error_from_response(response.status_code, response.headers, body)

    def _chunks(self, response: httpx2.Response) -> Iterator[bytes]:
        try:
            yield from response.iter_bytes()
        except httpx2.HTTPError as error:
            raise error_from_transport(error, self.base_url) from error
