"""Domains: where agents are looked for in the DNS, and how often again."""

from __future__ import annotations

from waypost import limits
from waypost.settings.row import Setting

DOMAINS = (
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
