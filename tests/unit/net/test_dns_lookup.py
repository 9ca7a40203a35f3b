"""A DNS lookup: round trips, caching, failures, and trust."""

from __future__ import annotations

import asyncio

import dns.flags
import dns.rcode
import dns.rdatatype
import pytest

from support.memory_name_server import ZoneBook
from support.signed_zones import DAY, NOW, SignedZone, key, new_key, tampered
from waypost import limits
from waypost.net.clock import ManualClock
from waypost.net.dns.message import DnsMessage, DnsQuery
from waypost.net.dns.query_cache import TtlCache
from waypost.net.dns.validator import ValidatingResolver
from waypost.trust.dnssec.anchors import TrustAnchors, parse_anchors, parse_domains

AGENT = SignedZone("agent.test.", 'www TXT "hello"\nalias CNAME www\n_agents TXT "a"\n', [key(13, "agent")])
CHAIN = "".join(f"c{number} CNAME c{number + 1}\n" for number in range(12)) + 'c12 TXT "end"\n'


def top(*children: SignedZone, **how: object) -> SignedZone:
    body = "ns A 127.0.0.1\n" + "\n".join(child.delegation() for child in children)
    return SignedZone("test.", body, [key(13, "test.")], **how)  # type: ignore[arg-type]


def resolver(
    book: ZoneBook,
    clock: ManualClock | None = None,
    *,
    anchored: bool = True,
    root: bool = False,
    trust_ad: bool = False,
) -> ValidatingResolver:
    records = parse_anchors("\n".join(f"test. DS {line}" for line in top().ds_lines())) if anchored else ()
    now = (clock or ManualClock(NOW)).now
    return ValidatingResolver(book, TrustAnchors(records, root=root), clock=now, trust_ad=trust_ad)


# --- Cost -----------------------------------------------------------------------------------------


async def test_an_answer_and_its_whole_chain_take_one_round_trip() -> None:
    dns_ = resolver(ZoneBook(top(AGENT), AGENT))
    found = await dns_.lookup("_agents.agent.test", "TXT")
    assert (found.outcome, found.security) == ("found", "secure")
    assert (found.queries, found.round_trips) == (4, 1)
    again = await dns_.lookup("_agents.agent.test", "TXT")
    assert (again.security, again.queries, again.round_trips, again.records) == ("secure", 0, 0, found.records)
    beside = await dns_.lookup("_other.agent.test", "TXT")
    assert (beside.outcome, beside.security, beside.queries, beside.round_trips) == ("nxdomain", "secure", 1, 1)


async def test_concurrent_identical_lookups_share_one_answer() -> None:
    book = ZoneBook(top(AGENT), AGENT)
    dns_ = resolver(book)
    found = await asyncio.gather(*(dns_.lookup("www.agent.test", "TXT") for _ in range(50)))
    assert {one.security for one in found} == {"secure"}
    assert set(book.asked.values()) == {1}


async def test_the_number_of_queries_for_one_lookup_is_limited() -> None:
    name = ".".join(["a"] * 60)
    found = await resolver(ZoneBook(top(AGENT), AGENT)).lookup(f"{name}.agent.test", "TXT")
    assert found.outcome in ("failed", "nxdomain")
    assert found.queries <= limits.DNS_QUERIES


# --- Memory (D14) ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("ttl", "kept"), [(0, 5), (4, 5), (5, 5), (300, 300), (86_400, 86_400), (10**6, 86_400)])
def test_an_answer_is_cached_for_its_ttl_between_five_seconds_and_a_day(ttl: int, kept: int) -> None:
    clock = ManualClock(NOW)
    memory: TtlCache[str, int] = TtlCache(clock.now)
    memory.put("name", 1, ttl)
    assert memory.find("name") == (1, kept)
    clock.advance(kept - 1)
    assert memory.find("name") == (1, 1)
    clock.advance(1)
    assert memory.find("name") is None


def test_memory_has_a_bound_and_the_least_used_goes_first() -> None:
    memory: TtlCache[int, int] = TtlCache(ManualClock(NOW).now, capacity=3)
    for number in range(3):
        memory.put(number, number, 60)
    assert memory.find(0) is not None
    memory.put(3, 3, 60)
    assert len(memory) == 3
    assert memory.find(1) is None


async def test_an_answer_is_cached_for_its_ttl_and_queried_again_afterwards() -> None:
    clock, book = ManualClock(NOW), ZoneBook(top(AGENT), AGENT)
    dns_ = resolver(book, clock)
    first = await dns_.lookup("www.agent.test", "TXT")
    assert first.ttl == 300
    clock.advance(299)
    assert (await dns_.lookup("www.agent.test", "TXT")).ttl == 1
    clock.advance(1)
    assert (await dns_.lookup("www.agent.test", "TXT")).queries > 0


async def test_that_there_is_nothing_is_remembered_as_long_as_the_zone_says() -> None:
    clock, book = ManualClock(NOW), ZoneBook(top(AGENT), AGENT)
    dns_ = resolver(book, clock)
    assert (await dns_.lookup("www.agent.test", "MX")).ttl == 60  # type: ignore[arg-type]
    clock.advance(61)
    assert (await dns_.lookup("www.agent.test", "MX")).queries > 0  # type: ignore[arg-type]


async def test_nothing_is_cached_beyond_the_validity_of_its_signature() -> None:
    zone = SignedZone("agent.test.", 'www TXT "hello"\n', [key(13, "agent")], expiration=NOW + 100)
    found = await resolver(ZoneBook(top(zone), zone)).lookup("www.agent.test", "TXT")
    assert (found.security, found.ttl) == ("secure", 100)


async def test_two_resolvers_share_no_memory() -> None:
    one, other = ZoneBook(top(AGENT), AGENT), ZoneBook(top())
    assert (await resolver(one).lookup("www.agent.test", "TXT")).outcome == "found"
    assert (await resolver(other).lookup("www.agent.test", "TXT")).outcome == "nxdomain"


# --- Change ---------------------------------------------------------------------------------------


async def test_replaced_keys_are_fetched_again_before_an_answer_is_bogus() -> None:
    clock = ManualClock(NOW)
    book = ZoneBook(top(AGENT), AGENT)
    dns_ = resolver(book, clock)
    assert (await dns_.lookup("www.agent.test", "TXT")).security == "secure"
    other = SignedZone("agent.test.", 'www TXT "new"\nelse TXT "x"\n', [new_key()])
    book.serve(other)
    book.serve(top(other))
    found = await dns_.lookup("else.agent.test", "TXT")
    assert (found.outcome, found.security) == ("found", "secure"), found.reason


async def test_a_change_of_keys_step_by_step_is_never_noticed() -> None:
    """Both keys sign, then the parent names both, then the new one alone, then the old one goes; each step after the time
    to live of the one before, and asked in between."""
    old, new = key(13, "agent"), key(13, "next")
    both = f"{old.ds('agent.test.')}\n{new.ds('agent.test.')}"
    steps = [([old], None), ([old, new], None), ([old, new], both), ([old, new], new.ds("agent.test.")), ([new], None)]
    clock, book = ManualClock(NOW), ZoneBook()
    dns_ = resolver(book, clock)
    for keys, ds in steps:
        zone = SignedZone("agent.test.", 'www TXT "hello"\nelse TXT "x"\n', keys, ds=ds)
        book.serve(zone)
        book.serve(top(zone))
        for name, seconds in (("www", 150), ("else", 151)):
            found = await dns_.lookup(f"{name}.agent.test", "TXT")
            assert (found.security, found.reason) == ("secure", "")
            clock.advance(seconds)


async def test_a_bogus_answer_is_not_cached() -> None:
    clock = ManualClock(NOW)
    bad = SignedZone("agent.test.", AGENT.body, AGENT.keys, edit=tampered('"hello"', '"hacked"'))
    book = ZoneBook(top(AGENT), bad)
    dns_ = resolver(book, clock)
    found = await dns_.lookup("www.agent.test", "TXT")
    assert (found.outcome, found.security, found.records, found.ttl) == ("failed", "bogus", (), 5)
    book.serve(AGENT)
    assert (await dns_.lookup("www.agent.test", "TXT")).security == "bogus"  # for a moment, lest it be asked in a loop
    clock.advance(6)
    assert (await dns_.lookup("www.agent.test", "TXT")).security == "secure"


async def test_signatures_end_with_the_clock() -> None:
    clock = ManualClock(NOW)
    dns_ = resolver(ZoneBook(top(AGENT), AGENT), clock)
    assert (await dns_.lookup("www.agent.test", "TXT")).security == "secure"
    clock.advance(21 * DAY)
    found = await dns_.lookup("www.agent.test", "TXT")
    assert (found.security, "has expired" in found.reason) == ("bogus", True)


# --- Failure (D3) ---------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [dns.rcode.SERVFAIL, dns.rcode.REFUSED, dns.rcode.NOTAUTH, dns.rcode.FORMERR])
async def test_a_failing_resolver_proves_nothing_about_the_name(code: dns.rcode.Rcode) -> None:
    book = ZoneBook(top(AGENT), AGENT)
    book.code = code
    found = await resolver(book).lookup("www.agent.test", "TXT")
    assert (found.outcome, found.security, found.records) == ("failed", "indeterminate", ())
    assert dns.rcode.to_text(code) in found.reason


@pytest.mark.parametrize(
    "silent", [("www.agent.test", "TXT"), ("agent.test", "DS"), ("agent.test", "DNSKEY"), ("test", "DNSKEY")]
)
async def test_withholding_an_answer_of_the_chain_makes_nothing_insecure(silent: tuple[str, str]) -> None:
    book = ZoneBook(top(AGENT), AGENT)
    book.fail.add(silent)
    found = await resolver(book).lookup("www.agent.test", "TXT")
    assert (found.outcome, found.security) == ("failed", "indeterminate")


async def test_a_look_up_ends_in_time_however_long_the_chain_takes() -> None:
    class Slow(ZoneBook):
        async def send(self, query: DnsQuery) -> DnsMessage:
            if query.type == dns.rdatatype.DNSKEY:
                await asyncio.Event().wait()
            return await super().send(query)

    anchors = TrustAnchors(parse_anchors(f"test. DS {top().ds_lines()[0]}"), root=False)
    dns_ = ValidatingResolver(Slow(top(AGENT), AGENT), anchors, clock=lambda: NOW, seconds=0.2)
    found = await dns_.lookup("www.agent.test", "TXT")
    assert (found.outcome, found.security, "too long" in found.reason) == ("failed", "indeterminate", True)
    await dns_.aclose()


async def test_an_anchor_that_was_named_must_be_found() -> None:
    unsigned = SignedZone("test.", 'www TXT "hello"\n')
    found = await resolver(ZoneBook(unsigned)).lookup("www.test", "TXT")
    assert (found.outcome, found.security) == ("failed", "bogus")


async def test_below_no_anchor_nothing_is_signed() -> None:
    found = await resolver(ZoneBook(top(AGENT), AGENT), anchored=False).lookup("www.agent.test", "TXT")
    assert (found.outcome, found.security, found.queries) == ("found", "insecure", 1)
    assert "no trust anchor" in found.reason


async def test_a_domain_that_is_named_as_not_signed_is_used_without_proof() -> None:
    """A zone of one's own network, of which the signed zone above knows nothing."""
    corp = SignedZone("corp.test.", 'www TXT "hello"\n')
    book = ZoneBook(top(), corp)
    assert (await resolver(book).lookup("www.corp.test", "TXT")).security == "bogus"
    records = parse_anchors(f"test. DS {top().ds_lines()[0]}")
    anchors = TrustAnchors(records, unsigned=parse_domains(["corp.test"], "insecure_domains"))
    found = await ValidatingResolver(book, anchors, clock=lambda: NOW).lookup("www.corp.test", "TXT")
    assert (found.outcome, found.security, found.queries) == ("found", "insecure", 1)


async def test_without_a_root_or_an_anchor_the_answer_is_indeterminate() -> None:
    """A server of one's own zone, without an anchor for it: found, and neither secure nor bogus."""
    found = await resolver(ZoneBook(AGENT), anchored=False, root=True).lookup("www.agent.test", "TXT")
    assert (found.outcome, found.security) == ("found", "indeterminate")
    assert "the root" in found.reason


async def test_a_root_that_was_reached_once_must_be_reached_from_then_on() -> None:
    clock = ManualClock(NOW)
    root = SignedZone(".", AGENT.delegation() + "\n", [key(13, "root")])
    book = ZoneBook(root, AGENT)
    anchors = TrustAnchors(parse_anchors("\n".join(f". DS {line}" for line in root.ds_lines())))
    dns_ = ValidatingResolver(book, anchors, clock=clock.now)
    assert (await dns_.lookup("www.agent.test", "TXT")).security == "secure"
    clock.advance(400)
    book.fail.add((".", "DNSKEY"))
    book.fail.add(("", "DNSKEY"))
    assert (await dns_.lookup("www.agent.test", "TXT")).outcome == "failed"


@pytest.mark.parametrize("name", ["a..b", "a" * 64 + ".test", ".".join(["a" * 60] * 5)])
async def test_a_lookup_of_an_invalid_name_fails(name: str) -> None:
    found = await resolver(ZoneBook(top())).lookup(name, "TXT")
    assert (found.outcome, found.security, found.queries) == ("failed", "indeterminate", 0)


# --- Aliases (D1) ---------------------------------------------------------------------------------


async def test_aliases_are_followed_but_not_without_end() -> None:
    zone = SignedZone("agent.test.", f"{CHAIN}loop CNAME pool\npool CNAME loop\nself CNAME self\n", [key(13, "agent")])
    dns_ = resolver(ZoneBook(top(zone), zone))
    near = await dns_.lookup("c6.agent.test", "TXT")
    assert (near.outcome, near.security, near.owner) == ("found", "secure", "c12.agent.test")
    for name in ("c0", "loop", "self"):
        found = await dns_.lookup(f"{name}.agent.test", "TXT")
        assert (found.outcome, "alias" in found.reason) == ("failed", True), name


# --- The word of a resolver (D4) ------------------------------------------------------------------


async def test_the_ad_bit_is_ignored_unless_configured() -> None:
    unsigned = SignedZone("plain.test.", 'www TXT "hello"\n')
    book = ZoneBook(top(unsigned), unsigned)
    book.flags = dns.flags.AD
    own = await resolver(book).lookup("www.plain.test", "TXT")
    assert (own.security, own.validated) == ("insecure", True)
    told = await resolver(book, trust_ad=True).lookup("www.plain.test", "TXT")
    assert (told.outcome, told.security, told.validated, told.queries) == ("found", "secure", False, 1)
    missing = await resolver(book, trust_ad=True).lookup("nothing.plain.test", "TXT")
    assert (missing.outcome, missing.security) == ("nxdomain", "secure")


async def test_without_the_ad_bit_nothing_is_secure() -> None:
    book = ZoneBook(top(AGENT), AGENT)
    found = await resolver(book, trust_ad=True).lookup("www.agent.test", "TXT")
    assert (found.security, found.validated) == ("insecure", False)
    book.code = dns.rcode.SERVFAIL
    assert (await resolver(book, trust_ad=True).lookup("www.agent.test", "TXT")).outcome == "failed"
