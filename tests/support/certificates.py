"""A certificate authority for tests: it issues certificates for servers and clients, and revokes them."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = datetime.timedelta(days=1)
SERVER = ExtendedKeyUsageOID.SERVER_AUTH
CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH


class Issued(NamedTuple):
    """The files of a certificate and its key."""

    certificate: Path
    key: Path
    serial: int
    fingerprint: str

    @property
    def files(self) -> tuple[str, str]:
        return str(self.certificate), str(self.key)


class Authority:
    """Issues certificates into a folder. `certificate` is the file of its own."""

    def __init__(self, folder: Path, name: str = "Test authority", *, days: int = 1) -> None:
        """`days`: how long its certificates are valid."""
        folder.mkdir(parents=True, exist_ok=True)
        self._validity = days * _DAY
        self._folder = folder
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = generate_private_key(SECP256R1())
        self._revoked: list[int] = []
        self.certificate = folder / "ca.pem"
        self.crl = folder / "ca.crl"
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        builder = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(True, None), critical=True)
        signed = builder.add_extension(usage, critical=True).sign(self._key, SHA256())
        self.certificate.write_bytes(signed.public_bytes(Encoding.PEM))

    def _builder(self, name: x509.Name, key: EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + self._validity)
            .add_extension(identifier, critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )

    def server(self, name: str = "server") -> Issued:
        """For 127.0.0.1 and localhost."""
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        return self.issue(name, names, SERVER)

    def server_files(self, *hosts: str) -> tuple[Path, Path]:
        """A certificate for these host names and addresses, and its key. It states no extended key usage."""
        issued = self.issue(hosts[0], [_general_name(host) for host in hosts], None)
        return issued.certificate, issued.key

    def server_context(self, *hosts: str) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*self.server_files(*hosts))
        return context

    def client(self, name: str, *uris: str, dns: tuple[str, ...] = ()) -> Issued:
        names = [*map(x509.UniformResourceIdentifier, uris), *map(x509.DNSName, dns)]
        return self.issue(name, names, CLIENT)

    def issue(self, name: str, names: list[x509.GeneralName], usage: x509.ObjectIdentifier | None = CLIENT) -> Issued:
        key = generate_private_key(SECP256R1())
        builder = self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        if usage is not None:
            builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        signed = builder.sign(self._key, SHA256())
        paths = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        paths[0].write_bytes(signed.public_bytes(Encoding.PEM))
        paths[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return Issued(*paths, signed.serial_number, signed.fingerprint(SHA256()).hex())

    def revoke(self, *issued: Issued, ends: datetime.timedelta = _DAY) -> Path:
        """Replace the revocation list by one that also lists these."""
        now = datetime.datetime.now(datetime.UTC)
        self._revoked += [one.serial for one in issued]
        builder = x509.CertificateRevocationListBuilder().issuer_name(self._name)
        builder = builder.last_update(now - 2 * _DAY).next_update(now + ends)
        for serial in self._revoked:
            row = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now - _DAY).build()
            builder = builder.add_revoked_certificate(row)
        fresh = self.crl.with_suffix(".new")
        fresh.write_bytes(builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM))
        fresh.rename(self.crl)
        return self.crl


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
