"""The service itself: where it listens, what it keeps and for how long."""

from __future__ import annotations

from waypost import limits
from waypost.model.credentials import ClientSubject, Issuer
from waypost.model.principal import PUBLIC, VISIBILITIES
from waypost.settings.setting import Setting

SERVER_SETTINGS = (
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
)


# ---- Who calls: tokens of this service and of others, TLS and client certificates.

AUTH_SETTINGS = (
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
)


# ---- What a request may be: through whom it came, from which page, how many there may be.

REQUEST_SETTINGS = (
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
)


# ---- The way out: whom the service may connect to for others, and who tells it addresses.

OUTBOUND_SETTINGS = (
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
        name="health_checks",
        kind="switch",
        default=False,
        doc="Ask the endpoints of agents from time to time whether they live. Whoever fails three times is not listed until it "
        "answers twice.",
    ),
    Setting(
        name="health_check_seconds",
        kind="whole",
        default=limits.HEALTH_SECONDS,
        least=limits.FETCH_HEALTH_PAUSE_SECONDS,
        doc="How often each endpoint is asked, a fifth more or less; what stays dead is asked up to "
        f"{limits.HEALTH_BACKOFF} times more seldom.",
    ),
    Setting(
        name="health_evict_seconds",
        kind="whole",
        default=limits.HEALTH_EVICT_SECONDS,
        least=0,
        doc="After how long an agent is removed that is unhealthy and whose owner was not heard of; 0: never.",
    ),
    Setting(
        name="fetch_ca",
        kind="folder",
        shown_default="none",
        doc="A PEM file with further certificate authorities that outgoing requests trust.",
    ),
)


# ---- Domains: where agents are looked for in the DNS, and how often again.

DOMAIN_SETTINGS = (
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
        doc="Believe an index that another organisation keeps also where its entries are not signed, if DNSSEC proves the "
        "record that points there (AID-25).",
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
)


# ---- Announcements: whose are admitted, and how they must be signed.

ANNOUNCE_SETTINGS = (
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
)


# ---- What carries announcements besides HTTP: mDNS, UDP broadcast, the bus.

TRANSPORT_SETTINGS = (
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
)


# ---- What is left: look-alike names, samples, the log.

PROCESS_SETTINGS = (
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
    Setting(
        name="log_format",
        kind="text",
        default="text",
        choices=("text", "json"),
        doc="How it is written there: a line of text for people, or a JSON object a line for programs.",
    ),
)


# ---- A command or a client: which service it talks to, and as whom.

CONNECTION_SETTINGS = (
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


# ---- Every setting there is, as one table: its rows stand by subject beside this file. Their order is that of the documents.

SERVICE_SETTINGS: tuple[Setting, ...] = (
    *SERVER_SETTINGS,
    *AUTH_SETTINGS,
    *REQUEST_SETTINGS,
    *OUTBOUND_SETTINGS,
    *DOMAIN_SETTINGS,
    *ANNOUNCE_SETTINGS,
    *TRANSPORT_SETTINGS,
    *PROCESS_SETTINGS,
)

CLIENT_SETTINGS: tuple[Setting, ...] = CONNECTION_SETTINGS

SETTINGS = SERVICE_SETTINGS + CLIENT_SETTINGS

SETTINGS_BY_NAME = {setting.name: setting for setting in SETTINGS}
