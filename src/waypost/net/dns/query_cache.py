"""Concurrent and repeated DNS queries: equal queries share one request, and responses are cached for their TTL (D14).

Validates nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, Protocol, TypeVar

import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset
from dns.rdatatype import RdataType
from dns.rdtypes.ANY.SOA import SOA

from waypost import limits
from waypost.cache import LruCache
from waypost.net.dns.message import DnsFailure, DnsMessage, DnsQuery, dns_failure

CacheKey = TypeVar("CacheKey", bound=Hashable)

CacheValue = TypeVar("CacheValue")

QueryResult = DnsMessage | DnsFailure

QueryKey = tuple[dns.name.Name, RdataType]


class TtlCache(Generic[CacheKey, CacheValue]):
    """An LRU cache whose entries expire."""

    def __init__(self, clock: Callable[[], float], capacity: int = limits.DNS_CACHE_ANSWERS) -> None:
        self._clock = clock
        self._entries: LruCache[CacheKey, tuple[CacheValue, float]] = LruCache(capacity)

    def find(self, key: CacheKey) -> tuple[CacheValue, int] | None:
        """The value and its remaining TTL in seconds."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        value, expires_at = entry
        remaining = expires_at - self._clock()
        if remaining <= 0:
            self._entries.drop(key)
            return None
        return value, int(remaining)

    def put(self, key: CacheKey, value: CacheValue, ttl: float) -> None:
        """Keep the value for `ttl` seconds, within the limits of D14."""
        self._entries.put(key, (value, self._clock() + clamp_ttl(ttl)))

    def remove(self, key: CacheKey) -> None:
        self._entries.drop(key)

    def __len__(self) -> int:
        return len(self._entries)


def clamp_ttl(ttl: float) -> int:
    return int(min(max(ttl, limits.DNS_TTL_MIN_SECONDS), limits.DNS_TTL_MAX_SECONDS))


class QuerySender(Protocol):
    """`UpstreamResolvers`, or a script of a test."""

    async def send(self, query: DnsQuery) -> DnsMessage: ...

    async def aclose(self) -> None: ...


class QueryBudget:
    """What one lookup may and did cost: queries, and round trips that had to wait for each other."""

    def __init__(self) -> None:
        self.queries = 0
        self.round_trips = 0
        self.server = ""
        self.keys: set[QueryKey] = set()
        self.used_cache = False
        self._started_at: dict[QueryKey, int] = {}  # the round trip in which a query was sent

    @property
    def has_room(self) -> bool:
        """Whether queries may be spent on answers that may not be needed."""
        return len(self.keys) < limits.DNS_QUERIES // 2

    def restart(self) -> None:
        """Forget which queries were sent, but not what they cost."""
        self.keys.clear()
        self._started_at.clear()
        self.used_cache = False

    def begin(self, key: QueryKey) -> None:
        self.keys.add(key)
        if len(self.keys) > limits.DNS_QUERIES:
            raise dns_failure("The DNSSEC validation needs too many queries.", "too_many")
        self._started_at[key] = self.round_trips

    def has_begun(self, key: QueryKey) -> bool:
        return key in self._started_at

    def end(self, key: QueryKey, result: QueryResult) -> None:
        started_at = self._started_at.pop(key, None)
        if started_at is None:
            return
        round_trips = result.round_trips if isinstance(result, DnsMessage) else 1
        self.round_trips = max(self.round_trips, started_at + round_trips)


class QueryCache:
    """`checking_disabled` requests signatures and unvalidated data; without it the resolver's validation is trusted."""

    def __init__(self, sender: QuerySender, clock: Callable[[], float], *, checking_disabled: bool = True) -> None:
        self._sender = sender
        self._checking_disabled = checking_disabled
        self._results: TtlCache[QueryKey, QueryResult] = TtlCache(clock, limits.DNS_CACHE_MESSAGES)
        self._pending: dict[QueryKey, asyncio.Task[QueryResult]] = {}

    def prefetch(self, name: dns.name.Name, kind: RdataType, budget: QueryBudget) -> None:
        """Send a query whose answer is likely to be needed."""
        key = (name, kind)
        if self._results.find(key) is None and not budget.has_begun(key):
            budget.begin(key)
            self._task(key, budget)

    async def query(self, name: dns.name.Name, kind: RdataType, budget: QueryBudget) -> DnsMessage:
        """Raises DnsFailure if there is no answer."""
        key = (name, kind)
        cached = self._results.find(key)
        if cached is None:
            self.prefetch(name, kind, budget)
            result = await asyncio.shield(self._task(key, budget))
        else:
            result = cached[0]
            budget.used_cache = budget.used_cache or not budget.has_begun(key)
        budget.keys.add(key)
        budget.end(key, result)
        if isinstance(result, DnsFailure):
            raise result.copy()
        budget.server = result.server
        return result

    def remove(self, keys: Iterable[QueryKey]) -> None:
        for key in keys:
            self._results.remove(key)

    async def aclose(self) -> None:
        for task in [*self._pending.values()]:
            task.cancel()
        if self._pending:
            await asyncio.wait([*self._pending.values()])

    def _task(self, key: QueryKey, budget: QueryBudget) -> asyncio.Task[QueryResult]:
        task = self._pending.get(key)
        if task is None:
            budget.queries += 1
            task = self._pending[key] = asyncio.create_task(self._send(key, budget))
            task.add_done_callback(lambda _: self._pending.pop(key, None))
        return task

    async def _send(self, key: QueryKey, budget: QueryBudget) -> QueryResult:
        query = DnsQuery(name=key[0], type=key[1], checking_disabled=self._checking_disabled)
        try:
            message = await self._sender.send(query)
        except DnsFailure as error:
            failure = error.copy()
            self._results.put(key, failure, limits.DNS_TTL_MIN_SECONDS)
            return failure
        budget.queries += message.queries - 1
        self._results.put(key, message, _message_ttl(message))
        return message


def _message_ttl(message: DnsMessage) -> int:
    """The lowest TTL of its record sets; the SOA's for a negative answer (RFC 2308 §5); the minimum for a failure."""
    if message.rcode not in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
        return limits.DNS_TTL_MIN_SECONDS
    ttls = [rrset.ttl for rrset in message.answer]
    if not any(rrset.rdtype == message.type for rrset in message.answer):
        ttls.append(negative_ttl(message.authority))
    return min(ttls, default=limits.DNS_TTL_MIN_SECONDS)


def negative_ttl(authority: tuple[dns.rrset.RRset, ...]) -> int:
    """How long a negative answer may be cached: 0 without an SOA record."""
    for rrset in authority:
        if rrset.rdtype == dns.rdatatype.SOA:
            return min(rrset.ttl, *(rdata.minimum for rdata in rrset if isinstance(rdata, SOA)))
    return 0
