"""The doctor: findings about the security of a deployment, layer by layer, each with the setting that changes it.

Pure rules over facts: the settings, files and disk of the machine, and the state of the service if it runs.
`server/api/rest/service.py` collects the facts. A layer that a deployment does not need, such as TLS on loopback, is `info`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from waypost import limits
from waypost.model.times import to_rfc3339_millis
from waypost.responses.service import Diagnosis, DoctorFinding, Severity
from waypost.settings import Settings, is_loopback

SEVERITIES: Final[tuple[Severity, ...]] = ("danger", "warning", "info", "ok")

_OTHERS: Final = 0o077  # mode bits of other users
_OTHERS_WRITE: Final = 0o022
_WIDE_V4, _WIDE_V6 = 12, 32  # a shorter prefix is no local network
_DAY: Final = 86_400.0


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The data folder and the files that settings name. None: missing or not readable."""

    data_mode: int | None = None
    admin_token_mode: int | None = None
    key_modes: tuple[tuple[str, int], ...] = ()  # of private keys, by name
    exposed: tuple[tuple[str, int], ...] = ()  # other files of the data folder with modes for other users, by path
    free_bytes: int | None = None
    descriptors: int | None = None  # that one process may open
    certificate_ends: float | None = None
    cores: int = 1
    has_embedder: bool = True
    missing_kernels: tuple[str, ...] = ()  # search kernels whose Python fallback is in use


class DatabaseFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The database that the nodes of a cluster share."""

    is_away: bool = False
    version: str = ""
    fsync: bool = True
    full_page_writes: bool = True
    synchronous_commit: str = "on"
    synchronous_standbys: str = ""  # the setting synchronous_standby_names
    standbys: int = 0
    max_connections: int = 0
    connections: int = 0
    is_remote: bool = False
    tls: bool = False
    hears: bool = True  # notifications arrive: there is no pool in transaction mode in between
    nodes: int = 1
    skew_seconds: float = 0.0  # how far the clock of this machine is ahead


class PeerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Another registry that this one follows or asks."""

    name: str
    state: str
    error: str = ""
    lag_seconds: float | None = None
    parked: int = 0
    is_breaker_open: bool = False
    has_plain_token: bool = False  # its token is sent over http


class RuntimeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a running service."""

    allow_rules: tuple[str, ...] = ()
    silent_issuers: tuple[str, ...] = ()  # URLs of key sets without keys
    agents: int = 0
    failed: int = 0  # agents that failed a check
    verified: int = 0
    pending: int = 0  # changes
    asserted_domains: int = 0  # agents whose id names a domain that nothing proves
    asserted_examples: tuple[str, ...] = ()  # ids of some of them
    full_owners: tuple[str, ...] = ()  # owners that have used up nearly all of their stored bytes
    database: DatabaseFacts | None = None  # of a cluster
    peers: tuple[PeerFacts, ...] = ()


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """All facts that the rules may use. `running` is None if no service runs."""

    settings: Settings
    machine: HostFacts
    now: float
    running: RuntimeFacts | None = None

    @property
    def is_local(self) -> bool:
        return is_loopback(self.settings.host)


def diagnose(deployment: Deployment) -> Diagnosis:
    """All findings, and their number by severity."""
    findings = tuple(examine(deployment))
    counts = {severity: sum(each.severity == severity for each in findings) for severity in SEVERITIES}
    return Diagnosis(findings=findings, counts=counts, at=to_rfc3339_millis(deployment.now))


def examine(deployment: Deployment) -> list[DoctorFinding]:
    """All findings, the most severe first."""
    found = [finding for rule in RULES for finding in rule(deployment)]
    return sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))


def _finding(layer: str, severity: Severity, message: str, setting: str | None = None, hint: str = "") -> DoctorFinding:
    return DoctorFinding(layer=layer, severity=severity, message=message, setting=setting, hint=hint)


# --- Access ---------------------------------------------------------------------------------------


def _transport(deployment: Deployment) -> Iterator[DoctorFinding]:
    settings, layer = deployment.settings, "transport"
    hint = "Set tls_cert and tls_key, or use a proxy with TLS and set base_url to its https URL."
    if settings.tls_cert is not None:
        yield _finding(layer, "ok", "TLS 1.3 is on.", "tls_cert")
        yield from _certificate(deployment)
    elif deployment.is_local:
        yield _finding(layer, "info", "No TLS; the service listens on this machine only.", "tls_cert", hint)
    elif (settings.base_url or "").startswith("https:"):
        message = "TLS ends at a proxy in front of this service; the connection between them is not encrypted."
        yield _finding(layer, "info", message, "base_url", "Keep that network private.")
    else:
        message = f"No TLS on {settings.host}: tokens and queries cross the network unencrypted."
        yield _finding(layer, "danger", message, "tls_cert", hint)


def _certificate(deployment: Deployment) -> Iterator[DoctorFinding]:
    ends = deployment.machine.certificate_ends
    if ends is None:
        return
    days = (ends - deployment.now) / _DAY
    hint = "Replace the file; the service reloads it."
    if days <= 0:
        yield _finding("certificate", "danger", "The certificate of the service has expired.", "tls_cert", hint)
    elif days < limits.DOCTOR_CERTIFICATE_DAYS:
        message = f"The certificate of the service expires in {int(days)} days."
        yield _finding("certificate", "warning", message, "tls_cert", hint)


def _authentication(deployment: Deployment) -> Iterator[DoctorFinding]:
    if deployment.settings.open:
        message = "Authentication is off: every program and user of this machine may read, write and administer."
        yield _finding("authentication", "warning", message, "open", "Leave `open` out and issue tokens.")
    else:
        yield _finding("authentication", "ok", "Every write needs a credential.", "open")


def _reading(deployment: Deployment) -> Iterator[DoctorFinding]:
    if deployment.settings.anonymous_read:
        message = "Anyone may read public agents without a token."
        yield _finding("reading", "info", message, "anonymous_read", "Leave anonymous_read out to require tokens.")
    elif not deployment.settings.open:
        yield _finding("reading", "ok", "Reading needs a token.", "anonymous_read")


def _client_certificates(deployment: Deployment) -> Iterator[DoctorFinding]:
    settings, layer = deployment.settings, "client certificates"
    if settings.client_ca is None:
        message = "No client certificates: tokens are the only credentials."
        yield _finding(layer, "info", message, "client_ca", "Set client_ca to accept certificates as credentials.")
        return
    yield _finding(layer, "ok", "Client certificates are accepted.", "client_ca")
    if settings.crl is None:
        message = "No revocation list: only serials revoked with `waypost keys revoke` are refused."
        yield _finding(layer, "info", message, "crl", "Set crl to the list of the authority.")


def _issuers(deployment: Deployment) -> Iterator[DoctorFinding]:
    layer = "outside issuers"
    for issuer in deployment.settings.external_issuers:
        if issuer.admin:
            message = f"Tokens of {issuer.issuer!r} may carry the scope admin."
            yield _finding(layer, "warning", message, "jwks_admin", "Leave it out; issue admin tokens here.")
        if not issuer.prefix:
            message = f"Subjects of {issuer.issuer!r} can have the names of subjects of this service."
            yield _finding(layer, "info", message, "jwks_prefix", "Set a prefix for them.")
    for url in deployment.running.silent_issuers if deployment.running else ():
        message = f"No keys could be loaded from {url}: tokens of that issuer are refused."
        yield _finding(layer, "warning", message, "jwks", "Check the URL, and whether it is reachable from here.")


# --- Trust ----------------------------------------------------------------------------------------


def _announcements(deployment: Deployment) -> Iterator[DoctorFinding]:
    settings, layer = deployment.settings, "announcements"
    running = deployment.running
    rules = running.allow_rules if running else ()
    if "*" in rules:
        message = "The allow-list has the rule *: anyone with a token may announce any new id."
        yield _finding(
            layer, "warning", message, None, "Run `waypost allow remove '*'`, then add a rule for each agent."
        )
    elif settings.trust_mode == "tofu" and not rules:
        message = "trust_mode is tofu without an allow-list: the first key of an id is trusted."
        yield _finding(layer, "warning", message, "trust_mode", "Use allowlist-tofu, and `waypost allow add`.")
    elif running is not None and not rules and settings.trust_mode == "allowlist-tofu":
        message = "The allow-list is empty: only admins may announce."
        yield _finding(layer, "info", message, "trust_mode", "`waypost allow add` admits others.")
    else:
        known = f"; the allow-list has {len(rules)} rules" if running is not None else ""
        yield _finding(layer, "ok", f"trust_mode is {settings.trust_mode}{known}.", "trust_mode")
    if settings.unsigned_announcements != "reject":
        message = "Announcements without a signature are admitted as untrusted."
        yield _finding(layer, "warning", message, "unsigned_announcements", "Set unsigned_announcements to reject.")
    if settings.legacy_signatures:
        message = (
            "Signatures over the JSON form of older announcers are accepted; its bytes differ between implementations."
        )
        yield _finding(layer, "warning", message, "legacy_signatures", "Leave it out once all announcers use RFC 8785.")
    if not settings.bind_subject:
        message = "A token may announce any id that the allow-list admits."
        yield _finding(
            layer, "info", message, "bind_subject", "Set bind_subject to restrict each token to its own agent."
        )


def _lan(deployment: Deployment) -> Iterator[DoctorFinding]:
    settings, layer = deployment.settings, "LAN"
    transports = (
        ("mdns", "mDNS", "any host on the LAN"),
        ("udp", "UDP broadcast", "any host on the LAN"),
        ("bus", "the bus", "any client of the bus"),
    )
    for name, label, sender in transports:
        if not getattr(settings, name):
            continue
        if settings.trust_mode == "tofu":
            message = f"Announcements by {label} are received, and trust_mode is tofu: {sender} may register agents."
            yield _finding(layer, "warning", message, name, "Use allowlist-tofu, and `waypost allow add`.")
        else:
            message = f"Announcements by {label} are received under the same rules as all others."
            yield _finding(layer, "ok", message, name)
    if settings.mdns_publish:
        message = "Public agents are published to the LAN by mDNS, even if reading needs a token."
        yield _finding(
            layer, "info", message, "mdns_publish", "Leave it out if other hosts on the LAN should not see them."
        )


def _verdicts(deployment: Deployment) -> Iterator[DoctorFinding]:
    running = deployment.running
    if running is None:
        return
    if running.failed:
        message = f"{running.failed} of {running.agents} agents failed a check."
        yield _finding("agents", "warning", message, None, "`waypost verify ID` shows why; withdraw forged agents.")
    if running.pending:
        changes = "1 change" if running.pending == 1 else f"{running.pending} changes"
        message = f"Pending: {changes} of verified agents."
        yield _finding("agents", "info", message, None, "`waypost confirm ID` shows each.")
    if running.asserted_domains:
        shown = ", ".join(running.asserted_examples)
        more = ", …" if running.asserted_domains > len(running.asserted_examples) else ""
        agents = "1 agent names" if running.asserted_domains == 1 else f"{running.asserted_domains} agents name"
        message = f"{agents} a domain that nothing proves: {shown}{more}."
        hint = (
            "Let their owners prove the domain (`waypost domain prove DOMAIN`) or sign with a key that you trust "
            "(`waypost keys trust`), or withdraw them. They get no tasks for the domain."
        )
        yield _finding("ownership", "info", message, None, hint)


# --- Limits ---------------------------------------------------------------------------------------


def _rates(deployment: Deployment) -> Iterator[DoctorFinding]:
    settings, layer = deployment.settings, "rate limits"
    off = [name for name in ("rate_limit_reads", "rate_limit_writes") if getattr(settings, name) == 0]
    severity: Severity = "info" if deployment.is_local else "warning"
    for name in off:
        yield _finding(
            layer, severity, f"{name} is 0: one caller may use all capacity.", name, "Leave it out, or set it."
        )
    if not off:
        yield _finding(layer, "ok", "Callers from other machines have a rate limit.", "rate_limit_writes")


def _quotas(deployment: Deployment) -> Iterator[DoctorFinding]:
    most = deployment.settings.agents_per_owner
    severity: Severity = "info" if deployment.is_local else "warning"
    if most:
        yield _finding("quotas", "ok", f"An owner may have {most} agents.", "agents_per_owner")
    else:
        message = "agents_per_owner is 0: one owner may fill the registry."
        yield _finding("quotas", severity, message, "agents_per_owner", "Set how many agents an owner may have.")
    if not deployment.settings.stored_bytes_per_owner:
        message = "stored_bytes_per_owner is 0: one owner may fill the disk with documents."
        yield _finding("quotas", severity, message, "stored_bytes_per_owner", "Set how much an owner may store.")
    for owner in deployment.running.full_owners if deployment.running else ():
        message = (
            f"The documents of {owner} use more than {limits.DOCTOR_QUOTA_SHARE:.0%} of the bytes that they may have."
        )
        hint = "Raise it, or ask for smaller documents: beyond it new and larger ones are refused."
        yield _finding("quotas", "warning", message, "stored_bytes_per_owner", hint)
    if not deployment.settings.hourly_bytes_per_owner:
        message = "hourly_bytes_per_owner is 0: one owner may fill the disk with changes."
        yield _finding("quotas", severity, message, "hourly_bytes_per_owner", "Set how much an owner may change.")


def _outgoing(deployment: Deployment) -> Iterator[DoctorFinding]:
    layer, name = "outgoing requests", "allow_cidrs"
    hint = "Name only the networks where your agents are."
    for text in deployment.settings.allow_cidrs:
        network = ipaddress.ip_network(text, strict=False)
        wide = _WIDE_V4 if network.version == 4 else _WIDE_V6
        if network.prefixlen == 0:
            yield _finding(layer, "danger", f"{text} lets callers reach every address from here.", name, hint)
        elif network.prefixlen < wide:
            yield _finding(layer, "warning", f"{text} is wider than any private network.", name, hint)
        elif network.is_loopback:
            message = f"{text} lets callers reach services that listen on this machine only."
            yield _finding(layer, "warning", message, name, hint)
    if not deployment.settings.allow_cidrs:
        yield _finding(layer, "ok", "The service never connects to private and reserved addresses for callers.", name)


def _resolver(deployment: Deployment) -> Iterator[DoctorFinding]:
    resolver = deployment.settings.resolver
    if "," not in resolver:
        message = "One resolver alone decides domain proofs."
        yield _finding("resolver", "info", message, "resolver", "Name two, separated by a comma.")
    else:
        yield _finding("resolver", "ok", "Two resolvers must agree on domain proofs.", "resolver")


def _dnssec(deployment: Deployment) -> Iterator[DoctorFinding]:
    if deployment.settings.trust_ad:
        message = "DNSSEC is validated by the resolver, not here."
        yield _finding("dnssec", "info", message, "trust_ad", "Leave trust_ad out to validate here.")
    else:
        anchors = "the root keys" if deployment.settings.trust_anchors is None else "the root keys and your anchors"
        yield _finding("dnssec", "ok", f"DNSSEC is validated here, with {anchors}.", "trust_anchors")


def _proxies(deployment: Deployment) -> Iterator[DoctorFinding]:
    for text in deployment.settings.trusted_proxies:
        if ipaddress.ip_network(text, strict=False).prefixlen == 0:
            message = f"trusted_proxies has {text}: any caller can fake its address."
            yield _finding("proxies", "danger", message, "trusted_proxies", "Name your proxies only.")
    if deployment.is_local and deployment.settings.is_public and not deployment.settings.trusted_proxies:
        message = (
            "The proxy of base_url is not trusted: all callers without a token share one rate limit and one address."
        )
        hint = "Set trusted_proxies to its address, and let it send X-Forwarded-For."
        yield _finding("proxies", "danger", message, "trusted_proxies", hint)


# --- Data -----------------------------------------------------------------------------------------


def _files(deployment: Deployment) -> Iterator[DoctorFinding]:
    machine, layer, is_private = deployment.machine, "files", True
    if machine.admin_token_mode is not None and machine.admin_token_mode & _OTHERS:
        is_private = False
        message = f"admin.token can be read by other users (mode {machine.admin_token_mode:04o})."
        yield _finding(layer, "danger", message, "data", "Run chmod 600, then replace it: remove the file and restart.")
    for name, mode in machine.key_modes:
        if mode & _OTHERS:
            is_private = False
            message = f"The private key {name} can be read by other users (mode {mode:04o})."
            yield _finding(
                layer, "danger", message, "data", "Run chmod 600, and replace the key if others use this machine."
            )
    known = {".", *(f"keys/{name}" for name, _ in machine.key_modes)}
    exposed = [(name, mode) for name, mode in machine.exposed if name not in known]
    for name, mode in exposed[:1]:
        is_private = False
        more = f" and {len(exposed) - 1} more" if len(exposed) > 1 else ""
        message = f"{name}{more} in the data folder can be read by other users (mode {mode:04o})."
        yield _finding(layer, "warning", message, "data", "Run `chmod -R go= DATA`; the next start repairs it, too.")
    if machine.data_mode is not None and machine.data_mode & _OTHERS_WRITE:
        is_private = False
        message = f"Other users can write to the data folder (mode {machine.data_mode:04o})."
        yield _finding(layer, "danger", message, "data", "Run chmod 700.")
    elif machine.data_mode is not None and machine.data_mode & _OTHERS:
        is_private = False
        message = f"Other users can read the data folder (mode {machine.data_mode:04o})."
        yield _finding(layer, "warning", message, "data", "Run chmod 700.")
    if is_private and machine.data_mode is not None:
        yield _finding(layer, "ok", "Only the owner can read the data folder, the admin token and the keys.", "data")


def _disk(deployment: Deployment) -> Iterator[DoctorFinding]:
    free = deployment.machine.free_bytes
    if free is None or not deployment.settings.is_durable:
        return
    hint = "Free some space: on a full disk, writes are refused."
    if free < limits.DOCTOR_DISK_DANGER_BYTES:
        yield _finding(
            "disk", "danger", f"{free // limits.MIB} MiB are free on the disk of the data folder.", "data", hint
        )
    elif free < limits.DOCTOR_DISK_WARNING_BYTES:
        yield _finding(
            "disk", "warning", f"{free // limits.MIB} MiB are free on the disk of the data folder.", "data", hint
        )
    else:
        yield _finding("disk", "ok", f"{free // limits.MIB} MiB are free on the disk of the data folder.", "data")


def _descriptors(deployment: Deployment) -> Iterator[DoctorFinding]:
    descriptors = deployment.machine.descriptors
    if descriptors is None:
        return
    if descriptors < limits.CONNECTIONS + limits.RESERVED_DESCRIPTORS:
        message = f"A process may open {descriptors} files; {limits.CONNECTIONS} connections need more."
        yield _finding(
            "descriptors", "warning", message, None, "Raise the limit: LimitNOFILE= of systemd, or ulimit -n."
        )
    else:
        yield _finding("descriptors", "ok", "There are enough file descriptors for all connections.")


def _durability(deployment: Deployment) -> Iterator[DoctorFinding]:
    if not deployment.settings.is_durable:
        severity: Severity = "info" if deployment.is_local else "warning"
        message = "The store is in memory: records, audit trail and keys are lost when the service stops."
        yield _finding("durability", severity, message, "store", "Use the store sqlite.")
    else:
        yield _finding("durability", "ok", "Acknowledged writes survive a crash and a power failure.", "store")


def _peers(deployment: Deployment) -> Iterator[DoctorFinding]:
    peers = deployment.running.peers if deployment.running is not None else ()
    layer, setting = "peers", "peers"
    for peer in peers:
        show = f"`waypost peers show {peer.name}` has the details."
        if peer.state == "paused":
            message = f"The peer {peer.name} is paused: its changes do not arrive. {peer.error}".rstrip()
            yield _finding(layer, "warning", message, setting, f"`waypost peers resume {peer.name}`, after you looked.")
        elif peer.state == "failing":
            yield _finding(layer, "warning", f"The peer {peer.name} cannot be read: {peer.error}", setting, show)
        elif peer.lag_seconds is not None and peer.lag_seconds > limits.DOCTOR_LAG_SECONDS:
            message = f"The agents of the peer {peer.name} are {peer.lag_seconds / 3600:.1f} hours old."
            yield _finding(layer, "warning", message, setting, show)
        if peer.is_breaker_open:
            message = f"The peer {peer.name} does not answer searches, and is not asked for now."
            yield _finding(layer, "info", message, setting, show)
        if peer.has_plain_token:
            message = f"The token for the peer {peer.name} is sent without encryption."
            yield _finding(layer, "warning", message, setting, "Name its https address.")
    good = sum(peer.state in ("current", "syncing", "new") for peer in peers)
    if good:
        yield _finding(layer, "ok", f"{good} of {len(peers)} peers work.", setting)


def _database(deployment: Deployment) -> Iterator[DoctorFinding]:
    database = deployment.running.database if deployment.running is not None else None
    if database is None:
        return
    layer, setting = "database", "store"
    if database.is_away:
        message = "The database is away: reads are stale, writes are refused."
        yield _finding(layer, "danger", message, setting, "Start it; the nodes resume by themselves.")
        return
    yield _finding(
        layer, "ok", f"PostgreSQL {database.version}; {database.nodes} nodes of the cluster are alive.", setting
    )
    if not database.fsync or not database.full_page_writes:
        message = "fsync or full_page_writes is off: a power failure destroys the database."
        yield _finding(layer, "danger", message, setting, "Turn both on in postgresql.conf.")
    yield from _find_commit_problems(database)
    if database.standbys and not database.synchronous_standbys:
        message = f"All {database.standbys} standbys are asynchronous: a failover loses acknowledged writes."
        hint = "Set synchronous_standby_names, for example to 'ANY 1 (s1, s2)'."
        yield _finding(layer, "warning", message, setting, hint)
    elif not database.standbys and not database.synchronous_standbys:
        message = "The database has no standby: while it is away, nothing can be written."
        yield _finding(layer, "info", message, setting, "Add standbys, and name all servers in the URL.")
    if database.is_remote and not database.tls:
        message = "The connection to the database is not encrypted."
        yield _finding(layer, "danger", message, setting, "Add ?sslmode=verify-full to the URL.")
    if database.max_connections and database.connections > 0.8 * database.max_connections:
        message = f"{database.connections} of {database.max_connections} connections of the database are in use."
        yield _finding(layer, "warning", message, setting, "Raise max_connections, or use a pool.")
    if not database.hears:
        message = "Notifications do not arrive, as behind a pool in transaction mode: changes are noticed by polling."
        yield _finding(layer, "info", message, setting, "Nothing needs to be done.")
    if abs(database.skew_seconds) > limits.DOCTOR_SKEW_SECONDS:
        message = f"The clocks of this machine and of the database differ by {abs(database.skew_seconds):.0f} s."
        yield _finding(
            "clock", "warning", message, None, "Synchronise both with NTP; the cluster uses that of the database."
        )


def _find_commit_problems(database: DatabaseFacts) -> Iterator[DoctorFinding]:
    """What an acknowledged write waits for."""
    layer, setting = "database", "store"
    if database.synchronous_commit == "off":
        message = "synchronous_commit is off: the database would acknowledge writes too early, so they are refused."
        yield _finding(layer, "danger", message, setting, "Run: ALTER DATABASE name SET synchronous_commit = on.")
    elif database.synchronous_standbys and database.synchronous_commit == "local":
        message = (
            "synchronous_commit is local: writes do not wait for a standby, and a failover loses acknowledged ones."
        )
        yield _finding(layer, "warning", message, setting, "Run: ALTER DATABASE name SET synchronous_commit = on.")
    elif database.synchronous_standbys and not database.standbys:
        names = database.synchronous_standbys
        message = f"No standby is connected, but each write waits for one (synchronous_standby_names = {names!r})."
        yield _finding(layer, "danger", message, setting, "Start the standbys, or change synchronous_standby_names.")


def _clock(deployment: Deployment) -> Iterator[DoctorFinding]:
    if deployment.now < limits.DOCTOR_EARLIEST:
        message = "The clock is years behind: tokens, leases and certificates are checked against a wrong time."
        yield _finding("clock", "danger", message, None, "Set the clock of this machine, and use NTP.")


def _kernels(deployment: Deployment) -> Iterator[DoctorFinding]:
    missing = ", ".join(deployment.machine.missing_kernels)
    if missing:
        message = f"Search kernels not compiled: {missing}. The Python fallback is several times slower."
        hint = "Install a C compiler and the Python headers, then reinstall waypost (in a checkout: `python hatch_build.py`)."
        yield _finding("kernels", "warning", message, None, hint)
    else:
        yield _finding("kernels", "ok", "The compiled search kernels are in use.")


def _general(deployment: Deployment) -> Iterator[DoctorFinding]:
    settings, machine = deployment.settings, deployment.machine
    if settings.workers > machine.cores:
        message = f"{settings.workers} processes share {machine.cores} cores."
        yield _finding("workers", "info", message, "workers", "Use at most one process for each core.")
    if settings.embedder == "none" or not machine.has_embedder:
        message = "No sentence model: search uses words and tags only."
        yield _finding("embedder", "info", message, "embedder", "Install one; see docs/how-to/use-your-own-model.md.")
    if settings.log_level == "debug":
        yield _finding("log", "info", "The log is verbose.", "log_level", "Set it to info.")


RULES: Final[tuple[Callable[[Deployment], Iterator[DoctorFinding]], ...]] = (
    _transport,
    _authentication,
    _reading,
    _client_certificates,
    _issuers,
    _announcements,
    _lan,
    _verdicts,
    _rates,
    _quotas,
    _outgoing,
    _resolver,
    _dnssec,
    _proxies,
    _files,
    _disk,
    _descriptors,
    _durability,
    _peers,
    _database,
    _clock,
    _kernels,
    _general,
)
