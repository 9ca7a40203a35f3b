"""The settings of a service: one row per setting. The documentation lists them in this order."""

# No `from __future__ import annotations`: `read_rows` reads the annotations.
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.errors import ConfigurationError, Forbidden
from waypost.model.credentials import ClientSubject, Issuer, check_client_subjects, check_issuers, check_scope_map
from waypost.model.federation import PeerSetting
from waypost.model.principal import PUBLIC, VISIBILITIES
from waypost.settings.locations import check_cidr, check_host, check_url, is_loopback
from waypost.settings.setting import URL_MARK, Row, read_rows


class StoreKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of store. `module` has the functions of `waypost.stores.StoreBackend`; if the setting is a URL, it has
    `make_backend`, which returns an object with these functions. The module is named, not imported, because settings may not
    import stores."""

    module: str
    doc: str
    is_durable: bool  # records outlive the process, and several processes can share them


STORES: Final[dict[str, StoreKind]] = {
    "sqlite": StoreKind(module="waypost.stores.sqlite", doc="durable, in the data folder", is_durable=True),
    "memory": StoreKind(module="waypost.stores.memory", doc="lost when the service stops", is_durable=False),
    "postgresql://": StoreKind(
        module="waypost.stores.postgresql",
        doc="the URL of a database that any number of equal nodes share; needs `pip install 'waypost[postgresql]'`",
        is_durable=True,
    ),
}


def find_store(value: str) -> str | None:
    """The row of `STORES` for a value of the setting: a name, or the scheme of a URL."""
    if value in STORES:
        return None if value.endswith(URL_MARK) else value
    scheme = value.partition(URL_MARK)[0] + URL_MARK
    return scheme if scheme in STORES else None


_ALL_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104 - compared, not bound

# Each setting has no effect unless one of the others is set.
_REQUIREMENTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("mdns_publish", ("mdns",)),
    ("bus_group", ("bus",)),
    ("bus_cert_key", ("bus_cert",)),
    ("tls_key", ("tls_cert",)),
    ("client_ca", ("tls_cert",)),
    ("crl", ("client_ca",)),
    ("client_subjects", ("client_ca",)),
    ("jwks_prefix", ("jwks", "jwt_secret")),
    ("jwks_admin", ("jwks", "jwt_secret")),
    ("scope_map", ("jwks", "jwt_secret", "issuers")),
)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How one service runs. `load_settings` makes it, or a test; construction checks that the values fit together."""

    # --- The service ---
    data: Annotated[
        Path,
        Row(
            "The folder of all state: records, keys, the admin token.",
            default="$XDG_DATA_HOME/waypost, else ~/.local/share/waypost",
            metavar="DIR",
        ),
    ]
    host: Annotated[str, Row("The address to listen on.", metavar="ADDRESS")] = "127.0.0.1"
    port: Annotated[int, Row("The port to listen on; 0 picks a free one.", minimum=0, maximum=65535)] = 8440
    base_url: Annotated[
        str | None,
        Row(
            "The URL under which clients reach the service, if it differs from host and port.",
            default="http://HOST:PORT",
            metavar="URL",
        ),
    ] = None
    store: Annotated[
        str,
        Row(
            f"Where records are stored: {' or '.join(f'`{name}` ({kind.doc})' for name, kind in STORES.items())}.",
            choices=STORES.keys(),  # a view: a row that is added later is a choice, too
        ),
    ] = "sqlite"
    reads: Annotated[
        str,
        Row(
            "With the store `postgresql://`: `strong` reads see every change that any node has acknowledged; `bounded` ones "
            "save the question to the database and may be 100 ms behind other nodes.",
            choices=("strong", "bounded"),
        ),
    ] = "strong"
    cluster_key_file: Annotated[
        Path | None,
        Row(
            "With the store `postgresql://`: the key that seals the secrets all nodes share. The first node makes it; copy it "
            "to every other one.",
            default="cluster.key in the data folder",
            metavar="FILE",
        ),
    ] = None
    node_url: Annotated[
        str | None,
        Row(
            "With the store `postgresql://`: the URL at which other nodes reach this one, for conversations with agents that are "
            "connected here. Without it such conversations use the mailbox.",
            default="http://HOST:PORT, if HOST is one address",
            metavar="URL",
        ),
    ] = None
    workers: Annotated[
        int,
        Row(
            "The number of server processes; more than one needs a store that is durable.",
            minimum=1,
            maximum=limits.WORKERS,
        ),
    ] = 1
    embedder: Annotated[
        str,
        Row(
            "The sentence models for vectors: `auto` (`use` and `minilm`), `use` (multilingual), `minilm` (English), "
            "`onnx:FOLDER` or `none`."
        ),
    ] = "auto"
    open: Annotated[bool, Row("Turn authentication off. Only on a loopback address, for trials.")] = False
    anonymous_read: Annotated[bool, Row("Let callers without a token read public records.")] = False
    default_visibility: Annotated[
        str, Row("The visibility of a record that does not name one.", choices=VISIBILITIES)
    ] = PUBLIC
    watch_keep_seconds: Annotated[int, Row("How long changes are kept for watchers that reconnect.", minimum=0)] = (
        limits.WATCH_KEEP_SECONDS
    )
    watch_keep_changes: Annotated[
        int, Row("How many changes are kept at least, within `watch_keep_bytes`.", minimum=0)
    ] = limits.WATCH_KEEP_CHANGES
    watch_keep_bytes: Annotated[
        int,
        Row(
            "How many bytes of changes are kept at most; beyond, the oldest are removed whatever their age.",
            minimum=limits.MIB,
        ),
    ] = limits.WATCH_KEEP_BYTES
    audit_keep: Annotated[
        int,
        Row(
            "How many entries of the audit trail keep their content. Older ones keep their hashes.",
            minimum=limits.AUDIT_KEEP_MIN,
        ),
    ] = limits.AUDIT_KEEP

    # --- Authentication ---
    issuer: Annotated[str, Row("The `iss` of the tokens that are minted and accepted here.")] = "waypost"
    audience: Annotated[str, Row("The `aud` that a token must carry.")] = "waypost"
    jwks: Annotated[
        tuple[str, ...],
        Row(
            "Files or https URLs with the public keys of an external issuer, whose tokens carry `issuer` and `audience`.",
            default="none",
            metavar="FILE|URL",
        ),
    ] = ()
    jwt_secret: Annotated[
        Path | None,
        Row(
            "A file with the secret that the external issuer signs with (HS256); at least 32 bytes.",
            default="none",
            metavar="FILE",
        ),
    ] = None
    jwks_prefix: Annotated[
        str | None,
        Row(
            "A prefix for each subject of the external issuer, so that it cannot impersonate subjects of this service.",
            default="none",
        ),
    ] = None
    jwks_admin: Annotated[bool, Row("Let tokens of the external issuer carry the scope `admin`.")] = False
    issuers: Annotated[
        tuple[Issuer, ...],
        Row(
            "Several external issuers, each with `issuer`, `audience`, `jwks`, `secret`, `prefix`, `admin`, `subjects`, "
            "`scopes`, `scope_map`. Without `jwks` and `secret` the keys are found by OpenID Connect discovery.",
            default="none",
        ),
    ] = ()
    peers: Annotated[
        tuple[PeerSetting, ...],
        Row(
            "Other registries to follow or to ask, each with `url`, `name`, `kind`, `pull`, `ask`, `reexport`, `visibility`, "
            "`namespaces`, `every_seconds`, `max_records`, `key`, `token_file`. They are added at the start, or as soon as "
            "they can be reached; one that is taken out of the file is removed at the next start.",
            default="none",
        ),
    ] = ()
    scope_map: Annotated[
        dict[str, tuple[str, ...]],
        Row(
            "Which scopes of this service a value of `scope`, `scp`, `permissions`, `roles` or `groups` in a token of an "
            "external issuer stands for.",
            default="none",
            metavar="NAME=SCOPE",
        ),
    ] = {}
    tls_cert: Annotated[
        Path | None,
        Row(
            "The certificate chain of the service (PEM); turns TLS 1.3 on. The file is reloaded when it changes.",
            default="none",
            metavar="FILE",
        ),
    ] = None
    tls_key: Annotated[
        Path | None,
        Row("The private key of the certificate (PEM).", default="the key in `tls_cert`", metavar="FILE"),
    ] = None
    client_ca: Annotated[
        Path | None,
        Row("A file of authorities whose client certificates are accepted (PEM).", default="none", metavar="FILE"),
    ] = None
    crl: Annotated[
        Path | None,
        Row(
            "The revocation list of those authorities (CRL, PEM or DER). The file is reloaded when it changes.",
            default="none",
            metavar="FILE",
        ),
    ] = None
    client_subjects: Annotated[
        tuple[ClientSubject, ...],
        Row(
            "The subjects of client certificates, each with `subject`, `san` or `fingerprint`, `scopes`.",
            default="none",
        ),
    ] = ()

    # --- Requests ---
    trusted_proxies: Annotated[
        tuple[str, ...],
        Row(
            "Addresses or ranges of proxies whose `X-Forwarded-For` is used; `Forwarded` is not.",
            default="none",
            metavar="RANGE",
        ),
    ] = ()
    allowed_hosts: Annotated[
        tuple[str, ...],
        Row(
            "Further names of the service in `Host`, where that is checked: for WebSockets, on `/mcp`, and with `open`.",
            default="the host of base_url, localhost, the name of this machine, hosted domains, and IP addresses",
        ),
    ] = ()
    allowed_origins: Annotated[
        tuple[str, ...],
        Row(
            "Further sites whose pages may open a WebSocket, use `/mcp` and, with `open`, write; each as `https://host`.",
            default="the service's own",
        ),
    ] = ()
    rate_limit_reads: Annotated[
        int | None,
        Row(
            "Reads per minute of one subject, or of one address without a token; 0 is no limit. Admins have none.",
            default=f"{limits.READS_PER_MINUTE}, and none for callers on this machine",
            minimum=0,
        ),
    ] = None
    rate_limit_writes: Annotated[
        int | None,
        Row(
            "Writes per minute of one subject; 0 is no limit. Admins have none.",
            default=f"{limits.WRITES_PER_MINUTE}, and none for callers on this machine",
            minimum=0,
        ),
    ] = None
    max_connections_per_address: Annotated[
        int,
        Row(
            "Open connections of one address, for each process; trusted proxies have no limit. One beyond gets 503.",
            minimum=1,
        ),
    ] = limits.CONNECTIONS_PER_ADDRESS
    queue_target_ms: Annotated[
        int,
        Row(
            "How long searches may wait for the event loop under overload before some are refused; 0 refuses none.",
            minimum=0,
        ),
    ] = limits.QUEUE_TARGET_MS
    agents_per_owner: Annotated[
        int, Row("The number of agents that one owner may have; 0 is no limit. Admins have none.", minimum=0)
    ] = limits.AGENTS_PER_OWNER
    stored_bytes_per_owner: Annotated[
        int,
        Row(
            "Bytes of the documents of one owner's agents, as they were received; 0 is no limit. Admins have none.",
            minimum=0,
        ),
    ] = limits.STORED_BYTES_PER_OWNER
    stored_bytes_per_peer: Annotated[
        int, Row("The same, of the records that one peer sends; 0 is no limit.", minimum=0)
    ] = limits.PEER_STORED_BYTES
    hourly_bytes_per_owner: Annotated[
        int,
        Row(
            "Bytes of new and changed records that one owner may make in an hour; 0 is no limit. Admins have none.",
            minimum=0,
        ),
    ] = limits.HOURLY_BYTES_PER_OWNER

    # --- Outgoing requests ---
    allow_cidrs: Annotated[
        tuple[str, ...],
        Row(
            "Private ranges that the service may connect to for callers. Loopback must be named explicitly; metadata "
            "services are never allowed.",
            default="none",
            metavar="RANGE",
        ),
    ] = ()
    resolver: Annotated[
        str,
        Row(
            "The DNS resolver: `system`, `HOST:PORT`, DNS over TLS `tls://HOST[:853][#NAME]`, DNS over HTTPS "
            "`https://HOST/dns-query`. A second one, after a comma, must confirm domain proofs and is the fallback.",
            metavar="HOST:PORT|tls://HOST|https://HOST/dns-query",
        ),
    ] = "system"
    trust_anchors: Annotated[
        Path | None,
        Row(
            "A file with further DNSSEC trust anchors: DS or DNSKEY records, or BIND's `trust-anchors`. Each of them must be "
            "found in the DNS; one for `.` replaces the root's.",
            default="the root's",
            metavar="FILE",
        ),
    ] = None
    insecure_domains: Annotated[
        tuple[str, ...],
        Row(
            "Domains of your own network that are unsigned although their parent is signed; their records prove nothing.",
            default="none",
            metavar="DOMAIN",
        ),
    ] = ()
    trust_ad: Annotated[
        bool,
        Row(
            "Trust the resolver's validation (the AD bit) instead of validating here. Only for a resolver on this machine, "
            "or over TLS or HTTPS."
        ),
    ] = False
    health_checks: Annotated[
        bool | None,
        Row(
            "Check the endpoints of agents regularly: by default those of public agents with https endpoints, with `true` "
            "all of them. An agent that fails three times in a row is dead, until it answers twice: `find` ranks it last.",
            default="public agents with https endpoints",
        ),
    ] = None
    health_check_seconds: Annotated[
        int | None,
        Row(
            "The interval of health checks, with a jitter of a fifth. Endpoints that stay dead are checked up to "
            f"{limits.HEALTH_BACKOFF} times less often.",
            default=f"{limits.HEALTH_SECONDS} if `health_checks` is true, else {limits.HEALTH_GENTLE_SECONDS}",
            minimum=limits.FETCH_HEALTH_PAUSE_SECONDS,
        ),
    ] = None
    health_delist: Annotated[
        bool,
        Row("Leave dead agents out of lists and searches: their status is then `suspended`, their health `unhealthy`."),
    ] = False
    health_evict_seconds: Annotated[
        int,
        Row(
            "With `health_delist`: after how long an unhealthy agent is removed if its owner does not renew or change it; "
            "0 is never.",
            minimum=0,
        ),
    ] = limits.HEALTH_EVICT_SECONDS
    fetch_ca: Annotated[
        Path | None,
        Row("A PEM file with further certificate authorities for outgoing requests.", default="none", metavar="FILE"),
    ] = None

    # --- Domains ---
    legacy_names: Annotated[
        bool,
        Row("Also look for agents at the names of the -01 draft of DNS-AID, if the current names have no records."),
    ] = False
    trust_external_index: Annotated[
        bool,
        Row(
            "Accept unsigned entries of an index that another organisation hosts, if DNSSEC proves the record that points to "
            "it (AID-25)."
        ),
    ] = False
    agent_recheck_seconds: Annotated[
        int,
        Row("How often an agent registered by its domain is resolved again, with a jitter of a tenth.", minimum=60),
    ] = limits.RECHECK_SECONDS
    domain_recheck_seconds: Annotated[
        int, Row("How often a domain proof is checked again; three failures end it.", minimum=1)
    ] = limits.PROOF_RECHECK_SECONDS

    # --- Announcements ---
    trust_mode: Annotated[
        str,
        Row(
            "Which announcements are admitted: `pinned` (keys that an admin trusts), `allowlist-tofu` (ids that a rule "
            "admits; their first key is pinned), `tofu` (all, if there are no rules), `ca` (certificates of `client_ca`).",
            choices=("pinned", "allowlist-tofu", "tofu", "ca"),
        ),
    ] = "allowlist-tofu"
    unsigned_announcements: Annotated[
        str,
        Row(
            "Announcements without a signature: rejected, or (v1.1, with a token) admitted as untrusted.",
            choices=("reject", "untrusted"),
        ),
    ] = "reject"
    bind_subject: Annotated[bool, Row("Let a token announce only the agent whose agent_id is its subject.")] = False
    legacy_signatures: Annotated[
        bool, Row("Also accept signatures over the JSON form of older announcers instead of RFC 8785.")
    ] = False

    # --- Transports ---
    mdns: Annotated[
        bool, Row("Receive announcements by mDNS, and register them under the same rules as all others.")
    ] = False
    mdns_interfaces: Annotated[
        tuple[str, ...],
        Row(
            "The interfaces for mDNS: names or addresses.",
            default="all that are up and can multicast",
            metavar="NAME|ADDRESS",
        ),
    ] = ()
    mdns_publish: Annotated[
        bool,
        Row(
            "Publish public agents that were announced elsewhere on the LAN, with their signatures. Never private ones."
        ),
    ] = False
    udp: Annotated[bool, Row("Receive announcements by UDP broadcast, and answer queries there.")] = False
    udp_interface: Annotated[
        str | None,
        Row(
            "The interface for UDP broadcast: its name or one of its addresses.",
            default="the one with the default route",
            metavar="NAME|ADDRESS",
        ),
    ] = None
    udp_port: Annotated[int, Row("The port for UDP broadcast.", minimum=1, maximum=65535)] = limits.UDP_PORT
    udp_ipv6: Annotated[
        bool, Row("Use UDP on IPv6 too: all nodes of the link (ff02::1). Also applies to `announce` and `browse`.")
    ] = False
    bus: Annotated[
        str | None,
        Row(
            "The NATS bus to receive announcements and answer queries on: nats://HOST:PORT, several separated by commas."
        ),
    ] = None
    bus_topic: Annotated[str, Row("The topic of announcements on the bus.")] = "/topic/discovery"
    bus_group: Annotated[
        str | None,
        Row(
            "A name shared by registries with the same agents: one of them answers each query on the bus. Nodes over PostgreSQL "
            "have one by their `base_url`."
        ),
    ] = None
    bus_creds: Annotated[
        Path | None,
        Row(
            "A NATS credentials file: the user's JWT and its seed. Also applies to `announce` and `browse`.",
            default="none",
            metavar="FILE",
        ),
    ] = None
    bus_nkey: Annotated[
        Path | None, Row("A file with the seed of the user's NKEY on the bus.", default="none", metavar="FILE")
    ] = None
    bus_token: Annotated[Path | None, Row("A file with the token for the bus.", default="none", metavar="FILE")] = None
    bus_ca: Annotated[
        Path | None,
        Row("Certificate authorities (PEM) for a bus at a `tls://` URL.", default="the system's", metavar="FILE"),
    ] = None
    bus_cert: Annotated[
        Path | None, Row("The client certificate (PEM) for the bus.", default="none", metavar="FILE")
    ] = None
    bus_cert_key: Annotated[
        Path | None, Row("The private key of `bus_cert` (PEM).", default="none", metavar="FILE")
    ] = None

    # --- Other ---
    confusable_names: Annotated[
        str,
        Row(
            "A name that looks like that of another owner's verified agent: marked and ranked lower, or rejected.",
            choices=("mark", "refuse"),
        ),
    ] = "mark"
    samples: Annotated[bool, Row("Register the sample agents at start.")] = False
    log_level: Annotated[
        str, Row("The least severe level written to stderr.", choices=("debug", "info", "warning", "error"))
    ] = "info"
    access_log: Annotated[
        bool,
        Row("Log one line for every request: method, route, status, milliseconds, bytes, request id and subject."),
    ] = False
    log_format: Annotated[
        str, Row("The format of the log: lines of text, or one JSON object per line.", choices=("text", "json"))
    ] = "text"

    @property
    def is_durable(self) -> bool:
        """Whether records outlive the process."""
        return STORES[self.store_kind].is_durable

    @property
    def store_kind(self) -> str:
        """The row of `STORES`. The setting itself may hold a password."""
        return find_store(self.store) or self.store

    @property
    def is_cluster(self) -> bool:
        """Whether other nodes share the records."""
        return self.store_kind.endswith(URL_MARK)

    def internal_url(self, port: int | None) -> str | None:
        """Where other nodes of a cluster reach this one. None if it listens on all addresses and no URL is given."""
        if self.node_url is not None or self.host in _ALL_ADDRESSES:
            return self.node_url
        scheme = "http" if self.tls_cert is None else "https"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port if port is None else port}"

    @property
    def is_public(self) -> bool:
        """Whether `base_url` is not on this machine: then callers from loopback may come through a proxy."""
        return self.base_url is not None and not is_loopback(urlsplit(self.base_url).hostname or "")

    def __post_init__(self) -> None:
        if self.open and not is_loopback(self.host):
            raise ConfigurationError(
                f"Authentication can be turned off on a loopback address only, not on {self.host!r}.",
                path="open",
                hint="Listen on 127.0.0.1, or leave `open` out and issue tokens.",
            )
        if self.open and self.is_public:
            raise ConfigurationError(
                f"Authentication cannot be turned off for a service that others reach at {self.base_url!r}.",
                path="base_url",
                hint="Leave `open` out and issue tokens, or leave `base_url` out.",
            )
        if self.workers > 1 and not self.is_durable:
            raise ConfigurationError(
                f"{self.workers} processes cannot share the store `{self.store_kind}`.",
                path="workers",
                hint="Leave `workers` at 1, or choose the store `sqlite`.",
            )
        if self.trust_mode == "ca" and self.client_ca is None:
            raise ConfigurationError(
                "The trust mode `ca` needs certificate authorities.",
                path="client_ca",
                hint="Set --client-ca to a file.",
            )
        if self.base_url is not None:
            check_url(self.base_url, "base_url")
        if self.node_url is not None:
            check_url(self.node_url, "node_url")
        for text in self.allowed_hosts:
            check_host(text, "allowed_hosts")
        for text in self.allow_cidrs:
            check_cidr(text, "allow_cidrs")
        for text in self.trusted_proxies:
            check_cidr(text, "trusted_proxies")
        for name, others in _REQUIREMENTS:
            if getattr(self, name) and not any(getattr(self, other) for other in others):
                raise ConfigurationError(
                    f"{name} has no effect without {' or '.join(others)}.",
                    path=name,
                    hint=f"Set {others[0]} too, or leave {name} out.",
                )
        check_scope_map(self.scope_map)
        check_issuers(self.external_issuers)
        check_client_subjects(self.client_subjects)

    def require_authentication(self) -> None:
        """Refuse to issue a token or an API key without authentication: any program here could make itself one that
        outlives the trial."""
        if self.open:
            raise Forbidden(
                "The service runs without authentication: it issues no tokens or API keys.",
                path="open",
                hint="Run `waypost serve` without --open; while it is open, no credential is needed.",
            )

    @property
    def external_issuers(self) -> tuple[Issuer, ...]:
        """The rows of `issuers`, and the issuer described by `jwks` and `jwt_secret`; `scope_map` is valid for all."""
        return tuple(issuer.with_scope_map(self.scope_map) for issuer in self._listed_issuers)

    @property
    def _listed_issuers(self) -> tuple[Issuer, ...]:
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
        """The service's base URL without a final slash; `port` is the bound one."""
        if self.base_url is not None:
            return self.base_url.rstrip("/")
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 - compared, not bound
        scheme = "http" if self.tls_cert is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port if port is None else port}"


SERVICE_SETTINGS = read_rows(Settings)
