"""The HTTP transport of a client, without a registry."""

from __future__ import annotations

import logging
import time

import httpx2
import pytest

from support.ports import free_port
from support.transports import eventually
from waypost.net.clock import ManualClock
from waypost.transports.http import HttpTransport


async def test_an_unreachable_registry_is_reported_once_to_each_listener(
    caplog: pytest.LogCaptureFixture,
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    transport = HttpTransport(httpx2.AsyncClient(base_url=url), ManualClock(time.time()))
    await transport.open()
    with caplog.at_level(logging.DEBUG, "waypost.transports"):
        await transport.subscribe(lambda sighting: None)
        await eventually(lambda: len(caplog.records) >= 2)
        await transport.close()
    told = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(told) == 1
    assert url in told[0].getMessage()
    assert "Check that the service is running" in told[0].getMessage()
