"""What a request may be: through whom it came, from which page, how many there may be."""

from __future__ import annotations

from waypost import limits
from waypost.settings.row import Setting

REQUESTS = (
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
