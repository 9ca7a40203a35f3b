"""`waypost dns zone`, and the keys of hosted domains."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from support.certificates import Authority
from support.fake_dns import site_in_thread
from support.shell import Shell

HOST = "typed.example.com"


@pytest.fixture
def hosted(shell: Shell, agent: dict[str, Any]) -> str:
    """An agent under a domain of its own."""
    domain = f"{agent['name'].replace(' ', '-')[:24].strip('-')}.example.com"
    assert shell("register", shell.write("agent.json", agent)).code == 0
    assert shell("host", domain, agent["id"]).code == 0
    return domain


def _digest(certificate: Path) -> str:
    key = x509.load_pem_x509_certificate(certificate.read_bytes()).public_key()
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def test_a_zone_is_printed_in_every_format(shell: Shell, hosted: str, agent: dict[str, Any]) -> None:
    bind = shell("dns", "zone", hosted)
    assert bind.code == 0, bind.err
    assert f"{hosted}. 3600 IN SVCB 1 {hosted}. " in bind.out
    assert "key65400=" in bind.out
    assert "dane-verified" in bind.err  # missing records are reported on stderr
    managed = shell("dns", "zone", agent["id"], "--format", "managed", "--ttl", "60")
    assert "key65400" not in managed.out
    assert f"{hosted}. 60 IN SVCB" in managed.out
    terraform = shell("dns", "zone", hosted, "--format", "terraform")
    assert 'resource "aws_route53_record"' in terraform.out
    told = shell("dns", "zone", hosted, "-o", "json").json
    assert (told["domain"], told["text"]) == (hosted, bind.out)


def test_the_certificate_comes_from_a_file_or_from_the_host(shell: Shell, hosted: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, _ = authority.server_files(hosted)
    from_file = shell("dns", "zone", hosted, "--tlsa-cert", str(certificate))
    assert f"_443._tcp.{hosted}. 3600 IN TLSA 3 1 1 {_digest(certificate)}" in from_file.out
    assert shell("dns", "zone", hosted, "--cert", str(certificate)).out == from_file.out  # without a key it is meant so
    with site_in_thread(authority.server_context(hosted)) as site:
        live = shell("dns", "zone", hosted, "--live", "--port", str(site.port), "--address", "127.0.0.1")
    assert f"_{site.port}._tcp.{hosted}. 3600 IN TLSA 3 1 1 {_digest(certificate)}" in live.out, live.err
    gone = shell("dns", "zone", hosted, "--live", "--port", "1", "--address", "127.0.0.1")
    assert gone.code == 69
    assert "--tlsa-cert" in gone.err
    wrong = shell("dns", "zone", hosted, "--tlsa-cert", shell.write("wrong.pem", b"no certificate"))
    assert wrong.code == 1


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("dns", "zone", ""), 64),
        (("dns", "zone", "nobody.example.com"), 1),
        (("dns", "zone", "nobody.example.com", "--format", "csv"), 64),
        (("dns", "zone", "nobody.example.com", "--port", "0"), 64),
        (("dns", "publish", "nobody.example.com", "--rollback", "--withdraw"), 64),
        (("dns", "serve", "a.test", "b.test", "--file", "x"), 64),
        (("dns", "serve", "-bad-"), 64),
        (("keys", "new", "--domain", "../x"), 64),
        (("keys", "new", "--domain", "x.example.com", "--type", "rsa"), 64),
        (("keys", "new", "--domain", "x.example.com", "--out", "x.pem"), 64),
    ],
)
def test_a_failing_dns_command_prints_an_error_and_its_exit_code(
    shell: Shell, arguments: tuple[str, ...], code: int
) -> None:
    ran = shell(*arguments)
    assert ran.code == code, ran.err
    assert ran.err


def test_the_key_of_a_domain_is_made_beforehand_and_stays(shell: Shell, agent: dict[str, Any]) -> None:
    made = shell("keys", "new", "--domain", HOST, "-o", "json").json
    assert made["file"].endswith(f"keys/hosted/{HOST}.pem")
    assert shell("keys", "new", "--domain", HOST).code == 78
    assert shell("register", shell.write("agent.json", agent)).code == 0
    assert shell("host", HOST, agent["id"]).code == 0
    first = _fingerprint(shell)
    turned = shell("keys", "rotate", "--domain", HOST)
    assert turned.code == 0, turned.err
    assert f"waypost dns publish {HOST}" in turned.err
    assert _fingerprint(shell) != first
    assert shell("keys", "rotate", "--domain", HOST, "--key", "x.pem").code == 64


def _fingerprint(shell: Shell) -> str:
    """The key in the zone now."""
    records = shell("dns", "zone", HOST, "-o", "json").json["records"]
    (text,) = [line["data"] for line in records if line["type"] == "TXT"]
    return str(text.partition("pk=")[2].partition(";")[0])
