"""Runs the tests against `Discovery` in an application and against the service."""

from __future__ import annotations

import pytest

from support.agent_framework import SURFACES, Opener


@pytest.fixture(params=sorted(SURFACES))
def opened(request: pytest.FixtureRequest) -> Opener:
    """`async with opened(agents, **options) as served:` in an application, and over the registry."""
    return SURFACES[request.param]
