# Generated from waypost/client/aio by scripts/unasync.py. Edit that, then run the script.
"""A connection pool to one service: sends requests, repeats those that may be repeated, maps failures to errors."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import msgspec

from waypost import limits
from waypost.client.calls import AddressCheck, AgentRequest, AgentResponse, CallTarget, choose_address
from waypost.client.http import (
    LineDecoder,
    Retry,
    agent_unreachable,
    error_from_response,
    error_from_transport,
    pause,
    resolve,
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
        self._http = httpx2.Client(
            headers={"User-Agent": "waypost"}, timeout=address.timeout, verify=tls_context(tls), trust_env=False
        )

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def send(self, request: AgentRequest) -> AgentResponse:
        """Send a request and read the answer. Redirects are not followed.

        Args:
            request: The request.
        """
        host, port = self._target.address
        address = choose_address(host, port, resolve(host, port), self._check)
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
            response = self._http.send(sent, stream=True)
            try:
                for chunk in response.iter_bytes():
                    body += chunk
                    if len(body) > limits.CALL_BYTES:
                        raise TooLarge(
                            f"The answer of the agent has more than {limits.CALL_BYTES} bytes.", path="bindings"
                        )
            finally:
                response.close()
        except httpx2.HTTPError as error:
            raise agent_unreachable(error, self._target.endpoint) from error
        return AgentResponse(status=response.status_code, headers=dict(response.headers), body=bytes(body))


class Connection:
    """The HTTP side of the client. It does not know the operations."""

    def __init__(
        self,
        address: ConnectionSettings,
        retry: Retry,
        transport: httpx2.BaseTransport | None = None,
        signer: httpx2.Auth | None = None,
    ) -> None:
        """Create the pool. With a `signer`, requests are signed and carry no token."""
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
            trust_env=not is_loopback(httpx2.URL(address.base_url).host),  # no proxy for loopback
        )
        self._timeout = address.timeout

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def ask(self, kind: type[AnswerT], request: ApiRequest) -> AnswerT:
        """Send a request and decode its answer into a response type."""
        return parse_answer(kind, self.send(request))

    def send(self, request: ApiRequest) -> httpx2.Response:
        """Send a request and read the whole answer. Raises the error that the service reports."""
        attempt = 1
        while True:
            try:
                return self._read(request)
            except WaypostError as error:
                self._pause_or_raise(error, request, attempt)
            attempt += 1

    def exchange(self, request: ApiRequest) -> httpx2.Response:
        """Send a request once and return the answer whatever its status, for a proxy."""
        sent = self._http.build_request(
            request.method,
            request.path,
            headers=request.headers,
            content=request.content,
            timeout=request.read_seconds or self._timeout,
        )
        try:
            return self._http.send(sent)
        except httpx2.HTTPError as error:
            raise error_from_transport(error, self.base_url) from error

    @contextmanager
    def stream(self, request: ApiRequest) -> Iterator[tuple[httpx2.Headers, Iterator[bytes]]]:
        """The headers of an answer, and its body as it arrives. Only the opening is retried."""
        response = self._open_with_retry(request)
        try:
            yield response.headers, self._chunks(response)
        finally:
            response.close()

    def lines(self, request: ApiRequest) -> Iterator[bytes]:
        """The lines of an answer as they arrive, without blank ones."""
        decoder = LineDecoder()
        with self.stream(request) as (_, chunks):
            for chunk in chunks:
                for line in decoder.feed(chunk):
                    if line:
                        yield line
        if rest := decoder.rest():
            yield rest

    def _open_with_retry(self, request: ApiRequest) -> httpx2.Response:
        attempt = 1
        while True:
            try:
                return self._open(request)
            except WaypostError as error:
                self._pause_or_raise(error, request, attempt)
            attempt += 1

    def _pause_or_raise(self, error: WaypostError, request: ApiRequest, attempt: int) -> None:
        delay = self.retry.delay(error, attempt, repeatable=request.repeatable, chance=random.random())
        if delay is None:
            raise error
        pause(delay)

    def _read(self, request: ApiRequest) -> httpx2.Response:
        response = self._open(request)
        try:
            response.read()
        except httpx2.HTTPError as error:
            raise error_from_transport(error, self.base_url) from error
        finally:
            response.close()
        return response

    def _open(self, request: ApiRequest) -> httpx2.Response:
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
            response = self._http.send(sent, stream=True)
            self._remember_token(response)
            if response.is_success:
                return response
            body = response.read()
        except httpx2.HTTPError as error:
            raise error_from_transport(error, self.base_url) from error
        raise error_from_response(response.status_code, response.headers, body)

    def _remember_token(self, response: httpx2.Response) -> None:
        """Send the token of the last write with later requests, so that they see it on every node of a cluster."""
        token = response.headers.get(CONSISTENCY_TOKEN)
        if token is not None:
            self._http.headers[CONSISTENCY_TOKEN] = token

    def _chunks(self, response: httpx2.Response) -> Iterator[bytes]:
        try:
            yield from response.iter_bytes()
        except httpx2.HTTPError as error:
            raise error_from_transport(error, self.base_url) from error
