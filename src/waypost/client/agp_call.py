"""One question and its answer over AGP, for `Client.call`. `LiveAgent` holds longer conversations, under a name of its own."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.client.calls import AddressCheck, choose_address
from waypost.client.chat import Reply, chat_message
from waypost.client.clock import WallClock
from waypost.client.contacts import Contact, RegistryContacts, RegistryLookup
from waypost.client.http import async_resolve
from waypost.client.identity import key_only_agent
from waypost.client.peer_connection import PeerConnection, tls13_context
from waypost.client.registry_transport import http_client
from waypost.errors import InvalidRequest, UnknownPeer
from waypost.messaging.endpoint import AgpEndpoint, SystemRandomness
from waypost.messaging.peers import PeerIdentity
from waypost.model.json import JsonObject
from waypost.model.resolution import Resolution
from waypost.protocols.adp.agp.hello import AgpIdentity
from waypost.protocols.adp.agp.messages import MessageContent, parse_agent
from waypost.registry.memory_key_value import MemoryKeyValueStore
from waypost.settings import ConnectionSettings
from waypost.trust.keys.private_key import PrivateKey

if TYPE_CHECKING:
    from waypost.client.requests import Document
    from waypost.client.sync.client import SyncClient


def agent_uri(agent_id: str, document: JsonObject) -> str:
    """The Agent URI of a registered agent, from its ADP document.

    Args:
        agent_id: The id in the registry.
        document: Its ADP document.
    """
    identity = document.get("identity")
    found = identity.get("id") if isinstance(identity, dict) else None
    if not isinstance(found, str):
        raise InvalidRequest(
            f"{agent_id!r} has no Agent URI, so it cannot be called by AGP.",
            path="bindings",
            hint="`waypost host DOMAIN AGENT` gives it one.",
        )
    return parse_agent(found, "agent")


async def ask_by_agp(
    registry: RegistryLookup, address: ConnectionSettings, key: PrivateKey, check: AddressCheck, peer: str, text: str
) -> Reply:
    """Send one text to an agent and wait for its answer.

    Args:
        registry: Finds the URL and the verified key of the agent.
        address: The connection to the registry; its token is sent to the registry only.
        key: The key of the caller.
        check: Raises an error for an address that must not be connected to.
        peer: The Agent URI.
        text: What to ask.
    """
    # Without the token: the documents of the registry are public, and those of agents are elsewhere.
    http = http_client(msgspec.structs.replace(address, token=None))
    store, name = MemoryKeyValueStore(), key_only_agent(key)
    contacts = _VerifiedContacts(RegistryContacts(registry, http, address.token), address, check)
    me = AgpIdentity(agent=name, key=key, fingerprint=key.public.fingerprint() or "", raw=key.public.raw or b"")
    await store.open()
    endpoint = AgpEndpoint(me, store, contacts, WallClock(), SystemRandomness())
    connection = PeerConnection(
        endpoint, peer, contacts.contact, contacts, tls=None if address.ca is None else tls13_context(address.ca)
    )
    try:
        await connection.wait()
        message = endpoint.make_message(peer, MessageContent(text=text))
        answered = await endpoint.request(message, seconds=address.timeout or limits.AGP_ANSWER_SECONDS)
        parts = tuple(map(chat_message, answered))
        found = endpoint.connections.get(peer)
        verdict = None if found is None else found.verdict()
        return Reply(text="".join(part.text for part in parts), parts=parts, verdict=verdict)
    finally:
        await connection.close()
        await endpoint.close()
        await store.close()
        await http.aclose()


class AsyncAgpCaller:
    """`ask_by_agp` for `Client`."""

    def __init__(
        self, registry: RegistryLookup, address: ConnectionSettings, key: PrivateKey, check: AddressCheck
    ) -> None:
        """Use a registry to find agents.

        Args:
            registry: The client itself.
            address: The settings of its connection.
            key: The key of the caller.
            check: Raises an error for an address that must not be connected to.
        """
        self._registry = registry
        self._address = address
        self._key = key
        self._check = check

    async def ask(self, peer: str, text: str) -> Reply:
        """Send a text and wait for the answer.

        Args:
            peer: The Agent URI.
            text: What to ask.
        """
        return await ask_by_agp(self._registry, self._address, self._key, self._check, peer, text)


class AgpCaller:
    """The same for `SyncClient`: the conversation runs in an event loop of its own, in a thread."""

    def __init__(self, registry: SyncClient, address: ConnectionSettings, key: PrivateKey, check: AddressCheck) -> None:
        """Use a registry to find agents.

        Args:
            registry: The client itself.
            address: The settings of its connection.
            key: The key of the caller.
            check: Raises an error for an address that must not be connected to.
        """
        self._registry = _BlockingLookup(registry)
        self._address = address
        self._key = key
        self._check = check

    def ask(self, peer: str, text: str) -> Reply:
        """Send a text and wait for the answer.

        Args:
            peer: The Agent URI.
            text: What to ask.
        """
        with ThreadPoolExecutor(1, "waypost-agp") as thread:
            return thread.submit(
                asyncio.run, ask_by_agp(self._registry, self._address, self._key, self._check, peer, text)
            ).result()


class _BlockingLookup:
    """`RegistryLookup` over the blocking client. It blocks a loop on which nothing else runs."""

    def __init__(self, client: SyncClient) -> None:
        self._client = client

    async def resolve(self, name: str) -> Resolution:
        return self._client.resolve(name)

    async def document(self, id: str, as_: str = "profile") -> Document:  # noqa: A002
        return self._client.document(id, as_)


class _VerifiedContacts:
    """Contacts and keys of agents, as the registry verified them."""

    def __init__(self, contacts: RegistryContacts, address: ConnectionSettings, check: AddressCheck) -> None:
        self._contacts = contacts
        self._address = address
        self._check = check

    async def contact(self, agent: str) -> Contact:
        found = await self._contacts.find(agent)
        if found is None:
            raise UnknownPeer(f"{agent} is unknown.", path="to", hint="Is it registered, with the key of its domain?")
        if found.url is None:
            return found
        parts = urlsplit(found.url)
        if parts.netloc == urlsplit(self._address.base_url).netloc:
            return msgspec.structs.replace(found, token=found.token or self._address.token)
        host, port = parts.hostname or "", parts.port or 443
        addresses = await async_resolve(host, port)
        return msgspec.structs.replace(found, address=choose_address(host, port, addresses, self._check))

    async def key_of(self, agent: str) -> PeerIdentity | None:
        found = await self._contacts.find(agent)
        return None if found is None else found.key
