"""Bus authentication: nkeys, credentials, tokens and certificates with a NATS server that requires them."""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from support.bus import nats_server
from support.certificates import Authority
from support.transports import signed
from waypost.errors import ConfigurationError, InvalidKey, Unavailable, WaypostError
from waypost.net.clock import ManualClock
from waypost.transports.bus import BusCredentials, BusTransport, parse_credentials, parse_user_seed

_PREFIXES = {"operator": 14 << 3, "account": 0, "user": 20 << 3}


def packed(data: bytes) -> str:
    return base64.b32encode(data + binascii.crc_hqx(data, 0).to_bytes(2, "little")).decode().rstrip("=")


class Pair:
    """A key of NATS, made here."""

    def __init__(self, kind: str, seed: bytes) -> None:
        self.private = Ed25519PrivateKey.from_private_bytes(seed)
        prefix = _PREFIXES[kind]
        self.public = packed(bytes((prefix,)) + self.private.public_key().public_bytes_raw())
        self.seed = packed(bytes((18 << 3 | prefix >> 5, (prefix & 31) << 3)) + seed)

    def jwt(self, subject: str, claims: dict[str, object]) -> str:
        def text(value: object) -> str:
            return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

        body = {"jti": "x", "iat": int(time.time()), "iss": self.public, "name": "n", "sub": subject, "nats": claims}
        told = f"{text({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{text(body)}"
        return f"{told}.{base64.urlsafe_b64encode(self.private.sign(told.encode())).decode().rstrip('=')}"


USER, ACCOUNT, OPERATOR = (
    Pair(kind, bytes([number]) * 32) for number, kind in enumerate(("user", "account", "operator"), 1)
)


async def reaches(url: str, login: BusCredentials) -> None:
    clock = ManualClock(time.time())
    end = BusTransport(url, clock, credentials=login)
    await end.open()
    try:
        assert (await end.announce(signed(clock), 60)).accepted
    finally:
        await end.close()


def with_nkey(folder: Path) -> tuple[str, BusCredentials]:
    (folder / "user.nk").write_text(USER.seed + "\n")
    return f'authorization: {{users: [{{nkey: "{USER.public}"}}]}}', BusCredentials(nkey=folder / "user.nk")


def with_token(folder: Path) -> tuple[str, BusCredentials]:
    (folder / "token").write_text("s3cret-enough\n")
    return 'authorization: {token: "s3cret-enough"}', BusCredentials(token=folder / "token")


def with_creds(folder: Path) -> tuple[str, BusCredentials]:
    limits = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
    account_claims = {"limits": {**limits, "wildcards": True}, "type": "account", "version": 2}
    operator = OPERATOR.jwt(OPERATOR.public, {"type": "operator", "version": 2})
    account = OPERATOR.jwt(ACCOUNT.public, account_claims)
    user = ACCOUNT.jwt(USER.public, {"subs": -1, "data": -1, "payload": -1, "type": "user", "version": 2})
    (folder / "user.creds").write_text(
        f"-----BEGIN NATS USER JWT-----\n{user}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{USER.seed}\n------END USER NKEY SEED------\n"
    )
    config = f"operator: {operator}\nresolver: MEMORY\nresolver_preload: {{ {ACCOUNT.public}: {account} }}"
    return config, BusCredentials(creds=folder / "user.creds")


def with_certificate(folder: Path) -> tuple[str, BusCredentials]:
    authority = Authority(folder)
    server, client = authority.server(), authority.client("agent", dns=("agent.example.net",))
    files = f'cert_file: "{server.certificate}", key_file: "{server.key}", ca_file: "{authority.certificate}"'
    login = BusCredentials(ca=authority.certificate, cert=client.certificate, cert_key=client.key)
    return f"tls: {{ {files}, verify: true }}", login


@pytest.mark.parametrize("make", [with_nkey, with_token, with_creds, with_certificate])
async def test_a_bus_with_authentication_accepts_credentials_and_refuses_strangers(
    tmp_path: Path, make: Callable[[Path], tuple[str, BusCredentials]]
) -> None:
    settings, login = make(tmp_path)
    config = tmp_path / "nats.conf"
    config.write_text(settings)
    with nats_server(config) as server:
        await reaches(server.url, login)
        with pytest.raises(Unavailable):
            await reaches(server.url, BusCredentials())


def test_a_seed_is_read_with_its_checksum_and_its_kind() -> None:
    assert parse_user_seed(f" {USER.seed}\n") == USER.seed
    for wrong in (USER.seed[:-1] + ("A" if USER.seed[-1] != "A" else "B"), ACCOUNT.seed, USER.public, "", "!!", "SU"):
        with pytest.raises(InvalidKey):
            parse_user_seed(wrong)
    with pytest.raises(InvalidKey):
        parse_credentials("-----BEGIN USER NKEY SEED-----\nSU\n------END USER NKEY SEED------")


@pytest.mark.parametrize("setting", ["creds", "nkey", "token", "ca"])
def test_a_missing_file_is_reported_with_its_setting(tmp_path: Path, setting: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        BusCredentials(**{setting: tmp_path / "missing"}).options()
    assert isinstance(refused.value, WaypostError)
    assert refused.value.path == f"bus_{setting}"
