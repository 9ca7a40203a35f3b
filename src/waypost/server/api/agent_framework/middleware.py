"""`Discovery`: the Agent Framework endpoints in a user's own ASGI application (agentframework.md §12).

It can be mounted or used as middleware. It claims its own paths and passes all other requests on. It needs no lifespan
events, no framework and no Waypost service.
"""

from __future__ import annotations

import difflib
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from waypost.errors import ConfigurationError, InternalError, NotFound, WaypostError
from waypost.model.principal import ANONYMOUS, SCOPE_READ, Principal
from waypost.server.api.agent_framework.api import AfHandler, AfOptions, AfRateLimiter
from waypost.server.api.agent_framework.directory import UNAUTHENTICATED, VisibilityPolicy, VisibleAgent
from waypost.server.api.agent_framework.providers import (
    AgentLike,
    AgentProvider,
    ProvidedAgent,
    ProviderDirectory,
    StaticProvider,
)
from waypost.server.api.agent_framework.responses import A2A_CARD, LEGACY, LEGACY_CARD, local_path
from waypost.server.http.asgi import App, Message, Receive, Request, Response, Scope, Send
from waypost.server.http.conditional_requests import is_not_modified, strong_etag

log = logging.getLogger("waypost.discovery")

Extractor: TypeAlias = Callable[[Scope], Principal | str | Awaitable[Principal | str | None] | None]

_A2A_MEDIA_TYPE = b"application/a2a+json"
_SUBJECT_MEMBERS = ("sub", "username", "display_name", "id", "name")


class DiscoveryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of an application. Absolute URLs are built from `base_url` only (AF-73)."""

    base_url: str = ""
    alias: bool = True  # /.agent-framework/…
    legacy: bool = False  # redirects from /v1/agents; off, because applications often own that path
    cards: bool = True  # /.well-known/agent-card, /v1/card and, if the agent has one, the A2A card
    default_agent: str | None = None  # the agent whose card is the card of this origin
    principal: Extractor | None = None  # the caller of a request; by default from scope["user"] or scope["state"]
    allowed_origins: frozenset[str] = frozenset()
    owner_email_to_anonymous: bool = False
    challenge: str | None = None
    limiter: AfRateLimiter | None = None


class Discovery:
    """An ASGI 3 application, or middleware around one: `app.add_middleware(Discovery, agents=[…])`.

    Example:
        app.mount("/", Discovery(agents=[agent]))
    """

    def __init__(
        self,
        app: App | Iterable[AgentLike] | None = None,
        *,
        agents: Iterable[AgentLike] | None = None,
        provider: AgentProvider | None = None,
        policy: VisibilityPolicy | None = None,
        options: DiscoveryOptions | Mapping[str, Any] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        given, app = (app, None) if isinstance(app, Iterable) else ((), app)
        agents = [*given, *agents] if agents is not None else given or None
        if agents is not None and provider is not None:
            raise ConfigurationError("Give agents or a provider, not both.", path="agents")
        self._app = app
        self._options = _options(options)
        self._now = now
        self.provider = provider or StaticProvider(agents or (), base_url=self._options.base_url, now=now)
        self._directory = ProviderDirectory(self.provider, policy, base_url=self._options.base_url, now=now)
        self._handler = AfHandler(self._directory, self._af_options(), now=now)
        self._warned: set[str] = set()

    def _af_options(self) -> AfOptions:
        options = self._options
        return AfOptions(
            base_url=options.base_url,
            alias=options.alias,
            legacy=options.legacy,
            cards=options.cards,
            allowed_origins=options.allowed_origins,
            owner_email_to_anonymous=options.owner_email_to_anonymous,
            challenge=options.challenge,
            choose_card=self._choose_card,
            a2a_card=lambda _, visible: A2A_CARD if visible.agent.has_a2a_card else None,
            limiter=options.limiter,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._pass_other(scope, receive, send)
            return
        request = Request(scope, receive)
        if not self._claims(request):
            await self._pass_on(request, send)
        elif self._app is not None and _app_route_wins(local_path(scope)):
            await self._try_app_route(self._app, request, send)
        else:
            await self._serve(request, send)

    def _claims(self, request: Request) -> bool:
        if self._handler.find_route(request) is not None:
            return True
        return self._options.cards and local_path(request.scope) == A2A_CARD

    async def _serve(self, request: Request, send: Send) -> None:
        self._warn_of_root_path(request)
        response = await self._answer(request)
        await response.send(send, head=request.method == "HEAD")

    async def _answer(self, request: Request) -> Response:
        try:
            principal = await self._principal(request.scope)
            if local_path(request.scope) == A2A_CARD:
                return await self._a2a(request, principal)
            return await self._handler.handle(request, principal) or self._not_found(request)
        except WaypostError as error:
            return self._handler.refuse(request, error)
        except Exception:  # provider, policy and extractor are the user's code
            log.exception("discovery failed")
            return self._handler.refuse(request, InternalError("Discovery failed on this request."))

    def _not_found(self, request: Request) -> Response:
        return self._handler.refuse(request, NotFound("Nothing is served at this path."))

    # --- Requests of the application -------------------------------------------------------------

    async def _pass_on(self, request: Request, send: Send) -> None:
        if self._app is not None:
            await self._app(request.scope, request.receive, send)
        else:
            await self._not_found(request).send(send, head=request.method == "HEAD")

    async def _pass_other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is not None:
            await self._app(scope, receive, send)
        elif scope["type"] == "lifespan":
            await _run_lifespan(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000, "reason": ""})

    async def _try_app_route(self, app: App, request: Request, send: Send) -> None:
        """AF-71: a route of the application takes precedence; these endpoints answer if it answers 404."""
        is_missing = False

        async def send_unless_missing(message: Message) -> None:
            nonlocal is_missing
            if message["type"] == "http.response.start" and message["status"] == 404:
                is_missing = True
            if not is_missing:
                await send(message)

        await app(request.scope, request.receive, send_unless_missing)
        if is_missing:
            await self._serve(request, send)

    def _warn_of_root_path(self, request: Request) -> None:
        root = request.scope.get("root_path", "").rstrip("/")
        if root and root not in self._warned and len(self._warned) < 16:
            self._warned.add(root)
            log.warning(
                "Discovery is mounted under %s: clients look for well-known paths at the root of the origin (AF-72).",
                root,
            )

    async def _principal(self, scope: Scope) -> Principal:
        extract = self._options.principal
        if extract is None:
            return principal_of(scope)
        caller = extract(scope)
        if inspect.isawaitable(caller):
            caller = await caller
        if isinstance(caller, str):
            return _application_principal(caller)
        return ANONYMOUS if caller is None else caller

    # --- Cards -----------------------------------------------------------------------------------

    async def _find_default(self, principal: Principal) -> ProvidedAgent | None:
        """The default agent of this origin: the configured one, else the only one."""
        visible = await self._directory.visible_agents(principal)
        default = self._options.default_agent
        if default is not None:
            return next((agent for agent in visible if default in (agent.record.id, agent.agent.id)), None)
        return visible[0] if len(visible) == 1 else None

    async def _find_full(self, principal: Principal, key: str) -> ProvidedAgent | None:
        """An agent that the caller may see in full: an A2A card has no summary."""
        visible = await self._directory.find(principal, key)
        if visible is None or visible.level != "full":
            return None
        return await self._directory.find_provided(principal, key)

    async def _choose_card(self, request: Request, principal: Principal) -> VisibleAgent | None:
        default = await self._find_default(principal)
        return None if default is None else VisibleAgent(default.agent, "full")

    async def _a2a(self, request: Request, principal: Principal) -> Response:
        key = request.param("agent")
        provided = await (self._find_default(principal) if key is None else self._find_full(principal, key))
        if provided is None or provided.a2a is None or request.method not in ("GET", "HEAD"):
            return self._not_found(request)
        etag = strong_etag(provided.a2a, _A2A_MEDIA_TYPE)
        headers = [(b"etag", etag.encode()), (b"access-control-allow-origin", b"*")]
        if is_not_modified(request, etag, None, now=self._now()):
            return Response(304, headers=headers)
        return Response(200, provided.a2a, headers=headers)


def discovery_app(
    provider: AgentProvider,
    *,
    policy: VisibilityPolicy | None = None,
    options: DiscoveryOptions | Mapping[str, Any] | None = None,
) -> Discovery:
    """The endpoints over a provider, as a plain ASGI application (AF-70)."""
    return Discovery(provider=provider, policy=policy, options=options)


def _options(given: DiscoveryOptions | Mapping[str, Any] | None) -> DiscoveryOptions:
    if given is None or isinstance(given, DiscoveryOptions):
        return given or DiscoveryOptions()
    known = DiscoveryOptions.__struct_fields__
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(known)}."
            raise ConfigurationError(f"{name!r} is not an option of Discovery.", path=f"options.{name}", hint=hint)
    return DiscoveryOptions(**given)


def principal_of(scope: Scope) -> Principal:
    """The caller according to the application's own authentication, if it has one (AF-73)."""
    state = scope.get("state")
    if "user" in scope:
        user = scope["user"]
    elif isinstance(state, Mapping) and "user" in state:
        user = state["user"]
    else:
        return UNAUTHENTICATED
    if isinstance(user, Principal):
        return user
    if not user or getattr(user, "is_authenticated", True) is False:
        return ANONYMOUS
    return _application_principal(_subject_of(user))


def _application_principal(subject: str) -> Principal:
    return Principal(subject=subject, scopes=frozenset((SCOPE_READ,)), via="application")


def _subject_of(user: Any) -> str:
    if isinstance(user, str):
        return user
    for name in _SUBJECT_MEMBERS:
        value = user.get(name) if isinstance(user, Mapping) else getattr(user, name, None)
        if isinstance(value, str | int) and value != "":
            return str(value)
    return str(user)


def _app_route_wins(path: str) -> bool:
    """True for paths at which a route of the application takes precedence (AF-71)."""
    return path.startswith(LEGACY) or path.rstrip("/") == LEGACY_CARD or path == A2A_CARD


async def _run_lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return
