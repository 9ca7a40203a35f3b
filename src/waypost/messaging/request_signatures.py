"""Requests and callbacks that an agent signs itself (adp.md §7, P-5): their headers, age limits and replay protection."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from waypost import limits
from waypost.errors import BadSignature, InvalidDocument, Replayed
from waypost.model.names import parse_domain
from waypost.model.times import parse_rfc3339, to_rfc3339
from waypost.protocols.adp.agp.messages import SigningKey, VerifyingKey, sign, signing_input, verify
from waypost.registry.ports import KeyValueStore, KeyValueWrite

AGENT_HEADER = "ADP-Agent"
TIMESTAMP_HEADER = "ADP-Timestamp"
SIGNATURE_HEADER = "ADP-Signature"
MESSAGE_ID_HEADER = "ADP-Id"
AGENT_URI_PREFIX = "agent:"

_SEEN_KIND = "signed"
_TASK = "task"
_ID_CHARS = 128

FindVerifyingKey = Callable[[str], Awaitable[VerifyingKey | None]]
HeaderList = list[tuple[str, str]]


class SignatureHeaders(msgspec.Struct, frozen=True, kw_only=True):
    """The signature headers of a request."""

    agent: str
    timestamp: str
    signature: str
    message_id: str = ""


def sign_request(
    key: SigningKey, ids: tuple[str, str, str], method: str, path: str, now: float, body: bytes
) -> HeaderList:
    """The headers of a request; `ids` are its id, sender and receiver. The query is not covered (P-5)."""
    message_id, from_, to = ids
    timestamp = to_rfc3339(now)
    covered = signing_input(message_id, from_, to, f"{method} {path}", timestamp, _digest(body))
    return [
        (AGENT_HEADER, from_),
        (TIMESTAMP_HEADER, timestamp),
        (MESSAGE_ID_HEADER, message_id),
        (SIGNATURE_HEADER, sign(key, covered)),
    ]


def sign_result(key: SigningKey, task_id: str, from_: str, to: str, now: float, body: bytes) -> HeaderList:
    """The headers of a callback. They cover the whole body."""
    timestamp = to_rfc3339(now)
    covered = signing_input(task_id, from_, to, _TASK, timestamp, body.decode())
    return [(AGENT_HEADER, from_), (TIMESTAMP_HEADER, timestamp), (SIGNATURE_HEADER, sign(key, covered))]


class RequestVerifier:
    """Verifies signed requests. Accepted signatures are stored, so that a replay is detected even after a restart."""

    def __init__(
        self,
        find_key: FindVerifyingKey,
        store: KeyValueStore,
        now: Callable[[], float],
        latest: Callable[[], float] | None = None,
    ) -> None:
        """The age of a signature is measured by `latest` (`Clock.latest`), if given."""
        self._find_key = find_key
        self._store = store
        self._now = now
        self._latest = latest or now

    async def check_request(self, signed: SignatureHeaders, to: str, method: str, path: str, body: bytes) -> None:
        """Raises BadSignature, or Replayed for a request that is too old or was accepted before."""
        covered = (signed.message_id, to, f"{method} {path}", _digest(body))
        await self._check(signed, covered)
        await self._check_replay(signed)

    async def check_result(self, signed: SignatureHeaders, task_id: str, to: str, body: bytes) -> None:
        """The same for a callback. A repeated one is allowed: its sender may have missed our response."""
        try:
            text = body.decode()
        except UnicodeDecodeError:
            raise InvalidDocument("The result is not UTF-8.", path="$", hint="Send JSON in UTF-8.") from None
        await self._check(signed, (task_id, to, _TASK, text))

    async def _check(self, signed: SignatureHeaders, covered: tuple[str, str, str, str]) -> None:
        if parse_agent_uri(signed.agent, AGENT_HEADER) != signed.agent:
            raise BadSignature(
                "The Agent URI is not in canonical form.", path=AGENT_HEADER, hint="Write it in lower case."
            )
        self._check_age(signed.timestamp)
        message_id, to, kind, content = covered
        data = signing_input(message_id, signed.agent, to, kind, signed.timestamp, content)
        key = await self._find_key(signed.agent)
        if key is None:
            raise BadSignature(
                f"The key of {signed.agent[:80]!r} is unknown.",
                path=AGENT_HEADER,
                hint="Publish its ADP document, register it here, or pin its key with `waypost keys trust`.",
            )
        if not verify(key, signed.signature, data):
            raise BadSignature(
                "The signature is not valid.",
                path=SIGNATURE_HEADER,
                hint=f"It must cover the id, from, to ({to}), {kind!r}, the timestamp and the content.",
            )

    def _check_age(self, timestamp: str) -> None:
        age = self._latest() - parse_rfc3339(timestamp, TIMESTAMP_HEADER)
        if not -limits.SIGNED_AHEAD_SECONDS <= age <= limits.SIGNED_PAST_SECONDS:
            raise Replayed(
                "The request was signed too long ago, or in the future.",
                path=TIMESTAMP_HEADER,
                hint="Check the clock, and sign each request separately.",
            )

    async def _check_replay(self, signed: SignatureHeaders) -> None:
        now = self._now()
        key = _digest(signed.signature.encode())  # a request with a new signature is not a copy, whatever its id
        expires_at = now + limits.SIGNED_KEEP_SECONDS
        write = KeyValueWrite(kind=_SEEN_KIND, key=key, value=b"1", expires_at=expires_at, expected=None)
        if not await self._store.commit((write,), now):
            raise Replayed(
                "This signed request was accepted before.", path=SIGNATURE_HEADER, hint="Sign each request separately."
            )


def parse_signature_headers(
    header: Callable[[bytes], str | None], fallback_ids: Sequence[bytes] = ()
) -> SignatureHeaders | None:
    """The signature headers of a request; None if there are none. `fallback_ids` are headers with another id to use."""
    agent, timestamp, signature = (
        header(name.lower().encode()) for name in (AGENT_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER)
    )
    if signature is None and agent is None:
        return None
    if agent is None or timestamp is None or signature is None:
        raise BadSignature(
            f"A signed request needs the headers {AGENT_HEADER}, {TIMESTAMP_HEADER} and {SIGNATURE_HEADER}.",
            path=SIGNATURE_HEADER,
            hint="Send all of them, or a bearer token.",
        )
    ids = (header(name) for name in (MESSAGE_ID_HEADER.lower().encode(), *fallback_ids))
    message_id = next((found for found in ids if found is not None), "")
    if len(message_id) > _ID_CHARS:
        raise InvalidDocument(f"An id has at most {_ID_CHARS} characters.", path=MESSAGE_ID_HEADER, hint="Use a UUID.")
    return SignatureHeaders(agent=agent, timestamp=timestamp, signature=signature, message_id=message_id)


def parse_agent_uri(value: object, path: str) -> str:
    """An Agent URI, `agent:` and a domain (adp.md §0)."""
    if not isinstance(value, str) or not value.startswith(AGENT_URI_PREFIX):
        raise InvalidDocument("This is not an Agent URI.", path=path, hint="Write agent:alice.example.com.")
    return AGENT_URI_PREFIX + parse_domain(value.removeprefix(AGENT_URI_PREFIX), path)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
