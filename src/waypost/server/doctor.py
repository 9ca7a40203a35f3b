"""The doctor's facts, and its findings over HTTP, for admins."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import msgspec

from waypost.late import x509
from waypost.model.json import JsonObject
from waypost.model.registration import TRUST_FACT
from waypost.model.times import to_rfc3339_millis
from waypost.registry.doctor import SEVERITIES, Deployment, Finding, Machine, Running, examine
from waypost.registry.drift import held_name
from waypost.registry.engine import Registry
from waypost.server.asgi import AnyResponse, json_response
from waypost.server.routes import Body, Call, Route
from waypost.server.shapes import DIAGNOSIS
from waypost.settings import ADMIN_TOKEN_FILE, Settings

_KEYS = "keys"


class DoctorFace:
    def __init__(
        self,
        registry: Registry,
        settings: Settings,
        silent_issuers: Callable[[], tuple[str, ...]],
        has_embedder: Callable[[], bool],
    ) -> None:
        self._registry = registry
        self._settings = settings
        self._has_embedder = has_embedder
        self._silent_issuers = silent_issuers

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/api/v1/doctor",
                operation="doctor",
                handler=self.diagnose,
                summary="What protects this deployment, and what does not",
                answers={200: Body(schema=DIAGNOSIS)},
            )
        ]

    async def diagnose(self, call: Call) -> AnyResponse:
        now = self._registry.clock.now()
        machine = machine_of(self._settings, has_embedder=self._has_embedder())
        deployment = Deployment(settings=self._settings, machine=machine, now=now, running=await self._running())
        return json_response(diagnosis_json(examine(deployment), now), headers=[(b"cache-control", b"no-store")])

    async def _running(self) -> Running:
        registry = self._registry
        stated = registry.catalogue.stated
        return Running(
            allow_rules=tuple(rule.rule for rule in await registry.trust.allow_rules()),
            silent_issuers=self._silent_issuers(),
            agents=len(registry.catalogue),
            failed=len(stated.valued(TRUST_FACT, "failed")),
            verified=len(stated.valued(TRUST_FACT, "verified")),
            waiting=len(await registry.store.notes(held_name(""))),
        )


def diagnosis_json(findings: list[Finding], now: float) -> JsonObject:
    return {
        "findings": [
            {name: value for name, value in msgspec.structs.asdict(finding).items() if value} for finding in findings
        ],
        "counts": {severity: sum(each.severity == severity for each in findings) for severity in SEVERITIES},
        "at": to_rfc3339_millis(now),
    }


# --- What the machine shows -----------------------------------------------------------------------


def machine_of(settings: Settings, *, has_embedder: bool) -> Machine:
    data = settings.data
    keys = [*sorted((data / _KEYS).glob("*.pem")), *([settings.tls_key] if settings.tls_key else [])]
    return Machine(
        data_mode=_mode(data),
        admin_token_mode=_mode(data / ADMIN_TOKEN_FILE),
        key_modes=tuple((key.name, mode) for key in keys if (mode := _mode(key)) is not None),
        free_bytes=_free_bytes(data),
        certificate_ends=_certificate_ends(settings.tls_cert),
        cores=os.cpu_count() or 1,
        has_embedder=has_embedder,
    )


def _mode(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None


def _free_bytes(folder: Path) -> int | None:
    """Of the nearest folder that is there."""
    for place in (folder, *folder.parents):
        try:
            room = os.statvfs(place)
        except OSError:
            continue
        return room.f_bavail * room.f_frsize
    return None


def _certificate_ends(path: Path | None) -> float | None:
    if path is None:
        return None
    try:
        certificates = x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError):
        return None
    return certificates[0].not_valid_after_utc.timestamp() if certificates else None
