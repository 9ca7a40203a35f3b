"""Waypost: register an agent once, in any protocol, and find it through all of them.

The public names are these and no others (tests/unit/test_public_names.py). Each is loaded when it is first used, so that
`import waypost` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from waypost import conformance as conformance
    from waypost import errors as errors
    from waypost.client.aio.client import Client as Client
    from waypost.client.announcer import Announcer as Announcer
    from waypost.client.binding_policy import BindingPolicy as BindingPolicy
    from waypost.client.calls import AgentAnswer as AgentAnswer
    from waypost.client.chat import ChatMessage as ChatMessage
    from waypost.client.chat import Reply as Reply
    from waypost.client.finder import Finder as Finder
    from waypost.client.finder import FoundAgent as FoundAgent
    from waypost.client.http import Retry as Retry
    from waypost.client.keep import KeptAgent as KeptAgent
    from waypost.client.requests import Document as Document
    from waypost.client.requests import Failure as Failure
    from waypost.client.sync.client import SyncClient as SyncClient
    from waypost.client.validation import validate as validate
    from waypost.errors import WaypostError as WaypostError
    from waypost.live import LiveAgent as LiveAgent
    from waypost.protocols.validation import ValidationReport as ValidationReport
    from waypost.responses.agents import Agent as Agent
    from waypost.responses.agents import Change as Change
    from waypost.responses.agents import Page as Page
    from waypost.responses.agents import Receipt as Receipt
    from waypost.responses.search import Candidate as Candidate
    from waypost.responses.search import SearchResult as SearchResult
    from waypost.responses.service import Stats as Stats
    from waypost.server.api.agent_framework.middleware import Discovery as Discovery

__version__ = "0.2.0"

_MODULES = {
    "Agent": "waypost.responses.agents",
    "AgentAnswer": "waypost.client.calls",
    "BindingPolicy": "waypost.client.binding_policy",
    "KeptAgent": "waypost.client.keep",
    "Client": "waypost.client.aio.client",
    "SyncClient": "waypost.client.sync.client",
    "Announcer": "waypost.client.announcer",
    "Finder": "waypost.client.finder",
    "FoundAgent": "waypost.client.finder",
    "Discovery": "waypost.server.api.agent_framework.middleware",
    "LiveAgent": "waypost.live",
    "ChatMessage": "waypost.client.chat",
    "Reply": "waypost.client.chat",
    "Retry": "waypost.client.http",
    "Receipt": "waypost.responses.agents",
    "Failure": "waypost.client.requests",
    "Document": "waypost.client.requests",
    "Page": "waypost.responses.agents",
    "SearchResult": "waypost.responses.search",
    "Candidate": "waypost.responses.search",
    "Change": "waypost.responses.agents",
    "Stats": "waypost.responses.service",
    "ValidationReport": "waypost.protocols.validation",
    "WaypostError": "waypost.errors",
    "validate": "waypost.client.validation",
}

_PUBLIC_MODULES = ("conformance", "errors")

__all__ = (
    "Agent",
    "AgentAnswer",
    "BindingPolicy",
    "KeptAgent",
    "Client",
    "SyncClient",
    "Announcer",
    "Finder",
    "FoundAgent",
    "Discovery",
    "LiveAgent",
    "ChatMessage",
    "Reply",
    "Retry",
    "Receipt",
    "Failure",
    "Document",
    "Page",
    "SearchResult",
    "Candidate",
    "Change",
    "Stats",
    "ValidationReport",
    "WaypostError",
    "conformance",
    "errors",
    "validate",
    "__version__",
)


def __getattr__(name: str) -> Any:
    if name in _PUBLIC_MODULES:
        return import_module(f"waypost.{name}")
    home = _MODULES.get(name)
    if home is None:
        raise AttributeError(f"module 'waypost' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
