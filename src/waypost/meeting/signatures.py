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
from waypost.registry.keeping import Keeper, Write
from waypost.wire.agp_signing import SigningKey, VerifyingKey, sign, signing_input, verify

AGENT = "ADP-Agent"
TIMESTAMP = "ADP-Timestamp"
SIGNATURE = "ADP-Signature"
MESSAGE_ID = "ADP-Id"
SCHEME = "agent:"

_SEEN = "signed"
_TASK = "task"
_ID_CHARS = 128

FindKey = Callable[[str], Awaitable[VerifyingKey | None]]
Pairs = list[tuple[str, str]]


class Signed(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in the headers of a request."""

    agent: str
    timestamp: str
    signature: str
    message_id: str = ""


def sign_request(
    key: SigningKey, signed: tuple[str, str, str], method: str, path: str, now: float, body: bytes
) -> Pairs:
    """The headers of a request; `signed` are its id, from whom it is and to whom. The query is not covered (P-5)."""
    message_id, from_, to = signed
    timestamp = to_rfc3339(now)
    covered = signing_input(message_id, from_, to, f"{method} {path}", timestamp, _digest(body))
    return [(AGENT, from_), (TIMESTAMP, timestamp), (MESSAGE_ID, message_id), (SIGNATURE, sign(key, covered))]


def sign_result(key: SigningKey, task_id: str, from_: str, to: str, now: float, body: bytes) -> Pairs:
    """The headers of a callback: what is covered is the whole body."""
    timestamp = to_rfc3339(now)
    covered = signing_input(task_id, from_, to, _TASK, timestamp, body.decode())
    return [(AGENT, from_), (TIMESTAMP, timestamp), (SIGNATURE, sign(key, covered))]


class Signatures:
    """Judges what others signed. What was taken once is remembered with the other kept things, also after a restart."""

    def __init__(self, find_key: FindKey, keeper: Keeper, now: Callable[[], float]) -> None:
        self._find_key = find_key
        self._keeper = keeper
        self._now = now

    async def check_request(self, signed: Signed, to: str, method: str, path: str, body: bytes) -> None:
        """Raises BadSignature for what does not hold, Replayed for what is too old or was taken before."""
        covered = (signed.message_id, to, f"{method} {path}", _digest(body))
        await self._check(signed, covered)
        await self._remember(signed)

    async def check_result(self, signed: Signed, task_id: str, to: str, body: bytes) -> None:
        """The same for a callback. One that comes twice is no attack: whoever sent it may have missed our answer."""
        try:
            text = body.decode()
        except UnicodeDecodeError:
            raise InvalidDocument("The result is not UTF-8.", path="$", hint="Send JSON in UTF-8.") from None
        await self._check(signed, (task_id, to, _TASK, text))

    async def _check(self, signed: Signed, covered: tuple[str, str, str, str]) -> None:
        if parse_agent(signed.agent, AGENT) != signed.agent:
            raise BadSignature("The agent is not named in its one form.", path=AGENT, hint="Write it in lower case.")
        self._check_age(signed.timestamp)
        message_id, to, kind, content = covered
        data = signing_input(message_id, signed.agent, to, kind, signed.timestamp, content)
        key = await self._find_key(signed.agent)
        if key is None:
            raise BadSignature(
                f"No key of {signed.agent[:80]!r} is known here.",
                path=AGENT,
                hint="Publish its ADP document, register it here, or bind its key with `waypost keys trust`.",
            )
        if not verify(key, signed.signature, data):
            raise BadSignature(
                "The signature does not hold.",
                path=SIGNATURE,
                hint=f"It is to cover the id, from, to ({to}), {kind!r}, the timestamp and the content.",
            )

    def _check_age(self, timestamp: str) -> None:
        age = self._now() - parse_rfc3339(timestamp, TIMESTAMP)
        if not -limits.SIGNED_AHEAD_SECONDS <= age <= limits.SIGNED_PAST_SECONDS:
            raise Replayed(
                "The request was signed too long ago, or in the future.",
                path=TIMESTAMP,
                hint="Set the clock, and sign each request anew.",
            )

    async def _remember(self, signed: Signed) -> None:
        now = self._now()
        key = _digest(signed.signature.encode())  # one that is signed anew is no copy, whatever its id is
        ends = now + limits.SIGNED_KEEP_SECONDS
        seen = Write(kind=_SEEN, key=key, value=b"1", expires_at=ends, expected=None)
        if not await self._keeper.commit((seen,), now):
            raise Replayed("This signed request was taken before.", path=SIGNATURE, hint="Sign each request anew.")


def read_signed(header: Callable[[bytes], str | None], spare_ids: Sequence[bytes] = ()) -> Signed | None:
    """What a request's headers say; None when they say nothing. A request that has no id of its own goes by another one."""
    agent, timestamp, signature = (header(name.lower().encode()) for name in (AGENT, TIMESTAMP, SIGNATURE))
    if signature is None and agent is None:
        return None
    if agent is None or timestamp is None or signature is None:
        raise BadSignature(
            f"A signed request has the headers {AGENT}, {TIMESTAMP} and {SIGNATURE}.",
            path=SIGNATURE,
            hint="Send all of them, or a bearer token.",
        )
    ids = (header(name) for name in (MESSAGE_ID.lower().encode(), *spare_ids))
    message_id = next((found for found in ids if found is not None), "")
    if len(message_id) > _ID_CHARS:
        raise InvalidDocument(f"An id has at most {_ID_CHARS} characters.", path=MESSAGE_ID, hint="Use a UUID.")
    return Signed(agent=agent, timestamp=timestamp, signature=signature, message_id=message_id)


def parse_agent(value: object, path: str) -> str:
    """An Agent URI, `agent:` and a domain (adp.md §0)."""
    if not isinstance(value, str) or not value.startswith(SCHEME):
        raise InvalidDocument("An agent is named by its Agent URI.", path=path, hint="Write agent:alice.example.com.")
    return SCHEME + parse_domain(value.removeprefix(SCHEME), path)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
