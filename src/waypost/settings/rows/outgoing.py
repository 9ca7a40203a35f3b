"""The way out: whom the service may connect to for others, and who tells it addresses."""

from __future__ import annotations

from waypost import limits
from waypost.settings.row import Setting

OUTGOING = (
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
