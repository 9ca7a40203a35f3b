"""Whether agents live: in the process that writes, and only where the settings say so."""

from __future__ import annotations

from waypost.app.core import Core
from waypost.app.ground import Ground
from waypost.app.ways_out import WaysOut


def make_health(ground: Ground, core: Core, ways_out: WaysOut) -> None:
    if not (ground.settings.health_checks and ground.writes):
        return
    from waypost.registry.health import HealthChecks, HealthOptions  # most services ask nobody

    settings = ground.settings
    options = HealthOptions(seconds=settings.health_check_seconds, evict_seconds=settings.health_evict_seconds)
    checks = HealthChecks(core.registry, ways_out.outgoing, options)
    checks.attach()
    core.metrics.show("health_watched", "Endpoints of agents that are checked.", lambda: len(checks.watched))
    core.metrics.show("health_checks", "Checks of endpoints that were made.", lambda: checks.checks)
