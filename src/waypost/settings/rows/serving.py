"""The service itself: where it listens, what it keeps and for how long."""

from __future__ import annotations

from waypost import limits
from waypost.model.principal import PUBLIC, VISIBILITIES
from waypost.settings.row import Setting

SERVING = (
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
