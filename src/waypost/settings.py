"""Settings: the only reader of the environment and of the settings file.

Flags win over `WAYPOST_*` variables, those over `waypost.toml`, that over the defaults of one table, SETTINGS. Whatever is
unknown or of the wrong type is refused with its origin; nothing is ignored. Nothing here starts, opens or writes anything.
"""

from __future__ import annotations

import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.errors import ConfigurationError
from waypost.model.credentials import ClientSubject, Issuer, check_client_subjects, check_issuers, located
from waypost.model.principal import PUBLIC, VISIBILITIES

PREFIX = "WAYPOST_"
CONFIG_FILE = "waypost.toml"
ADMIN_TOKEN_FILE = "admin.token"
TOKEN_KEY_FILE = "keys/token.pem"

Kind = Literal["text", "texts", "tables", "folder", "whole", "seconds", "switch"]
_KIND_WORDS = {
    "text": "a text",
    "texts": "a list of texts",
    "tables": "an array of tables",
    "folder": "a path",
    "whole": "a whole number",
    "seconds": "a number of seconds",
    "switch": "true or false",
}
_TRUE = frozenset(("1", "true", "yes", "on"))
_FALSE = frozenset(("0", "false", "no", "off"))
_SERVICE_LINK = re.compile(r"(SERVICE_(HOST|PORT).*|PORT_\d+_.*)\Z")


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table: from it come flag, variable, file key, check and documentation."""

    name: str
    kind: Kind
    doc: str
    default: Any = None
    shown_default: str | None = None  # where the default is a rule, not a value
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: int | None = None
    in_file: bool = True  # a credential, and the address that it is sent to, are never taken from a file
    shape: type[Any] | None = None  # of each table

    @property
    def in_file_only(self) -> bool:
        return self.kind == "tables"

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()


SERVICE_SETTINGS = (
    Setting(
        name="data",
        kind="folder",
        doc="The folder that holds all state: records, keys, the admin token.",
        shown_default="$XDG_DATA_HOME/waypost, else ~/.local/share/waypost",
    ),
    Setting(name="host", kind="text", default="127.0.0.1", doc="The address to listen on."),
    Setting(
        name="port", kind="whole", default=8440, least=0, most=65535, doc="The port to listen on; 0 picks a free one."
    ),
    Setting(
        name="base_url",
        kind="text",
        shown_default="http://HOST:PORT",
        doc="The address under which others reach the service, where that differs from host and port.",
    ),
    Setting(
        name="store",
        kind="text",
        default="sqlite",
        choices=("sqlite", "memory"),
        doc="Where records live: `sqlite` (durable, in the data folder) or `memory` (gone at the end).",
    ),
    Setting(
        name="workers",
        kind="whole",
        default=1,
        least=1,
        most=limits.WORKERS,
        doc="How many processes answer; more than one needs the store `sqlite`.",
    ),
    Setting(
        name="embedder",
        kind="text",
        default="auto",
        doc="What turns texts into vectors: `auto` (`use`, if its package is there), `use`, `onnx:FOLDER` or `none`.",
    ),
    Setting(
        name="open",
        kind="switch",
        default=False,
        doc="Turn authentication off. Only on a loopback address, for trying.",
    ),
    Setting(
        name="anonymous_read",
        kind="switch",
        default=False,
        doc="Let callers without a token read what is public.",
    ),
    Setting(
        name="default_visibility",
        kind="text",
        default=PUBLIC,
        choices=VISIBILITIES,
        doc="The visibility of a record that does not name one.",
    ),
    Setting(
        name="watch_keep_seconds",
        kind="whole",
        default=limits.WATCH_KEEP_SECONDS,
        least=0,
        doc="How long changes are kept for watchers that come back.",
    ),
    Setting(
        name="watch_keep_changes",
        kind="whole",
        default=limits.WATCH_KEEP_CHANGES,
        least=0,
        doc="How many changes are kept at least, however old they are.",
    ),
    Setting(
        name="audit_keep",
        kind="whole",
        default=limits.AUDIT_KEEP,
        least=limits.AUDIT_KEEP_MIN,
        doc="How many entries of the audit trail are kept with their content. Of older ones the hashes stay.",
    ),
    Setting(
        name="issuer",
        kind="text",
        default="waypost",
        doc="The `iss` of the tokens that are minted and accepted here.",
    ),
    Setting(name="audience", kind="text", default="waypost", doc="The `aud` that a token must carry."),
    Setting(
        name="jwks",
        kind="texts",
        default=(),
        shown_default="none",
        doc="Files or https addresses with the public keys of an outside issuer, whose tokens carry `issuer` and "
        "`audience`.",
    ),
    Setting(
        name="jwt_secret",
        kind="folder",
        shown_default="none",
        doc="A file with the secret by which the outside issuer signs (HS256); at least 32 bytes.",
    ),
    Setting(
        name="jwks_prefix",
        kind="text",
        shown_default="none",
        doc="Put before each subject of the outside issuer, so that it cannot speak for subjects of this service.",
    ),
    Setting(
        name="jwks_admin",
        kind="switch",
        default=False,
        doc="Let tokens of the outside issuer carry the scope `admin`.",
    ),
    Setting(
        name="issuers",
        kind="tables",
        default=(),
        shown_default="none",
        shape=Issuer,
        doc="Several outside issuers, each with `issuer`, `audience`, `jwks`, `secret`, `prefix`, `admin`.",
    ),
    Setting(
        name="tls_cert",
        kind="folder",
        shown_default="none",
        doc="The certificate chain of the service (PEM); turns TLS on, version 1.3. Read again when it changes.",
    ),
    Setting(
        name="tls_key",
        kind="folder",
        shown_default="the key in `tls_cert`",
        doc="The private key of the certificate (PEM).",
    ),
    Setting(
        name="client_ca",
        kind="folder",
        shown_default="none",
        doc="Authorities whose client certificates are believed (PEM).",
    ),
    Setting(
        name="crl",
        kind="folder",
        shown_default="none",
        doc="What those authorities revoked (CRL, PEM or DER). Read again when it changes.",
    ),
    Setting(
        name="client_subjects",
        kind="tables",
        default=(),
        shown_default="none",
        shape=ClientSubject,
        doc="Whom client certificates stand for, each with `subject`, `san` or `fingerprint`, `scopes`.",
    ),
    Setting(
        name="trusted_proxies",
        kind="texts",
        default=(),
        shown_default="none",
        doc="Addresses or ranges of proxies whose `X-Forwarded-For` is believed.",
    ),
    Setting(
        name="allowed_hosts",
        kind="texts",
        default=(),
        shown_default="the host of base_url, localhost, and addresses",
        doc="Names by which a WebSocket may call this service, besides its own.",
    ),
    Setting(
        name="allowed_origins",
        kind="texts",
        default=(),
        shown_default="the service's own",
        doc="Sites whose pages may open a WebSocket here, each as `https://host`.",
    ),
    Setting(
        name="rate_limit_reads",
        kind="whole",
        least=0,
        shown_default=f"{limits.READS_PER_MINUTE}, and none for callers on this machine",
        doc="Reads in a minute by one subject, or by one address without a token; 0 is no limit. Admins have none.",
    ),
    Setting(
        name="rate_limit_writes",
        kind="whole",
        least=0,
        shown_default=f"{limits.WRITES_PER_MINUTE}, and none for callers on this machine",
        doc="Writes in a minute by one subject; 0 is no limit. Admins have none.",
    ),
    Setting(
        name="agents_per_owner",
        kind="whole",
        default=limits.AGENTS_PER_OWNER,
        least=0,
        doc="Agents that one owner may have at a time; 0 is no limit. Admins have none.",
    ),
    Setting(
        name="allow_cidrs",
        kind="texts",
        default=(),
        shown_default="none",
        doc="Private ranges that the service may connect to for others; loopback only when it is named itself, "
        "metadata services never.",
    ),
    Setting(
        name="resolver",
        kind="text",
        default="system",
        doc="Who is asked for names: `system`, `HOST:PORT`, over TLS `tls://HOST[:853][#NAME]`, over HTTPS "
        "`https://HOST/dns-query`; a second one, after a comma, must confirm domain proofs and stands in for the first.",
    ),
    Setting(
        name="trust_anchors",
        kind="folder",
        shown_default="the root's",
        doc="A file with further anchors of DNSSEC: DS or DNSKEY records, or BIND's `trust-anchors`. An anchor that it names "
        "must be found; one for `.` replaces the root's.",
    ),
    Setting(
        name="insecure_domains",
        kind="texts",
        default=(),
        shown_default="none",
        doc="Domains of a network of your own that are not signed although one above them is; nothing in them is proven.",
    ),
    Setting(
        name="trust_ad",
        kind="switch",
        default=False,
        doc="Take the resolver's word (the AD bit) instead of validating. Only for one on this machine, or over TLS or HTTPS.",
    ),
    Setting(
        name="fetch_ca",
        kind="folder",
        shown_default="none",
        doc="A PEM file with further certificate authorities that outgoing requests trust.",
    ),
    Setting(
        name="legacy_names",
        kind="switch",
        default=False,
        doc="Look for agents at the names of the -01 draft of DNS-AID too, where the others are not there.",
    ),
    Setting(
        name="foreign_index",
        kind="switch",
        default=False,
        doc="Follow the index of an organisation to another one, where the record that points there is signed (AID-25).",
    ),
    Setting(
        name="agent_recheck_seconds",
        kind="whole",
        default=limits.RECHECK_SECONDS,
        least=60,
        doc="How often an agent that was registered by its domain is looked up anew, give or take a tenth.",
    ),
    Setting(
        name="domain_recheck_seconds",
        kind="whole",
        default=limits.PROOF_RECHECK_SECONDS,
        least=1,
        doc="How often a proven domain is looked at again; after three failures the proof ends.",
    ),
    Setting(
        name="trust_mode",
        kind="text",
        default="allowlist-tofu",
        choices=("pinned", "allowlist-tofu", "tofu", "ca"),
        doc="Whose announcements are admitted: `pinned` (keys that an admin trusts), `allowlist-tofu` (ids that a rule "
        "admits; their first key is bound), `tofu` (everybody, where there is no rule), `ca` (certificates of `client_ca`).",
    ),
    Setting(
        name="unsigned",
        kind="text",
        default="reject",
        choices=("reject", "untrusted"),
        doc="Announcements without a signature: refused, or (v1.1, with a token) admitted without trust.",
    ),
    Setting(
        name="bind_subject",
        kind="switch",
        default=False,
        doc="Let a token announce only the agent whose agent_id is its subject.",
    ),
    Setting(
        name="legacy_canon",
        kind="switch",
        default=False,
        doc="Also take announcements that are signed over the JSON of older announcers instead of RFC 8785.",
    ),
    Setting(
        name="mdns",
        kind="switch",
        default=False,
        doc="Hear announcements by mDNS, and register them under the same rules as all others.",
    ),
    Setting(
        name="mdns_interfaces",
        kind="texts",
        default=(),
        shown_default="the one that leads out",
        doc="The interfaces for mDNS: names, or addresses.",
    ),
    Setting(
        name="mdns_publish",
        kind="switch",
        default=False,
        doc="Tell the LAN of public agents that were announced elsewhere, as they were signed. Never of private ones.",
    ),
    Setting(
        name="udp",
        kind="switch",
        default=False,
        doc="Hear announcements by UDP broadcast, and answer queries there.",
    ),
    Setting(
        name="udp_interface",
        kind="text",
        shown_default="the one that leads out",
        doc="The interface for UDP broadcast: its name, or an address of it.",
    ),
    Setting(
        name="udp_port",
        kind="whole",
        default=limits.UDP_PORT,
        least=1,
        most=65535,
        doc="The port for UDP broadcast.",
    ),
    Setting(
        name="udp_ipv6",
        kind="switch",
        default=False,
        doc="Use UDP on IPv6 too: all nodes of the link (ff02::1). `announce` and `browse` go by it as well.",
    ),
    Setting(
        name="bus",
        kind="text",
        doc="The bus (NATS) on which to hear announcements and answer queries: nats://HOST:PORT, several divided by commas.",
    ),
    Setting(
        name="bus_topic",
        kind="text",
        default="/topic/discovery",
        doc="The topic of announcements on the bus.",
    ),
    Setting(
        name="bus_group",
        kind="text",
        doc="A name that is common to registries with the same agents: one of them answers each query on the bus.",
    ),
    Setting(
        name="bus_creds",
        kind="folder",
        shown_default="none",
        doc="A file of NATS credentials: the user's JWT and its seed. `announce` and `browse` use it too.",
    ),
    Setting(
        name="bus_nkey", kind="folder", shown_default="none", doc="A file with the seed of a user's key on the bus."
    ),
    Setting(name="bus_token", kind="folder", shown_default="none", doc="A file with the token that the bus asks for."),
    Setting(
        name="bus_ca",
        kind="folder",
        shown_default="the system's",
        doc="The authorities (PEM) that vouch for the bus at a `tls://` address.",
    ),
    Setting(
        name="bus_cert",
        kind="folder",
        shown_default="none",
        doc="The certificate (PEM) to show to the bus.",
    ),
    Setting(name="bus_cert_key", kind="folder", shown_default="none", doc="The private key of `bus_cert` (PEM)."),
    Setting(
        name="confusable_names",
        kind="text",
        default="mark",
        choices=("mark", "refuse"),
        doc="A name that could be taken for that of another owner's verified agent: marked and put lower, or refused.",
    ),
    Setting(name="samples", kind="switch", default=False, doc="Register the sample agents at start."),
    Setting(
        name="log_level",
        kind="text",
        default="info",
        choices=("debug", "info", "warning", "error"),
        doc="How much is written to stderr.",
    ),
)

CLIENT_SETTINGS = (
    Setting(
        name="server",
        kind="text",
        in_file=False,
        shown_default="http://127.0.0.1:PORT",
        doc="The service that a command or a `Client` talks to.",
    ),
    Setting(
        name="token",
        kind="text",
        in_file=False,
        shown_default="DATA/admin.token, when the service is on this machine",
        doc="The bearer token that is sent with each request.",
    ),
    Setting(
        name="timeout",
        kind="seconds",
        default=30.0,
        least=0.001,
        in_file=False,
        doc="How long to wait for an answer, in seconds.",
    ),
    Setting(
        name="ca",
        kind="folder",
        in_file=False,
        shown_default="the usual authorities",
        doc="Authorities by which the service is known (PEM), for https.",
    ),
    Setting(
        name="cert",
        kind="folder",
        in_file=False,
        shown_default="none",
        doc="A client certificate to show, with its key or beside `cert_key` (PEM).",
    ),
    Setting(
        name="cert_key",
        kind="folder",
        in_file=False,
        shown_default="the key in `cert`",
        doc="The private key of the client certificate (PEM).",
    ),
)

SETTINGS = SERVICE_SETTINGS + CLIENT_SETTINGS
_BY_NAME = {setting.name: setting for setting in SETTINGS}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How one service runs. Made by `load_settings`, or by hand in a test; checked either way."""

    data: Path
    host: str = "127.0.0.1"
    port: int = 8440
    base_url: str | None = None
    store: str = "sqlite"
    workers: int = 1
    embedder: str = "auto"
    open: bool = False
    anonymous_read: bool = False
    default_visibility: str = PUBLIC
    watch_keep_seconds: int = limits.WATCH_KEEP_SECONDS
    watch_keep_changes: int = limits.WATCH_KEEP_CHANGES
    audit_keep: int = limits.AUDIT_KEEP
    issuer: str = "waypost"
    audience: str = "waypost"
    jwks: tuple[str, ...] = ()
    jwt_secret: Path | None = None
    jwks_prefix: str | None = None
    jwks_admin: bool = False
    issuers: tuple[Issuer, ...] = ()
    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None
    crl: Path | None = None
    client_subjects: tuple[ClientSubject, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    rate_limit_reads: int | None = None
    rate_limit_writes: int | None = None
    agents_per_owner: int = limits.AGENTS_PER_OWNER
    allow_cidrs: tuple[str, ...] = ()
    resolver: str = "system"
    trust_anchors: Path | None = None
    insecure_domains: tuple[str, ...] = ()
    trust_ad: bool = False
    fetch_ca: Path | None = None
    legacy_names: bool = False
    foreign_index: bool = False
    agent_recheck_seconds: int = limits.RECHECK_SECONDS
    domain_recheck_seconds: int = limits.PROOF_RECHECK_SECONDS
    trust_mode: str = "allowlist-tofu"
    unsigned: str = "reject"
    bind_subject: bool = False
    legacy_canon: bool = False
    mdns: bool = False
    mdns_interfaces: tuple[str, ...] = ()
    mdns_publish: bool = False
    udp: bool = False
    udp_interface: str | None = None
    udp_port: int = limits.UDP_PORT
    udp_ipv6: bool = False
    bus: str | None = None
    bus_topic: str = "/topic/discovery"
    bus_group: str | None = None
    bus_creds: Path | None = None
    bus_nkey: Path | None = None
    bus_token: Path | None = None
    bus_ca: Path | None = None
    bus_cert: Path | None = None
    bus_cert_key: Path | None = None
    confusable_names: str = "mark"
    samples: bool = False
    log_level: str = "info"

    def __post_init__(self) -> None:
        if self.open and not is_loopback(self.host):
            raise ConfigurationError(
                f"Authentication can be turned off on a loopback address only, not on {self.host!r}.",
                path="open",
                hint="Listen on 127.0.0.1, or leave `open` out and hand out tokens.",
            )
        if self.workers > 1 and self.store == "memory":
            raise ConfigurationError(
                f"{self.workers} processes cannot share a store in memory.",
                path="workers",
                hint="Leave `workers` at 1, or choose the store `sqlite`.",
            )
        if self.trust_mode == "ca" and self.client_ca is None:
            raise ConfigurationError(
                "The trust mode `ca` needs authorities.", path="client_ca", hint="Name their file with --client-ca."
            )
        if self.base_url is not None:
            _check_url(self.base_url, "base_url")
        for text in self.allow_cidrs:
            _check_range_of_addresses(text, "allow_cidrs")
        for text in self.trusted_proxies:
            _check_range_of_addresses(text, "trusted_proxies")
        self._check_needs()
        check_issuers(self.outside_issuers)
        check_client_subjects(self.client_subjects)

    def _check_needs(self) -> None:
        needs: tuple[tuple[str, tuple[str, ...]], ...] = (
            ("mdns_publish", ("mdns",)),
            ("bus_group", ("bus",)),
            ("bus_cert_key", ("bus_cert",)),
            ("tls_key", ("tls_cert",)),
            ("client_ca", ("tls_cert",)),
            ("crl", ("client_ca",)),
            ("client_subjects", ("client_ca",)),
            ("jwks_prefix", ("jwks", "jwt_secret")),
            ("jwks_admin", ("jwks", "jwt_secret")),
        )
        for name, others in needs:
            if getattr(self, name) and not any(getattr(self, other) for other in others):
                raise ConfigurationError(
                    f"{name} means nothing without {' or '.join(others)}.",
                    path=name,
                    hint=f"Set {others[0]} too, or leave {name} out.",
                )

    @property
    def outside_issuers(self) -> tuple[Issuer, ...]:
        """Those of the table, and the one that `jwks` and `jwt_secret` tell of."""
        if not self.jwks and self.jwt_secret is None:
            return self.issuers
        named = Issuer(
            issuer=self.issuer,
            audience=self.audience,
            jwks=self.jwks,
            secret=None if self.jwt_secret is None else str(self.jwt_secret),
            prefix=self.jwks_prefix or "",
            admin=self.jwks_admin,
        )
        return (named, *self.issuers)

    def public_url(self, port: int | None = None) -> str:
        """The service's own address without a final slash; `port` is the one that was bound."""
        if self.base_url is not None:
            return self.base_url.rstrip("/")
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 - compared, not bound
        scheme = "http" if self.tls_cert is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port if port is None else port}"


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """Where a client goes, and as whom."""

    base_url: str
    token: str | None
    timeout: float
    ca: Path | None = None
    cert: Path | None = None
    cert_key: Path | None = None
    named: bool = False  # by a flag or a variable, rather than found on this machine


def load_settings(
    flags: Mapping[str, Any] | None = None,
    *,
    config: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """The settings of a service. A flag that is None was not given."""
    values = _collect(flags or {}, config, os.environ if environ is None else environ)
    return Settings(**{setting.name: values[setting.name] for setting in SERVICE_SETTINGS})


def load_connection(
    flags: Mapping[str, Any] | None = None,
    *,
    config: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Connection:
    """How to reach a service: the one named, else the one that these settings would start on this machine."""
    values = _collect(flags or {}, config, os.environ if environ is None else environ)
    server = values["server"]
    if server is None:
        host = values["host"] if is_loopback(values["host"]) else "127.0.0.1"
        scheme = "http" if values["tls_cert"] is None else "https"
        server = f"{scheme}://{f'[{host}]' if ':' in host else host}:{values['port'] or 8440}"
    base_url = _check_url(server, "server").rstrip("/")
    token = values["token"]
    if token is None and values["cert"] is None:  # whoever shows a certificate wants to be its subject
        token = find_admin_token(values["data"], base_url)
    files = {name: values[name] for name in ("ca", "cert", "cert_key")}
    named = values["server"] is not None
    return Connection(base_url=base_url, token=token, timeout=values["timeout"], named=named, **files)


def find_admin_token(data: Path, base_url: str) -> str | None:
    """The admin token of the service on this machine. It is never offered to another host."""
    if not is_loopback(urlsplit(base_url).hostname or ""):
        return None
    try:
        return (data / ADMIN_TOKEN_FILE).read_text("ascii").strip() or None
    except (OSError, ValueError):
        return None


def data_folder(environ: Mapping[str, str] | None = None) -> Path:
    """The default data folder, by the XDG base directory rule: a relative XDG_DATA_HOME does not count."""
    home = Path((os.environ if environ is None else environ).get("XDG_DATA_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".local" / "share") / "waypost"


def is_loopback(host: str) -> bool:
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _collect(flags: Mapping[str, Any], config: Path | None, environ: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {setting.name: setting.default for setting in SETTINGS}
    values["data"] = data_folder(environ)
    given = {name: text for name, text in environ.items() if name.startswith(PREFIX)}
    values |= _from_file(_config_path(config, given.pop(f"{PREFIX}CONFIG", None)))
    values |= _from_environment(given)
    for name, value in flags.items():
        if value is not None:
            setting = _known(name, f"the flag {name!r}")
            values[name] = _check(setting, value, setting.flag)
    return values


def _config_path(flag: Path | None, variable: str | None) -> Path | None:
    """The settings file: the one named, which must be there, else the one in the working folder, if there is one."""
    if flag is not None or variable:
        return Path(flag if flag is not None else variable or "")
    here = Path(CONFIG_FILE)
    return here if here.is_file() else None


def _from_file(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"The settings file {path} cannot be read: {error.strerror}.", path="config", hint="Check --config."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"The settings file {path} is not TOML: {error}.", path="config") from None
    values = {}
    for name, value in document.items():
        origin = f"{name!r} in {path}"
        setting = _known(name, origin)
        if not setting.in_file:
            raise ConfigurationError(
                f"{origin} cannot be set in a file.", path=name, hint=f"Use {setting.flag} or {setting.variable}."
            )
        values[name] = _check(setting, value, origin)
    for name, value in values.items():  # a relative path belongs to the file that says it
        if _BY_NAME[name].kind == "folder":
            values[name] = path.parent / value
    if "jwks" in values:
        values["jwks"] = tuple(located(source, path.parent) for source in values["jwks"])
    if "issuers" in values:
        values["issuers"] = tuple(issuer.located(path.parent) for issuer in values["issuers"])
    return values


def _from_environment(given: Mapping[str, str]) -> dict[str, Any]:
    values = {}
    for variable, text in given.items():
        name = variable.removeprefix(PREFIX).lower()
        if _SERVICE_LINK.match(name.upper()) or (name == "port" and text.startswith("tcp://")):
            raise ConfigurationError(
                f"The variable {variable} is a Kubernetes service link, not a setting.",
                path=variable,
                hint="Set enableServiceLinks: false in the pod.",
            )
        setting = _known(name, f"the variable {variable}", as_variable=True)
        if setting.in_file_only:
            raise ConfigurationError(
                f"{name} is a table: it is set in a settings file.", path=variable, hint=f"Write [[{name}]] there."
            )
        if text:
            values[name] = _check(setting, _parse(setting, text, variable), variable)
    return values


def _known(name: str, origin: str, *, as_variable: bool = False) -> Setting:
    setting = _BY_NAME.get(name)
    if setting is not None:
        return setting
    near = get_close_matches(name.replace("-", "_"), _BY_NAME, n=1, cutoff=0.0)
    nearest = _BY_NAME[near[0]].variable if as_variable else near[0]
    raise ConfigurationError(
        f"There is no setting for {origin}.", path=name, hint=f"The nearest known one is {nearest!r}."
    )


def _parse(setting: Setting, text: str, origin: str) -> Any:
    """A variable's text as the setting's kind."""
    folded = text.strip().lower()
    try:
        match setting.kind:
            case "whole":
                return int(folded)
            case "texts":
                return _texts(text)
            case "seconds":
                return float(folded)
            case "switch" if folded in _TRUE | _FALSE:
                return folded in _TRUE
            case "switch":
                raise ValueError
    except ValueError:
        raise _wrong_kind(setting, text, origin) from None
    return text


def _check(setting: Setting, value: Any, origin: str) -> Any:
    if setting.shape is not None:
        return _tables(setting, value, origin)
    if setting.kind == "texts":
        value = tuple(part for item in value for part in _texts(item)) if _are_texts(value) else value
    match setting.kind:
        case "switch":
            fits = isinstance(value, bool)
        case "texts":
            fits = _are_texts(value)
        case "whole":
            fits = isinstance(value, int) and not isinstance(value, bool)
        case "seconds":
            fits = isinstance(value, (int, float)) and not isinstance(value, bool)
        case "folder":
            fits = isinstance(value, (str, Path)) and bool(str(value))
        case _:
            fits = isinstance(value, str) and bool(value.strip())
    if not fits:
        raise _wrong_kind(setting, value, origin)
    _check_choice(setting, value, origin)
    _check_range(setting, value, origin)
    if setting.kind == "folder":
        return Path(value).expanduser()
    return float(value) if setting.kind == "seconds" else value


def _tables(setting: Setting, value: Any, origin: str) -> Any:
    try:
        return msgspec.convert(value, tuple[setting.shape, ...])  # type: ignore[name-defined]
    except msgspec.ValidationError as error:
        raise ConfigurationError(
            f"{origin} does not fit: {error}.", path=setting.name, hint=f"{setting.doc} It is an array of tables."
        ) from None


def _texts(text: str) -> tuple[str, ...]:
    """Values between commas, as a flag or a variable gives them."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _are_texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)


def _wrong_kind(setting: Setting, value: Any, origin: str) -> ConfigurationError:
    return ConfigurationError(
        f"{origin} must be {_KIND_WORDS[setting.kind]}, not {value!r}.", path=setting.name, hint=setting.doc
    )


def _check_choice(setting: Setting, value: Any, origin: str) -> None:
    if setting.choices and value not in setting.choices:
        raise ConfigurationError(
            f"{origin} must be one of {', '.join(setting.choices)}, not {value!r}.",
            path=setting.name,
            hint=setting.doc,
        )


def _check_range(setting: Setting, value: Any, origin: str) -> None:
    too_small = setting.least is not None and value < setting.least
    if too_small or (setting.most is not None and value > setting.most):
        bounds = f"at least {setting.least}" if setting.most is None else f"between {setting.least} and {setting.most}"
        raise ConfigurationError(f"{origin} must be {bounds}, not {value}.", path=setting.name, hint=setting.doc)


def _check_range_of_addresses(text: str, name: str) -> None:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is not a range of addresses.",
            path=name,
            hint="Write it like 10.0.0.0/8, 127.0.0.1/32 or fd00::/8.",
        ) from None


def _check_url(url: str, name: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query and not parts.fragment
        _ = parts.port  # raises when it is not a number
    except ValueError:
        usable = False
    if not usable:
        raise ConfigurationError(
            f"{url!r} is not the address of a service.", path=name, hint="Write it like http://127.0.0.1:8440."
        )
    return url
