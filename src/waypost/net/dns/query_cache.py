"""What is remembered for a while, and no more of it than a bound: the least used goes first."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, Protocol, TypeVar

import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset
from dns.rdatatype import RdataType
from dns.rdtypes.ANY.SOA import SOA

from waypost import limits
from waypost.net.dns.message import DnsFailure, DnsMessage, DnsQuery, dns_failure

CacheKey = TypeVar("CacheKey", bound=Hashable)

CacheValue = TypeVar("CacheValue")


class TtlCache(Generic[CacheKey, CacheValue]):
    def __init__(self, clock: Callable[[], float], most: int = limits.DNS_CACHE_ANSWERS) -> None:
        self._clock = clock
        self._most = most
        self._kept: OrderedDict[CacheKey, tuple[CacheValue, float]] = OrderedDict()

    def find(self, key: CacheKey) -> tuple[CacheValue, int] | None:
        """With the seconds that are left of its time."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        left = kept[1] - self._clock()
        if left <= 0:
            del self._kept[key]
            return None
        self._kept.move_to_end(key)
        return kept[0], int(left)

    def keep(self, key: CacheKey, value: CacheValue, ttl: float) -> int:
        """For how long it is kept: the time to live within D14's bounds."""
        seconds = clamp_ttl(ttl)
        self._kept[key] = (value, self._clock() + seconds)
        self._kept.move_to_end(key)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return seconds

    def forget(self, key: CacheKey) -> None:
        self._kept.pop(key, None)

    def __len__(self) -> int:
        return len(self._kept)


def clamp_ttl(ttl: float) -> int:
    return int(min(max(ttl, limits.DNS_TTL_LEAST), limits.DNS_TTL_MOST))


# ---- Questions and answers as one process sees them: whoever asks what is being asked already waits for the same answer, and
# what was answered is remembered for its time to live (D14). Judges nothing.

QueryResult = DnsMessage | DnsFailure

QueryKey = tuple[dns.name.Name, RdataType]


class QuerySender(Protocol):
    """Whoever is asked: `Upstreams`, or a script."""

    async def ask(self, question: DnsQuery) -> DnsMessage: ...

    async def aclose(self) -> None: ...


class QueryBudget:
    """What one look-up cost: questions sent, and how many of them had to wait for another."""

    def __init__(self) -> None:
        self.queries = 0
        self.round_trips = 0
        self.server = ""
        self.asked: set[QueryKey] = set()
        self.remembered = False  # whether anything was answered from memory
        self._begun: dict[QueryKey, int] = {}

    @property
    def has_room(self) -> bool:
        """Whether there are questions to spare for what may not be needed."""
        return len(self.asked) < limits.DNS_QUERIES // 2

    def reset(self) -> None:
        """Nothing of what was asked so far counts any more, but for what it cost."""
        self.asked.clear()
        self._begun.clear()
        self.remembered = False

    def begin(self, key: QueryKey) -> None:
        self.asked.add(key)
        if len(self.asked) > limits.DNS_QUERIES:
            raise dns_failure("Too many questions are needed to prove the answer.", "too_many")
        self._begun[key] = self.round_trips

    def has_begun(self, key: QueryKey) -> bool:
        return key in self._begun

    def end(self, key: QueryKey, message: QueryResult) -> None:
        begun = self._begun.pop(key, None)
        if begun is None:
            return
        trips = message.round_trips if isinstance(message, DnsMessage) else 1
        self.round_trips = max(self.round_trips, begun + trips)


class QueryCache:
    """One for each way of asking: with signatures and unchecked, or trusting what the resolver checked."""

    def __init__(self, upstreams: QuerySender, clock: Callable[[], float], *, checking: bool = True) -> None:
        self._upstreams = upstreams
        self._checking = checking
        self._kept: TtlCache[QueryKey, QueryResult] = TtlCache(clock, limits.DNS_CACHE_MESSAGES)
        self._asking: dict[QueryKey, asyncio.Task[QueryResult]] = {}

    def begin(self, name: dns.name.Name, kind: RdataType, account: QueryBudget) -> None:
        """Ask ahead, for an answer that is likely to be needed."""
        key = (name, kind)
        if self._kept.find(key) is None and not account.has_begun(key):
            account.begin(key)
            self._task(key, account)

    async def ask(self, name: dns.name.Name, kind: RdataType, account: QueryBudget) -> DnsMessage:
        """DnsFailure when there is no answer."""
        key = (name, kind)
        kept = self._kept.find(key)
        if kept is None:
            self.begin(name, kind, account)
            answered = await asyncio.shield(self._task(key, account))
        else:
            answered = kept[0]
            account.remembered = account.remembered or not account.has_begun(key)
        account.asked.add(key)
        account.end(key, answered)
        if isinstance(answered, DnsFailure):
            raise answered.again()
        account.server = answered.server
        return answered

    def forget(self, keys: Iterable[QueryKey]) -> None:
        for key in keys:
            self._kept.forget(key)

    async def aclose(self) -> None:
        for task in [*self._asking.values()]:
            task.cancel()
        if self._asking:
            await asyncio.wait([*self._asking.values()])

    def _task(self, key: QueryKey, account: QueryBudget) -> asyncio.Task[QueryResult]:
        task = self._asking.get(key)
        if task is None:
            account.queries += 1
            task = self._asking[key] = asyncio.create_task(self._send(key, account))
            task.add_done_callback(lambda _: self._asking.pop(key, None))
        return task

    async def _send(self, key: QueryKey, account: QueryBudget) -> QueryResult:
        question = DnsQuery(name=key[0], type=key[1], checking=self._checking)
        answered: QueryResult
        try:
            answered = await self._upstreams.ask(question)
            account.queries += answered.queries - 1
            self._kept.keep(key, answered, _message_ttl(answered))
        except DnsFailure as error:
            answered = error.again()
        if isinstance(answered, DnsFailure):
            self._kept.keep(key, answered, limits.DNS_TTL_LEAST)
        return answered


def _message_ttl(message: DnsMessage) -> int:
    """Of an answer the least of its sets; of its absence what the zone says (RFC 2308 §5); of a failure the least there is."""
    if message.rcode not in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
        return limits.DNS_TTL_LEAST
    times = [rrset.ttl for rrset in message.answer]
    if not any(rrset.rdtype == message.type for rrset in message.answer):
        times.append(negative_ttl(message.authority))
    return min(times, default=limits.DNS_TTL_LEAST)


def negative_ttl(authority: tuple[dns.rrset.RRset, ...]) -> int:
    """0 where no SOA says how long: that is not to be remembered."""
    for rrset in authority:
        if rrset.rdtype == dns.rdatatype.SOA:
            return min(rrset.ttl, *(row.minimum for row in rrset if isinstance(row, SOA)))
    return 0
