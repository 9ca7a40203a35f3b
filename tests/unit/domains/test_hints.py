"""Address hints in DNS are reported and not followed; targets are checked against the address policy (D7)."""

from __future__ import annotations

from support.fake_dns import Loopback
from support.resolve_fixtures import Bench
from waypost.domains.resolver import DomainResolver
from waypost.net.address_policy import AddressPolicy
from waypost.net.clock import SystemClock
from waypost.net.fetcher import SafeFetcher


async def test_address_hints_are_reported_and_never_connected_to(bench: Bench) -> None:
    bench.publish(params="ipv4hint=169.254.169.254 ipv6hint=::1")
    found = await bench.resolver.resolve(bench.domain)
    assert found.level == "key-verified"
    assert found.endpoints[0].hints == ("169.254.169.254", "::1")
    assert bench.web.connections == 1


async def test_targets_and_documents_at_denied_addresses_are_not_contacted(bench: Bench) -> None:
    fetcher = SafeFetcher(AddressPolicy(()), Loopback(), ca_file=bench.authority.certificate)  # type: ignore[arg-type]
    resolver = DomainResolver(bench.zones, fetcher, SystemClock())
    bench.publish(target="host.provider.net.", params=f'key65400="{bench.url("/cap.json")}"')
    found = await resolver.resolve(bench.domain)
    assert {step.code for step in found.steps if step.name in ("document", "capability")} == {"denied"}
    bench.zones.remove(bench.domain, "SVCB")
    found = await resolver.resolve(bench.domain, fresh=True)
    assert next(step for step in found.steps if step.name == "document").code == "denied"
    assert bench.web.connections == 0


async def test_an_address_in_place_of_a_name_is_no_target(bench: Bench) -> None:
    bench.publish(params='key65400="https://169.254.169.254/latest/meta-data"')
    found = await bench.resolver.resolve(bench.domain)
    assert next(step for step in found.steps if step.name == "capability").code == "denied"
