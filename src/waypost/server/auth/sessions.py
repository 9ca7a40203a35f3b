"""Who looks at a page: a token, sealed into a cookie that is good for pages and for nothing else.

The token inside is judged anew at each request, by the same authenticator as any other, so it ends and is revoked as others
are. The cookie itself is no credential of the API: what is sealed cannot be sent as a bearer token. A link that signs in
carries a code that is good once and for a short while, never a token (J14).
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.errors import Forbidden, InvalidCursor, TooLarge, Unauthorized
from waypost.model.principal import ANONYMOUS, SCOPE_READ, SCOPE_WRITE, Principal
from waypost.server.http.asgi import Request
from waypost.trust.cursor_cipher import CursorCipher

SIGN_IN_PARAMETER = "token"
_COOKIE_PURPOSE = "page"
_SIGN_IN_PURPOSE = "sign in"
_CSRF_PURPOSE = "form"
_CLOCK_SKEW_SECONDS = 1.0  # seconds between the clock that made a code and the one that reads it


class RequestAuthenticator(Protocol):
    async def principal(self, request: Request) -> Principal: ...


class AnonymousAuthenticator:
    """Knows nobody: until somebody is named who does."""

    async def principal(self, request: Request) -> Principal:
        return ANONYMOUS


class _SessionCookie(msgspec.Struct, array_like=True, frozen=True):
    """What a cookie holds. `ours`: the token was made for this session, and goes with it."""

    token: str
    since: float
    ours: bool


class WebUser(msgspec.Struct, frozen=True, kw_only=True):
    """Who looks, and what may be shown and done. `form` goes with every form that changes something."""

    principal: Principal = ANONYMOUS
    reader: Principal = ANONYMOUS  # for what is read: a token that may only write sees what anybody sees
    is_signed_in: bool = False
    reads: bool = False  # also what is kept for readers: history, changes
    form: str = ""
    token_id: str = ""  # of a token that was made for this session

    @property
    def writes(self) -> bool:
        return self.principal.has(SCOPE_WRITE)


def make_session_cipher(token_key: bytes, admin_token: str) -> CursorCipher:
    """One for all processes of a service. With another key or another admin token everybody is signed out."""
    return CursorCipher(hmac.new(token_key, b"waypost page " + admin_token.encode(), hashlib.sha512).digest())


def make_sign_in_code(seal: CursorCipher, now: float, nonce: bytes) -> str:
    return seal.seal(_SIGN_IN_PURPOSE, struct.pack(">d", now) + nonce)


class WebSessions:
    def __init__(
        self,
        seal: CursorCipher,
        authenticator: RequestAuthenticator,
        mint: Callable[[], str],
        now: Callable[[], float],
        *,
        base_url: str,
        open_access: bool,
        anonymous_read: bool,
    ) -> None:
        """`mint` makes the token of whoever comes by a sign-in link."""
        self.seal = seal
        self._authenticator = authenticator
        self._mint = mint
        self._now = now
        self._open_access = open_access
        self._anonymous_read = anonymous_read or open_access
        self._started_at = now()
        self._used: dict[str, float] = {}  # codes that were redeemed, and when
        parts = urlsplit(base_url)
        self._secure = parts.scheme == "https"
        # A browser sends cookies to every port of a host: two services on one machine must not overwrite each other's.
        prefix = "__Host-" if self._secure else ""
        self.cookie = f"{prefix}waypost-{parts.port or (443 if self._secure else 80)}"

    # --- Who is it? ------------------------------------------------------------------------------

    async def visitor(self, request: Request) -> WebUser:
        value = self._value(request)
        kept = self._open(value) if value else None
        if kept is not None:
            try:
                principal = await self._judge(request, kept.token)
            except Unauthorized:
                kept = None
            else:
                return self._signed_in(principal, value, kept)
        if self._open_access:
            principal = await self._authenticator.principal(_with_token(request, None))
            return WebUser(principal=principal, reader=principal, reads=True, form=self.csrf_token(""))
        return WebUser(reads=self._anonymous_read)

    def _signed_in(self, principal: Principal, value: str, kept: _SessionCookie) -> WebUser:
        may_read = principal.has(SCOPE_READ)
        return WebUser(
            principal=principal,
            reader=principal if may_read else ANONYMOUS,
            is_signed_in=True,
            reads=self._anonymous_read or may_read,
            form=self.csrf_token(value),
            token_id=principal.credential.removeprefix("jwt:") if kept.ours else "",
        )

    async def _judge(self, request: Request, token: str) -> Principal:
        return await self._authenticator.principal(_with_token(request, token))

    def _value(self, request: Request) -> str:
        for part in (request.header(b"cookie") or "").split(";"):
            name, _, value = part.strip().partition("=")
            if name == self.cookie:
                return value
        return ""

    def _open(self, value: str) -> _SessionCookie | None:
        try:
            kept = msgspec.msgpack.decode(self.seal.open(_COOKIE_PURPOSE, value), type=_SessionCookie)
        except (InvalidCursor, msgspec.DecodeError):
            return None
        return kept if 0 <= self._now() - kept.since < limits.PAGE_SESSION_SECONDS else None

    # --- In and out ------------------------------------------------------------------------------

    async def enter(self, request: Request, token: str) -> bytes:
        """The cookie of somebody who has a token. Raises what is wrong with it."""
        if len(token) > limits.PAGE_TOKEN_CHARS:
            raise TooLarge(
                "The token is too long for a cookie.", path="token", hint="Mint a short one with `waypost token mint`."
            )
        await self._judge(request, token)
        return self._set_cookie(_SessionCookie(token, self._now(), False))

    def redeem(self, code: str) -> bytes:
        """The cookie of whoever brings a code that this service printed, the first time."""
        now = self._now()
        self._used = {used: at for used, at in self._used.items() if now - at < limits.SIGN_IN_CODE_SECONDS}
        try:
            (made_at,) = struct.unpack(">d", self.seal.open(_SIGN_IN_PURPOSE, code)[:8])
        except (InvalidCursor, struct.error):
            raise _used_code_error() from None
        # What was redeemed before this process started is not remembered, so nothing from before is taken.
        is_old = made_at < self._started_at - _CLOCK_SKEW_SECONDS or now - made_at >= limits.SIGN_IN_CODE_SECONDS
        if is_old or code in self._used or len(self._used) >= limits.SIGN_IN_CODES:
            raise _used_code_error()
        self._used[code] = now
        return self._set_cookie(_SessionCookie(self._mint(), now, True))

    def _set_cookie(self, kept: _SessionCookie) -> bytes:
        value = self.seal.seal(_COOKIE_PURPOSE, msgspec.msgpack.encode(kept))
        return f"{self.cookie}={value}; Max-Age={limits.PAGE_SESSION_SECONDS}{self._attributes}".encode()

    def leave(self) -> bytes:
        return f"{self.cookie}=; Max-Age=0{self._attributes}".encode()

    @property
    def _attributes(self) -> str:
        return f"; Path=/; HttpOnly; SameSite=Strict{'; Secure' if self._secure else ''}"

    # --- Forms -----------------------------------------------------------------------------------

    def csrf_token(self, value: str) -> str:
        """Known to pages of this session alone: another site can make a browser send a form, not read one."""
        return self.seal.seal(_CSRF_PURPOSE, b"", value)

    def check_csrf_token(self, request: Request, form: dict[str, str]) -> None:
        check_same_site(request)
        if not hmac.compare_digest(form.get("form", "").encode(), self.csrf_token(self._value(request)).encode()):
            raise Forbidden(
                "This form is not of this session.", path="form", hint="Load the page again and send it from there."
            )


def check_same_site(request: Request) -> None:
    """What a page of another site has a browser send is refused, with a session or without."""
    site, origin, host = (request.header(name) for name in (b"sec-fetch-site", b"origin", b"host"))
    if site not in (None, "same-origin", "none") or (
        origin is not None and origin.lower() not in (f"http://{host}".lower(), f"https://{host}".lower())
    ):
        raise Forbidden("This was sent by a page of another site.", path="Origin", hint="Open the page itself.")


def _with_token(request: Request, token: str | None) -> Request:
    """The request as it would be with this bearer token and no other credential."""
    headers = [(name, value) for name, value in request.scope["headers"] if name != b"authorization"]
    if token is not None:
        headers.append((b"authorization", b"Bearer " + token.encode("ascii", "replace")))
    return Request({**request.scope, "headers": headers}, request.receive)


def _used_code_error() -> Unauthorized:
    return Unauthorized(
        "This sign-in link was used already, or is too old.",
        path=SIGN_IN_PARAMETER,
        hint="Sign in with a token: `waypost token mint` makes one; the admin token is in the data folder.",
    )
