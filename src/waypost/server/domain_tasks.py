"""Where an agent takes tasks that is not registered here: as the document says that its domain leads to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from waypost.errors import InvalidParameter, NotFound
from waypost.model.json import JsonObject
from waypost.model.names import domain_of

if TYPE_CHECKING:
    from waypost.domains.outcome import Found


class Resolver(Protocol):
    async def find(self, name: str) -> Found: ...


class DomainTasks:
    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver

    async def tasks_url(self, agent: str) -> str:
        """NotFound when there is none; why, is not told to who could map a network by it."""
        try:
            found = await self._resolver.find(agent)
        except InvalidParameter:
            raise _nowhere(agent) from None
        told = found.resolution
        if not told.is_resolved or any(verdict.state == "failed" for verdict in told.verdicts):
            raise _nowhere(agent)
        for descriptor in found.documents:
            url = _tasks(descriptor.parsed or {})
            if url is not None:
                return url
        raise _nowhere(agent)


def is_domain(agent: str) -> bool:
    """Whether an Agent URI has a name that the DNS may know."""
    domain = domain_of(agent) if agent.startswith("agent:") else None
    return domain is not None and "." in domain and not domain.rpartition(".")[2].isdigit()


def _tasks(document: JsonObject) -> str | None:
    endpoints: Any = document.get("endpoints")
    url = endpoints.get("tasks") if isinstance(endpoints, dict) else None
    return url if isinstance(url, str) and url.startswith("https://") else None


def _nowhere(agent: str) -> NotFound:
    return NotFound(f"Nothing tells where {agent[:80]!r} takes tasks.", path="agent", hint="Is its name right?")
