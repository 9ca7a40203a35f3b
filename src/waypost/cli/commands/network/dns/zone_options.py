"""What the commands around zones share: which agent, which certificate, and the records that should be there."""

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
from waypost.cli.session import Session
from waypost.client.results import AgentZone
from waypost.errors import FetchFailed, InvalidRequest

_OPTIONS = (
    click.option("--target", metavar="HOST", help="The host that serves the agent, when it is not the domain itself."),
    click.option("--port", type=click.IntRange(1, 65535), help="Its port.  [default: the service's, else 443]"),
    click.option("--ttl", type=click.IntRange(5, 86400), help="How long records may be remembered.  [default: 3600]"),
    click.option(
        "--org", metavar="DOMAIN", help="Write the index of this organisation too, with every agent below it."
    ),
    click.option("--address", "addresses", multiple=True, metavar="IP", help="An address of the host. Repeatable."),
    click.option(
        "--tlsa-cert",
        "certificates",
        multiple=True,
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="A certificate for TLSA, in PEM; two while one follows the other.  [default: the service's own]",
    ),
    click.option("--live", is_flag=True, help="Take the certificate for TLSA from the host as it answers now."),
)


class ZoneOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for beside the agent."""

    target: str | None = None
    port: int | None = None
    ttl: int | None = None
    org: str | None = None
    addresses: tuple[str, ...] = ()
    certificates: tuple[Path, ...] = ()
    live: bool = False


def zone_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options and hands them to the command as `wanted`."""

    @functools.wraps(function)
    def command(*given: Any, **options: Any) -> Any:
        wanted = ZoneOptions(**{name: options.pop(name) for name in ZoneOptions.__struct_fields__})
        return function(*given, wanted=wanted, **options)

    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def fetch_zone(session: Session, agent: str, wanted: ZoneOptions, form: str = "bind") -> AgentZone:
    """The records that should be there, as the service knows them."""
    if not agent.strip():
        raise click.UsageError("Name an agent, or its domain.")
    session, certificates = _tlsa_certificates(session, wanted.certificates)
    digests = [_spki_digest(_read_certificate(path)) for path in certificates]
    with session.client() as client:

        def ask() -> AgentZone:
            return client.zone(
                agent,
                form,
                target=wanted.target,
                port=wanted.port,
                ttl=wanted.ttl,
                org=wanted.org,
                addresses=wanted.addresses,
                spki=digests,
            )

        if wanted.live:
            host, port = _service_address(ask())
            address = wanted.addresses[0] if wanted.addresses else host
            digests.append(_spki_digest(_live_certificate(host, address, port)))
        return ask()


def _tlsa_certificates(session: Session, certificates: tuple[Path, ...]) -> tuple[Session, tuple[Path, ...]]:
    """The certificates for TLSA. A `--cert` without a key proves nobody to the service, so it is meant for the zone."""
    alone = session.cert if session.cert_key is None else None
    if alone is None or b"PRIVATE KEY" in _read_bytes(alone):
        return session, certificates
    return msgspec.structs.replace(session, cert=None), (*certificates, alone)


def _service_address(zone: AgentZone) -> tuple[str, int]:
    """Where the agent's own SRV record leads to."""
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
            f"{path} does not begin with a certificate in PEM.", path=str(path), hint="Name the host's own, first."
        ) from None


def _live_certificate(host: str, address: str, port: int) -> bytes:
    """The certificate of a host. It is not judged: it is what will be named, whoever gave it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((address, port), timeout=limits.LIVE_CERTIFICATE_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            found = secured.getpeercert(binary_form=True)
    except OSError as error:
        found, why = None, str(error)
    else:
        why = "it shows none"
    if found is None:
        raise FetchFailed(
            f"No certificate could be had from {host} port {port}: {why}.",
            path="live",
            hint="Name the file with --tlsa-cert, or the address with --address.",
        )
    return found


def _spki_digest(certificate: bytes) -> str:
    key = x509.load_der_x509_certificate(certificate).public_key()
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()
