"""Every setting there is, as one table: its rows stand by subject beside this file. Their order is that of the documents."""

from __future__ import annotations

from waypost.settings.row import Setting
from waypost.settings.rows.announced import ANNOUNCED
from waypost.settings.rows.callers import CALLERS
from waypost.settings.rows.carriers import CARRIERS
from waypost.settings.rows.connecting import CONNECTING
from waypost.settings.rows.domains import DOMAINS
from waypost.settings.rows.outgoing import OUTGOING
from waypost.settings.rows.requests import REQUESTS
from waypost.settings.rows.running import RUNNING
from waypost.settings.rows.serving import SERVING

SERVICE_SETTINGS: tuple[Setting, ...] = (
    *SERVING,
    *CALLERS,
    *REQUESTS,
    *OUTGOING,
    *DOMAINS,
    *ANNOUNCED,
    *CARRIERS,
    *RUNNING,
)
CLIENT_SETTINGS: tuple[Setting, ...] = CONNECTING
SETTINGS = SERVICE_SETTINGS + CLIENT_SETTINGS
BY_NAME = {setting.name: setting for setting in SETTINGS}
