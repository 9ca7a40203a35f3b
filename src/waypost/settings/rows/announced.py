"""Announcements: whose are admitted, and how they must be signed."""

from __future__ import annotations

from waypost.settings.row import Setting

ANNOUNCED = (
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
