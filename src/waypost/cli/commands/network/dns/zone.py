"""`waypost dns zone`, and the options by which all `dns` commands choose the records of an agent."""

from __future__ import annotations

import functools
import hashlib
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from waypost import limits
from waypost.cli.completion import complete_agent
from waypost.cli.options import WholeNumber, example
from waypost.cli.session import Session, use_agent, with_session
from waypost.domains.zone import ZONE_FORMATS
from waypost.errors import FetchFailed, InvalidRequest
from waypost.responses.agents import AgentZone

_OPTIONS = (
    click.option("--target", metavar="HOST", help="The host that serves the agent, if it is not the domain itself."),
    click.option("--port", type=WholeNumber(1, 65535), help="Its port.  [default: the service's, else 443]"),
    click.option("--ttl", type=WholeNumber(5, 86400), help="The TTL of the records.  [default: 3600]"),
    click.option("--org", metavar="DOMAIN", help="Add the index of this organisation, with every agent below it."),
    click.option("--address", "addresses", multiple=True, metavar="IP", help="An address of the host. Repeatable."),
    click.option(
        "--tlsa-cert",
        "certificates",
        multiple=True,
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="A certificate for TLSA (PEM); repeat during a rollover.  [default: the service's own]",
    ),
    click.option("--live", is_flag=True, help="Fetch the certificate for TLSA from the host."),
)


class ZoneOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which records to generate."""

    target: str | None = None
    port: int | None = None
    ttl: int | None = None
    org: str | None = None
    addresses: tuple[str, ...] = ()
    certificates: tuple[Path, ...] = ()
    live: bool = False


def zone_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the command receives them as `options`."""

    @functools.wraps(function)
    def command(*arguments: Any, **given: Any) -> Any:
        options = ZoneOptions(**{name: given.pop(name) for name in ZoneOptions.__struct_fields__})
        return function(*arguments, options=options, **given)

    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command(
    "zone",
    epilog=example(
        "waypost dns zone alice.example.com",
        "waypost dns zone alice.example.com --tlsa-cert alice.pem --org example.com >> example.com.zone",
        "waypost dns zone agent:alice.example.com --format terraform > alice.tf",
    ),
)
@click.argument("agent", metavar="AGENT|DOMAIN", shell_complete=complete_agent)
@click.option(
    "--format", "form", type=click.Choice(ZONE_FORMATS), default="bind", show_default=True, help="The target format."
)
@zone_options
@with_session
def zone(session: Session, agent: str, form: str, options: ZoneOptions) -> None:
    """Print the DNS records of an agent: SVCB, TXT, SRV, TLSA, and the index of an organisation.

    bind: a zone file for BIND, knot, nsd and others, with the SVCB keys of DNS-AID by number. managed: for DNS providers
    that reject such keys. terraform: the same as Route 53 resources.
    """
    printer = session.printer()
    found = fetch_zone(session, agent, options, form)
    if not printer.is_human:
        printer.value(found.document)
        return
    printer.raw(found.text.encode())
    for warning in found.warnings:
        printer.note(warning)


def fetch_zone(session: Session, agent: str, options: ZoneOptions, form: str = "bind") -> AgentZone:
    """The records that the service generates for the agent."""
    if not agent.strip():
        raise click.UsageError("Name an agent, or its domain.")
    session, certificates = _tlsa_certificates(session, options.certificates)
    digests = [_spki_digest(_read_certificate(path)) for path in certificates]
    with session.client() as client:

        def fetch_by_id(agent_id: str) -> AgentZone:
            return client.zone(
                agent_id,
                form,
                target=options.target,
                port=options.port,
                ttl=options.ttl,
                org=options.org,
                addresses=options.addresses,
                spki=digests,
            )

        def fetch() -> AgentZone:
            return use_agent(client, agent, fetch_by_id)

        if options.live:
            host, port = _service_address(fetch())
            address = options.addresses[0] if options.addresses else host
            digests.append(_spki_digest(_live_certificate(host, address, port)))
        return fetch()


def _tlsa_certificates(session: Session, certificates: tuple[Path, ...]) -> tuple[Session, tuple[Path, ...]]:
    """The certificates for TLSA. A `--cert` without a key cannot authenticate, so it is meant for the zone."""
    keyless = session.cert if session.cert_key is None else None
    if keyless is None or b"PRIVATE KEY" in _read_bytes(keyless):
        return session, certificates
    return msgspec.structs.replace(session, cert=None), (*certificates, keyless)


def _service_address(zone: AgentZone) -> tuple[str, int]:
    """The target of the agent's own SRV record."""
    name = f"_agent._tcp.{zone.domain}"
    _, _, port, target = next(line.data for line in zone.records if line.name == name).split()
    return target.rstrip("."), int(port)


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"The file {path} cannot be read: {error.strerror}.", path=str(path)) from None


def _read_certificate(path: Path) -> bytes:
    try:
        return x509.load_pem_x509_certificate(_read_bytes(path)).public_bytes(Encoding.DER)
    except ValueError:
        raise InvalidRequest(
            f"{path} does not begin with a certificate in PEM.", path=str(path), hint="Put the host's own first."
        ) from None


def _live_certificate(host: str, address: str, port: int) -> bytes:
    """The certificate of a host, unverified: the zone will name it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((address, port), timeout=limits.LIVE_CERTIFICATE_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            found = secured.getpeercert(binary_form=True)
    except OSError as error:
        found, reason = None, str(error)
    else:
        reason = "it presents none"
    if found is None:
        raise FetchFailed(
            f"Could not get a certificate from {host} port {port}: {reason}.",
            path="live",
            hint="Use a file with --tlsa-cert, or an address with --address.",
        )
    return found


def _spki_digest(certificate: bytes) -> str:
    key = x509.load_der_x509_certificate(certificate).public_key()
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()
