"""Sessions of the web pages: a token, encrypted in a cookie.

Each request authenticates the token like any other, so it expires and is revoked like any other. The cookie is not a
credential of the API: its value cannot be sent as a bearer token. A sign-in link carries a short-lived code for one use,
never a token (J14).
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.errors import Forbidden, InvalidCursor, TooLarge, Unauthorized
from waypost.model.principal import ANONYMOUS, SCOPE_READ, SCOPE_WRITE, Principal
from waypost.server.auth.callers import TrustedHosts
from waypost.server.http.asgi import Request
from waypost.trust.cursor_cipher import CursorCipher

SIGN_IN_PARAMETER = "token"
_COOKIE_PURPOSE = "page"
_SIGN_IN_PURPOSE = "sign in"
_CSRF_PURPOSE = "form"
_CLOCK_SKEW_SECONDS = 1.0  # between the process that made a code and the one that redeems it


class RequestAuthenticator(Protocol):
    async def authenticate(self, request: Request) -> Principal: ...


class _SessionCookie(msgspec.Struct, array_like=True, frozen=True):
    """The content of a cookie. `is_minted`: the token was minted for this session and is revoked with it."""

    token: str
    created_at: float
    is_minted: bool


class WebUser(msgspec.Struct, frozen=True, kw_only=True):
    """The user of a page and what the page may show. `form` is the CSRF token of every form that changes something."""

    principal: Principal = ANONYMOUS
    reader: Principal = ANONYMOUS  # for reads: a token without discover:read sees what anonymous callers see
    is_signed_in: bool = False
    reads: bool = False  # may see history and changes
    form: str = ""
    token_id: str = ""  # of a token that was minted for this session

    @property
    def writes(self) -> bool:
        return self.principal.has(SCOPE_WRITE)


def make_session_cipher(token_keys: Callable[[], Sequence[bytes]], admin_token: str) -> CursorCipher:
    """The same in all processes of a service. `token_keys` returns the token key and those that it replaced recently. A new
    admin token ends all sessions."""
    label = b"waypost page " + admin_token.encode()
    return CursorCipher(lambda: [hmac.new(key, label, hashlib.sha512).digest() for key in token_keys()])


def make_sign_in_code(seal: CursorCipher, now: float, nonce: bytes) -> str:
    return seal.seal(_SIGN_IN_PURPOSE, struct.pack(">d", now) + nonce)


class WebSessions:
    def __init__(
        self,
        seal: CursorCipher,
        authenticator: RequestAuthenticator,
        mint: Callable[[], str],
        now: Callable[[], float],
        hosts: TrustedHosts,
        *,
        base_url: str,
        open_access: bool,
        anonymous_read: bool,
        claim_code: Callable[[str, float], Awaitable[bool]] | None = None,
    ) -> None:
        """`mint` makes the token for a sign-in link. `claim_code` gets the hash of a sign-in code and the time until which it
        must be remembered, and returns whether it was not used before on any node; without it, this process remembers."""
        self._claim_code = claim_code
        self.seal = seal
        self._authenticator = authenticator
        self._mint = mint
        self._now = now
        self._hosts = hosts
        self._open_access = open_access
        self._anonymous_read = anonymous_read or open_access
        self._started_at = now()
        self._used: dict[str, float] = {}  # redeemed codes, and when
        parts = urlsplit(base_url)
        self._secure = parts.scheme == "https"
        # Browsers send cookies to every port of a host, so two services on one machine need different names.
        prefix = "__Host-" if self._secure else ""
        self.cookie = f"{prefix}waypost-{parts.port or (443 if self._secure else 80)}"

    # --- Authentication --------------------------------------------------------------------------

    async def authenticate(self, request: Request) -> WebUser:
        value = self._cookie_value(request)
        session = self._find_session(value) if value else None
        if session is not None:
            try:
                principal = await self._authenticator.authenticate(_with_token(request, session.token))
            except Unauthorized:
                pass
            else:
                return self._signed_in_user(principal, value, session)
        if self._open_access:
            principal = await self._authenticator.authenticate(_with_token(request, None))
            return WebUser(principal=principal, reader=principal, reads=True, form=self.csrf_token(""))
        return WebUser(reads=self._anonymous_read)

    async def find_reader(self, request: Request) -> Principal:
        """As whom the visitor reads."""
        return (await self.authenticate(request)).reader

    def _signed_in_user(self, principal: Principal, value: str, session: _SessionCookie) -> WebUser:
        may_read = principal.has(SCOPE_READ)
        return WebUser(
            principal=principal,
            reader=principal if may_read else ANONYMOUS,
            is_signed_in=True,
            reads=self._anonymous_read or may_read,
            form=self.csrf_token(value),
            token_id=principal.credential.removeprefix("jwt:") if session.is_minted else "",
        )

    def _cookie_value(self, request: Request) -> str:
        for part in (request.header(b"cookie") or "").split(";"):
            name, _, value = part.strip().partition("=")
            if name == self.cookie:
                return value
        return ""

    def _find_session(self, value: str) -> _SessionCookie | None:
        try:
            session = msgspec.msgpack.decode(self.seal.open(_COOKIE_PURPOSE, value), type=_SessionCookie)
        except (InvalidCursor, msgspec.DecodeError):
            return None
        return session if 0 <= self._now() - session.created_at < limits.PAGE_SESSION_SECONDS else None

    # --- Sign in and out -------------------------------------------------------------------------

    async def sign_in(self, request: Request, token: str) -> bytes:
        """The cookie for a token. Raises Unauthorized if the token is invalid."""
        if len(token) > limits.PAGE_TOKEN_CHARS:
            raise TooLarge(
                "The token is too long for a cookie.", path="token", hint="Mint a short one with `waypost token mint`."
            )
        await self._authenticator.authenticate(_with_token(request, token))
        return self._set_cookie(_SessionCookie(token, self._now(), False))

    async def redeem(self, code: str) -> bytes:
        """The cookie for a sign-in code, which is valid once."""
        now = self._now()
        if self._claim_code is None:
            self._remember_code(code, now)
        elif now - self._open_code(code) >= limits.SIGN_IN_CODE_SECONDS or not await self._claim_code(
            hashlib.sha256(code.encode()).hexdigest(), now + 2 * limits.SIGN_IN_CODE_SECONDS
        ):
            raise _used_code_error()
        return self._set_cookie(_SessionCookie(self._mint(), now, True))

    def _open_code(self, code: str) -> float:
        """When it was made."""
        try:
            (made_at,) = struct.unpack(">d", self.seal.open(_SIGN_IN_PURPOSE, code)[:8])
        except (InvalidCursor, struct.error):
            raise _used_code_error() from None
        return float(made_at)

    def _remember_code(self, code: str, now: float) -> None:
        self._used = {used: at for used, at in self._used.items() if now - at < limits.SIGN_IN_CODE_SECONDS}
        made_at = self._open_code(code)
        # Codes redeemed before this process started are not known, so older codes are refused.
        is_old = made_at < self._started_at - _CLOCK_SKEW_SECONDS or now - made_at >= limits.SIGN_IN_CODE_SECONDS
        if is_old or code in self._used or len(self._used) >= limits.SIGN_IN_CODES:
            raise _used_code_error()
        self._used[code] = now

    def _set_cookie(self, session: _SessionCookie) -> bytes:
        value = self.seal.seal(_COOKIE_PURPOSE, msgspec.msgpack.encode(session))
        return f"{self.cookie}={value}; Max-Age={limits.PAGE_SESSION_SECONDS}{self._attributes}".encode()

    def sign_out(self) -> bytes:
        """The header that deletes the cookie."""
        return f"{self.cookie}=; Max-Age=0{self._attributes}".encode()

    @property
    def _attributes(self) -> str:
        return f"; Path=/; HttpOnly; SameSite=Strict{'; Secure' if self._secure else ''}"

    # --- Forms -----------------------------------------------------------------------------------

    def csrf_token(self, value: str) -> str:
        """Only pages of this session know it: another site can make a browser send a form, but not read one."""
        return self.seal.seal(_CSRF_PURPOSE, b"", value)

    def check_same_site(self, request: Request) -> None:
        """Refuse requests that a page of another site made the browser send, with or without a session."""
        is_same = self._hosts.is_same_origin(request)
        if not is_same or request.header(b"sec-fetch-site") not in (None, "same-origin", "none"):
            raise Forbidden(
                "A page of another site sent this request.",
                path="Origin",
                hint="Open the page itself. If it is this one, its address must have the scheme of the setting base_url.",
            )

    def check_csrf_token(self, request: Request, form: dict[str, str]) -> None:
        self.check_same_site(request)
        try:
            self.seal.open(_CSRF_PURPOSE, form.get("form", ""), self._cookie_value(request))
        except InvalidCursor:
            raise Forbidden(
                "This form belongs to another session.", path="form", hint="Reload the page and send the form again."
            ) from None


def _with_token(request: Request, token: str | None) -> Request:
    """A copy of the request with this bearer token as its only credential."""
    headers = [(name, value) for name, value in request.scope["headers"] if name != b"authorization"]
    if token is not None:
        headers.append((b"authorization", b"Bearer " + token.encode("ascii", "replace")))
    return Request({**request.scope, "headers": headers}, request.receive, request.bodies)


def _used_code_error() -> Unauthorized:
    return Unauthorized(
        "This sign-in link was already used, or is too old.",
        path=SIGN_IN_PARAMETER,
        hint="Sign in with a token: `waypost token mint` makes one; the admin token is in the data folder.",
    )
