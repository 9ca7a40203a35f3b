"""`Agent`: a profile document with named members. It is a dict, so whatever takes a document takes an agent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from waypost.model.record import STATUSES

__all__ = ["Agent"]


class Agent(dict[str, Any]):
    """An agent as the discovery profile describes it; members that it does not define are welcome.

    >>> agent = Agent("https://a.example/translator", "Translator", "Translates invoices.", tags=["translation"])
    >>> agent.bind("https", "https://a.example/invoke").example("Translate this invoice to French.").name
    'Translator'
    """

    health: str | None = None  # healthy, suspect or unhealthy, in lists of a service that checks endpoints

    def __init__(
        self,
        id: str,  # noqa: A002 - the profile's own word
        name: str,
        description: str,
        *,
        bindings: Iterable[Mapping[str, Any]] = (),
        tags: Iterable[str] = (),
        examples: Iterable[str | Mapping[str, Any]] = (),
        **members: Any,
    ) -> None:
        super().__init__(id=id, name=name, description=description)
        tag_list = list(tags)
        if tag_list:
            self["tags"] = tag_list
        example_list = [_example(item) for item in examples]
        if example_list:
            self["examples"] = example_list
        self["bindings"] = [dict(binding) for binding in bindings]
        self.update(members)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Agent:
        """The agent in a profile document, every member kept as it is."""
        agent = cls.__new__(cls)
        dict.update(agent, document)
        return agent

    def bind(self, protocol: str, endpoint: str, **members: Any) -> Agent:
        """Add a way to reach the agent."""
        self.setdefault("bindings", []).append({"protocol": protocol, "endpoint": endpoint, **members})
        return self

    def example(self, text: str, **members: Any) -> Agent:
        """Add a concrete task that the agent can do."""
        self.setdefault("examples", []).append({"text": text, **members})
        return self

    @property
    def id(self) -> str:
        return str(self["id"])

    @property
    def name(self) -> str:
        return str(self["name"])

    @property
    def description(self) -> str:
        return str(self.get("description", ""))

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(self.get("tags") or ())

    @property
    def bindings(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(self.get("bindings") or ())

    @property
    def examples(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(self.get("examples") or ())

    @property
    def protocols(self) -> tuple[str, ...]:
        """The protocols of the bindings, each once, in order."""
        return tuple(dict.fromkeys(str(binding.get("protocol", "")) for binding in self.bindings))

    @property
    def endpoint(self) -> str | None:
        """Where to reach the agent: the endpoint of its most preferred binding (the lowest priority)."""
        preferred = min(self.bindings, key=lambda binding: binding.get("priority") or 0, default=None)
        return None if preferred is None else str(preferred.get("endpoint"))

    @property
    def version(self) -> str | None:
        return self.get("version")

    @property
    def status(self) -> str:
        return str(self.get("status") or STATUSES[0])

    @property
    def updated_at(self) -> str | None:
        return self.get("updated_at")

    def __repr__(self) -> str:
        return f"Agent(id={self.get('id')!r}, name={self.get('name')!r})"


def _example(item: str | Mapping[str, Any]) -> dict[str, Any]:
    return {"text": item} if isinstance(item, str) else dict(item)
