"""The allow-list and the trust store from the library."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from support.announce import AGENT_ID, key
from support.service import service
from waypost.client.aio.client import Client
from waypost.client.retry import Retry
from waypost.errors import Forbidden, InvalidKey, InvalidParameter, NotFound

ONE = key("one")


async def test_rules_keys_and_revocations_are_typed_values(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        transport = httpx.ASGITransport(bench.application.service)
        url = bench.application.base_url
        async with Client(url, bench.admin_token, transport=transport, retry=Retry(attempts=1)) as admin:
            added = await admin.allow_add(AGENT_ID)
            assert (added.rule, added.outcome) == (AGENT_ID, "added")
            assert [rule.rule for rule in await admin.allow_list()] == [AGENT_ID]
            await admin.allow_remove(AGENT_ID)
            with pytest.raises(NotFound):
                await admin.allow_remove(AGENT_ID)
            with pytest.raises(InvalidParameter):
                await admin.allow_add("data-processor")
            trusted = await admin.keys_trust(AGENT_ID, ONE.public.pem())
            assert (trusted.key_id, trusted.state, trusted.outcome) == (ONE.public.key_id, "active", "trusted")
            with pytest.raises(InvalidKey):
                await admin.keys_trust(AGENT_ID, "nonsense")
            assert (await admin.keys_list(AGENT_ID)).keys[0].via == "trust"
            done = await admin.keys_revoke(key_id=ONE.public.key_id, reason="lost")
            assert (done.what, done.outcome) == (ONE.public.key_id, "revoked")
            assert (await admin.keys_revoke(serial="0a1b")).what == "serial:a1b"
            assert (await admin.keys_revoke(token_id="t-1")).what == "token:t-1"
        reader = bench.token("reader", "discover:read")
        transport = httpx.ASGITransport(bench.application.service)
        async with Client(url, reader, transport=transport, retry=Retry(attempts=1)) as client:
            assert [row.what for row in await client.revocations()] == [ONE.public.key_id]
            with pytest.raises(Forbidden):
                await client.allow_list()
