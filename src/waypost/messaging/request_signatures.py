"""Requests and results that an agent signs itself: the headers of `pubkey` and of a callback (adp.md §7, P-5).

It knows what is covered, how old it may be and that nothing counts twice. Whose key it is, it asks `FindKey`.
"""

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
    """What stands in the headers of a request."""

    agent: str
    timestamp: str
    signature: str
    message_id: str = ""


def sign_request(
    key: SigningKey, signed: tuple[str, str, str], method: str, path: str, now: float, body: bytes
) -> HeaderList:
    """The headers of a request; `signed` are its id, from whom it is and to whom. The query is not covered (P-5)."""
    message_id, from_, to = signed
    timestamp = to_rfc3339(now)
    covered = signing_input(message_id, from_, to, f"{method} {path}", timestamp, _digest(body))
    return [
        (AGENT_HEADER, from_),
        (TIMESTAMP_HEADER, timestamp),
        (MESSAGE_ID_HEADER, message_id),
        (SIGNATURE_HEADER, sign(key, covered)),
    ]


def sign_result(key: SigningKey, task_id: str, from_: str, to: str, now: float, body: bytes) -> HeaderList:
    """The headers of a callback: what is covered is the whole body."""
    timestamp = to_rfc3339(now)
    covered = signing_input(task_id, from_, to, _TASK, timestamp, body.decode())
    return [(AGENT_HEADER, from_), (TIMESTAMP_HEADER, timestamp), (SIGNATURE_HEADER, sign(key, covered))]


class RequestVerifier:
    """Judges what others signed. What was taken once is remembered with the other kept things, also after a restart."""

    def __init__(self, find_key: FindVerifyingKey, keeper: KeyValueStore, now: Callable[[], float]) -> None:
        self._find_key = find_key
        self._keeper = keeper
        self._now = now

    async def check_request(self, signed: SignatureHeaders, to: str, method: str, path: str, body: bytes) -> None:
        """Raises BadSignature for what does not hold, Replayed for what is too old or was taken before."""
        covered = (signed.message_id, to, f"{method} {path}", _digest(body))
        await self._check(signed, covered)
        await self._remember(signed)

    async def check_result(self, signed: SignatureHeaders, task_id: str, to: str, body: bytes) -> None:
        """The same for a callback. One that comes twice is no attack: whoever sent it may have missed our answer."""
        try:
            text = body.decode()
        except UnicodeDecodeError:
            raise InvalidDocument("The result is not UTF-8.", path="$", hint="Send JSON in UTF-8.") from None
        await self._check(signed, (task_id, to, _TASK, text))

    async def _check(self, signed: SignatureHeaders, covered: tuple[str, str, str, str]) -> None:
        if parse_agent_uri(signed.agent, AGENT_HEADER) != signed.agent:
            raise BadSignature(
                "The agent is not named in its one form.", path=AGENT_HEADER, hint="Write it in lower case."
            )
        self._check_age(signed.timestamp)
        message_id, to, kind, content = covered
        data = signing_input(message_id, signed.agent, to, kind, signed.timestamp, content)
        key = await self._find_key(signed.agent)
        if key is None:
            raise BadSignature(
                f"No key of {signed.agent[:80]!r} is known here.",
                path=AGENT_HEADER,
                hint="Publish its ADP document, register it here, or bind its key with `waypost keys trust`.",
            )
        if not verify(key, signed.signature, data):
            raise BadSignature(
                "The signature does not hold.",
                path=SIGNATURE_HEADER,
                hint=f"It is to cover the id, from, to ({to}), {kind!r}, the timestamp and the content.",
            )

    def _check_age(self, timestamp: str) -> None:
        age = self._now() - parse_rfc3339(timestamp, TIMESTAMP_HEADER)
        if not -limits.SIGNED_AHEAD_SECONDS <= age <= limits.SIGNED_PAST_SECONDS:
            raise Replayed(
                "The request was signed too long ago, or in the future.",
                path=TIMESTAMP_HEADER,
                hint="Set the clock, and sign each request anew.",
            )

    async def _remember(self, signed: SignatureHeaders) -> None:
        now = self._now()
        key = _digest(signed.signature.encode())  # one that is signed anew is no copy, whatever its id is
        ends = now + limits.SIGNED_KEEP_SECONDS
        seen = KeyValueWrite(kind=_SEEN_KIND, key=key, value=b"1", expires_at=ends, expected=None)
        if not await self._keeper.commit((seen,), now):
            raise Replayed(
                "This signed request was taken before.", path=SIGNATURE_HEADER, hint="Sign each request anew."
            )


def parse_signature_headers(
    header: Callable[[bytes], str | None], spare_ids: Sequence[bytes] = ()
) -> SignatureHeaders | None:
    """What a request's headers say; None when they say nothing. A request that has no id of its own goes by another one."""
    agent, timestamp, signature = (
        header(name.lower().encode()) for name in (AGENT_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER)
    )
    if signature is None and agent is None:
        return None
    if agent is None or timestamp is None or signature is None:
        raise BadSignature(
            f"A signed request has the headers {AGENT_HEADER}, {TIMESTAMP_HEADER} and {SIGNATURE_HEADER}.",
            path=SIGNATURE_HEADER,
            hint="Send all of them, or a bearer token.",
        )
    ids = (header(name) for name in (MESSAGE_ID_HEADER.lower().encode(), *spare_ids))
    message_id = next((found for found in ids if found is not None), "")
    if len(message_id) > _ID_CHARS:
        raise InvalidDocument(f"An id has at most {_ID_CHARS} characters.", path=MESSAGE_ID_HEADER, hint="Use a UUID.")
    return SignatureHeaders(agent=agent, timestamp=timestamp, signature=signature, message_id=message_id)


def parse_agent_uri(value: object, path: str) -> str:
    """An Agent URI, `agent:` and a domain (adp.md §0)."""
    if not isinstance(value, str) or not value.startswith(AGENT_URI_PREFIX):
        raise InvalidDocument("An agent is named by its Agent URI.", path=path, hint="Write agent:alice.example.com.")
    return AGENT_URI_PREFIX + parse_domain(value.removeprefix(AGENT_URI_PREFIX), path)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
