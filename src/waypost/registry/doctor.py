"""What protects a deployment, layer by layer, and what does not: each finding names the setting that changes it.

Pure rules over facts: the settings, what the machine shows of files and disk, and, where a service runs, what it knows of
itself. `server/api/rest/service.py` gathers the facts. A layer that a deployment does not need (TLS on loopback) is
told as `info`.
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

_OTHERS: Final = 0o077
_OTHERS_WRITE: Final = 0o022
_WIDE_V4, _WIDE_V6 = 12, 32  # fewer leading bits than these are no local network
_DAY: Final = 86_400.0


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What can be seen of the data folder and the files that settings name. None: it is not there, or cannot be seen."""

    data_mode: int | None = None
    admin_token_mode: int | None = None
    key_modes: tuple[tuple[str, int], ...] = ()  # of private keys, by name
    free_bytes: int | None = None
    certificate_ends: float | None = None
    cores: int = 1
    has_embedder: bool = True
    missing_kernels: tuple[str, ...] = ()  # search kernels whose Python fallback is in use


class RuntimeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a running service knows of itself."""

    allow_rules: tuple[str, ...] = ()
    silent_issuers: tuple[str, ...] = ()  # addresses of key sets that give no keys
    agents: int = 0
    failed: int = 0  # agents that failed a check
    verified: int = 0
    waiting: int = 0  # changes that wait for a confirmation


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    settings: Settings
    machine: HostFacts
    now: float
    running: RuntimeFacts | None = None

    @property
    def is_local(self) -> bool:
        return is_loopback(self.settings.host)


def diagnose(deployment: Deployment) -> Diagnosis:
    """The findings and how many there are of each severity."""
    findings = tuple(examine(deployment))
    counts = {severity: sum(each.severity == severity for each in findings) for severity in SEVERITIES}
    return Diagnosis(findings=findings, counts=counts, at=to_rfc3339_millis(deployment.now))


def examine(deployment: Deployment) -> list[DoctorFinding]:
    """Every finding, the gravest first."""
    found = [finding for rule in RULES for finding in rule(deployment)]
    return sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))


def _finding(layer: str, severity: Severity, message: str, setting: str | None = None, hint: str = "") -> DoctorFinding:
    return DoctorFinding(layer=layer, severity=severity, message=message, setting=setting, hint=hint)


# --- Who gets in ----------------------------------------------------------------------------------


def _transport(deployment: Deployment) -> Iterator[DoctorFinding]:
    settings, layer = deployment.settings, "transport"
    hint = "Set tls_cert and tls_key, or put a proxy with TLS before it and name it in base_url as https."
    if settings.tls_cert is not None:
        yield _finding(layer, "ok", "TLS 1.3 on the listener.", "tls_cert")
        yield from _certificate(deployment)
    elif deployment.is_local:
        yield _finding(layer, "info", "No TLS; the service listens on this machine only.", "tls_cert", hint)
    elif (settings.base_url or "").startswith("https:"):
        told = "TLS ends at a proxy before this service; between them everything is readable."
        yield _finding(layer, "info", told, "base_url", "Keep the way between them private.")
    else:
        told = f"No TLS on {settings.host}: tokens and questions cross the network readable."
        yield _finding(layer, "danger", told, "tls_cert", hint)


def _certificate(deployment: Deployment) -> Iterator[DoctorFinding]:
    ends = deployment.machine.certificate_ends
    if ends is None:
        return
    days = (ends - deployment.now) / _DAY
    hint = "Replace the file; it is read again."
    if days <= 0:
        yield _finding("certificate", "danger", "The service's certificate has expired.", "tls_cert", hint)
    elif days < limits.DOCTOR_CERTIFICATE_DAYS:
        told = f"The service's certificate expires in {int(days)} days."
        yield _finding("certificate", "warning", told, "tls_cert", hint)


def _authentication(deployment: Deployment) -> Iterator[DoctorFinding]:
    if deployment.settings.open:
        told = "Authentication is off: every program and user of this machine may read, write and administer."
        yield _finding("authentication", "warning", told, "open", "Leave `open` out and hand out tokens.")
    else:
        yield _finding("authentication", "ok", "Every write needs a credential.", "open")


def _reading(deployment: Deployment) -> Iterator[DoctorFinding]:
    if deployment.settings.anonymous_read:
        told = "Anyone may read public agents without a token."
        yield _finding("reading", "info", told, "anonymous_read", "Leave anonymous_read out to ask readers for tokens.")
    elif not deployment.settings.open:
        yield _finding("reading", "ok", "Reading needs a token.", "anonymous_read")


def _client_certificates(deployment: Deployment) -> Iterator[DoctorFinding]:
    settings, layer = deployment.settings, "client certificates"
    if settings.client_ca is None:
        told = "No client certificates: tokens alone tell callers apart."
        yield _finding(layer, "info", told, "client_ca", "Set client_ca to take certificates as credentials.")
        return
    yield _finding(layer, "ok", "Client certificates are believed.", "client_ca")
    if settings.crl is None:
        told = "No list of revoked certificates: only serials that `waypost keys revoke` names are refused."
        yield _finding(layer, "info", told, "crl", "Set crl to the list of the authority.")


def _issuers(deployment: Deployment) -> Iterator[DoctorFinding]:
    layer = "outside issuers"
    for issuer in deployment.settings.external_issuers:
        if issuer.admin:
            told = f"Tokens of {issuer.issuer!r} may carry the scope admin."
            yield _finding(layer, "warning", told, "jwks_admin", "Leave it out; mint admin tokens here.")
        if not issuer.prefix:
            told = f"Subjects of {issuer.issuer!r} are not told apart from those of this service."
            yield _finding(layer, "info", told, "jwks_prefix", "Set a prefix for them.")
    for url in deployment.running.silent_issuers if deployment.running else ():
        told = f"No keys could be had from {url}: tokens of that issuer are refused."
        yield _finding(layer, "warning", told, "jwks", "Is the address right, and reachable from here?")


# --- Whom it believes -----------------------------------------------------------------------------


def _announcements(deployment: Deployment) -> Iterator[DoctorFinding]:
    settings, layer = deployment.settings, "announcements"
    running = deployment.running
    rules = running.allow_rules if running else ()
    if "*" in rules:
        told = "The allow-list has the rule *: anyone with a token may announce any new id."
        yield _finding(layer, "warning", told, None, "`waypost allow remove '*'`, then a rule for each agent.")
    elif settings.trust_mode == "tofu" and not rules:
        told = "trust_mode is tofu without an allow-list: the first key that comes for an id is believed."
        yield _finding(layer, "warning", told, "trust_mode", "Use allowlist-tofu, and `waypost allow add`.")
    elif running is not None and not rules and settings.trust_mode == "allowlist-tofu":
        told = "The allow-list is empty: nobody but an admin may announce."
        yield _finding(layer, "info", told, "trust_mode", "`waypost allow add` admits others, one by one.")
    else:
        known = f"; the allow-list has {len(rules)} rules" if running is not None else ""
        yield _finding(layer, "ok", f"trust_mode is {settings.trust_mode}{known}.", "trust_mode")
    if settings.unsigned_announcements != "reject":
        told = "Announcements without a signature are admitted, untrusted."
        yield _finding(layer, "warning", told, "unsigned_announcements", "Set unsigned_announcements to reject.")
    if settings.legacy_signatures:
        told = "Signatures over the JSON of older announcers are taken too; it is not the same for every reader."
        yield _finding(layer, "warning", told, "legacy_signatures", "Leave it out once all announcers use RFC 8785.")
    if not settings.bind_subject:
        told = "A token may announce any id that the allow-list admits."
        yield _finding(layer, "info", told, "bind_subject", "Set bind_subject to hold each token to its own agent.")


def _lan(deployment: Deployment) -> Iterator[DoctorFinding]:
    settings, layer = deployment.settings, "LAN"
    ways = (
        ("mdns", "mDNS", "any neighbour"),
        ("udp", "UDP broadcast", "any neighbour"),
        ("bus", "the bus", "who reaches it"),
    )
    for name, word, who in ways:
        if not getattr(settings, name):
            continue
        if settings.trust_mode == "tofu":
            told = f"Announcements by {word} are heard, and trust_mode is tofu: {who} may register agents."
            yield _finding(layer, "warning", told, name, "Use allowlist-tofu, and `waypost allow add`.")
        else:
            told = f"Announcements by {word} are heard; the gate for all announcements applies."
            yield _finding(layer, "ok", told, name)
    if settings.mdns_publish:
        told = "Public agents are told to the whole LAN by mDNS, also where reading needs a token."
        yield _finding(layer, "info", told, "mdns_publish", "Leave it out if neighbours should not see them.")


def _verdicts(deployment: Deployment) -> Iterator[DoctorFinding]:
    running = deployment.running
    if running is None:
        return
    if running.failed:
        told = f"{running.failed} of {running.agents} agents failed a check."
        yield _finding("agents", "warning", told, None, "`waypost verify ID` tells why; withdraw what is forged.")
    if running.waiting:
        told = f"{running.waiting} changes of verified agents wait for a confirmation."
        yield _finding("agents", "info", told, None, "`waypost confirm ID` shows each.")


# --- What it bounds -------------------------------------------------------------------------------


def _rates(deployment: Deployment) -> Iterator[DoctorFinding]:
    settings, layer = deployment.settings, "rate limits"
    off = [name for name in ("rate_limit_reads", "rate_limit_writes") if getattr(settings, name) == 0]
    severity: Severity = "info" if deployment.is_local else "warning"
    for name in off:
        yield _finding(
            layer, severity, f"{name} is 0: one caller may use everything.", name, "Leave it out, or set it."
        )
    if not off:
        yield _finding(layer, "ok", "Callers from elsewhere are held to a rate.", "rate_limit_writes")


def _quotas(deployment: Deployment) -> Iterator[DoctorFinding]:
    most = deployment.settings.agents_per_owner
    if most:
        yield _finding("quotas", "ok", f"An owner may have {most} agents.", "agents_per_owner")
    else:
        severity: Severity = "info" if deployment.is_local else "warning"
        told = "agents_per_owner is 0: one owner may fill the registry."
        yield _finding("quotas", severity, told, "agents_per_owner", "Set how many agents an owner may have.")


def _outgoing(deployment: Deployment) -> Iterator[DoctorFinding]:
    layer, name = "outgoing requests", "allow_cidrs"
    hint = "Name only the networks where your agents are."
    for text in deployment.settings.allow_cidrs:
        network = ipaddress.ip_network(text, strict=False)
        wide = _WIDE_V4 if network.version == 4 else _WIDE_V6
        if network.prefixlen == 0:
            yield _finding(layer, "danger", f"{text} lets callers reach every address from here.", name, hint)
        elif network.prefixlen < wide:
            yield _finding(layer, "warning", f"{text} is wider than any network of one owner.", name, hint)
        elif network.is_loopback:
            told = f"{text} lets callers reach what listens on this machine alone."
            yield _finding(layer, "warning", told, name, hint)
    if not deployment.settings.allow_cidrs:
        yield _finding(layer, "ok", "Private and reserved addresses are never asked for others.", name)


def _resolver(deployment: Deployment) -> Iterator[DoctorFinding]:
    resolver = deployment.settings.resolver
    if "," not in resolver:
        told = "One resolver answers for domain proofs; nobody confirms what it says."
        yield _finding("resolver", "info", told, "resolver", "Name two, with a comma between them.")
    else:
        yield _finding("resolver", "ok", "Two resolvers must agree on domain proofs.", "resolver")


def _dnssec(deployment: Deployment) -> Iterator[DoctorFinding]:
    if deployment.settings.trust_ad:
        told = "What the DNS proves is the resolver's word, not checked here."
        yield _finding("dnssec", "info", told, "trust_ad", "Leave trust_ad out to validate here.")
    else:
        begins = "the root's keys" if deployment.settings.trust_anchors is None else "the root's keys and your anchors"
        yield _finding("dnssec", "ok", f"Answers of the DNS are validated here, from {begins} on.", "trust_anchors")


def _proxies(deployment: Deployment) -> Iterator[DoctorFinding]:
    for text in deployment.settings.trusted_proxies:
        if ipaddress.ip_network(text, strict=False).prefixlen == 0:
            told = f"trusted_proxies has {text}: anyone may say which address they come from."
            yield _finding("proxies", "danger", told, "trusted_proxies", "Name your proxies only.")


# --- What it keeps --------------------------------------------------------------------------------


def _files(deployment: Deployment) -> Iterator[DoctorFinding]:
    machine, layer, sound = deployment.machine, "files", True
    if machine.admin_token_mode is not None and machine.admin_token_mode & _OTHERS:
        sound = False
        told = f"admin.token can be read by other users (mode {machine.admin_token_mode:04o})."
        yield _finding(layer, "danger", told, "data", "chmod 600 it, and replace it: remove it and restart.")
    for name, mode in machine.key_modes:
        if mode & _OTHERS:
            sound = False
            told = f"The private key {name} can be read by other users (mode {mode:04o})."
            yield _finding(layer, "danger", told, "data", "chmod 600 it, and replace it if others use this machine.")
    if machine.data_mode is not None and machine.data_mode & _OTHERS_WRITE:
        sound = False
        told = f"Other users may write to the data folder (mode {machine.data_mode:04o})."
        yield _finding(layer, "danger", told, "data", "chmod 700 it.")
    elif machine.data_mode is not None and machine.data_mode & _OTHERS:
        sound = False
        told = f"Other users may look into the data folder (mode {machine.data_mode:04o})."
        yield _finding(layer, "warning", told, "data", "chmod 700 it.")
    if sound and machine.data_mode is not None:
        yield _finding(layer, "ok", "Data folder, admin token and keys are their owner's alone.", "data")


def _disk(deployment: Deployment) -> Iterator[DoctorFinding]:
    free = deployment.machine.free_bytes
    if free is None or not deployment.settings.is_durable:
        return
    hint = "Free some: on a full disk, writes are refused."
    if free < limits.DOCTOR_DISK_DANGER_BYTES:
        yield _finding("disk", "danger", f"{free // limits.MIB} MiB are free where the data is.", "data", hint)
    elif free < limits.DOCTOR_DISK_WARNING_BYTES:
        yield _finding("disk", "warning", f"{free // limits.MIB} MiB are free where the data is.", "data", hint)
    else:
        yield _finding("disk", "ok", f"{free // limits.MIB} MiB are free where the data is.", "data")


def _durability(deployment: Deployment) -> Iterator[DoctorFinding]:
    if not deployment.settings.is_durable:
        severity: Severity = "info" if deployment.is_local else "warning"
        told = "The store is in memory: records, audit trail and bound keys are gone at the end."
        yield _finding("durability", severity, told, "store", "Use the store sqlite.")
    else:
        yield _finding("durability", "ok", "An acknowledged write survives a crash and a power cut.", "store")


def _clock(deployment: Deployment) -> Iterator[DoctorFinding]:
    if deployment.now < limits.DOCTOR_EARLIEST:
        told = "The clock is years behind: tokens, leases and certificates are judged wrongly."
        yield _finding("clock", "danger", told, None, "Set the clock of this machine, and keep it by NTP.")


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
        told = f"{settings.workers} processes share {machine.cores} cores."
        yield _finding("workers", "info", told, "workers", "More processes than cores help nobody.")
    if settings.embedder == "none" or not machine.has_embedder:
        told = "No sentence model: agents are found by their words and tags alone."
        yield _finding("embedder", "info", told, "embedder", "Install one; see docs/how-to/use-your-own-model.md.")
    if settings.log_level == "debug":
        yield _finding("log", "info", "The log tells more than it needs to.", "log_level", "Set it to info.")


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
    _durability,
    _clock,
    _kernels,
    _general,
)
