"""What carries announcements besides HTTP: mDNS, UDP broadcast, the bus."""

from __future__ import annotations

from waypost import limits
from waypost.settings.row import Setting

CARRIERS = (
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
