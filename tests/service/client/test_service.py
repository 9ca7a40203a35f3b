"""The client against a real service."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.server import RunningServer, running_server, start_server, stop_server
from support.website import website
from waypost import Agent, Client, Receipt, SyncClient, errors
from waypost.model.json import dump_json
from waypost.responses.agents import FetchedAgent


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server("--store", "memory") as running:
        yield running


def invoice_translator(agent_id: str) -> Agent:
    return Agent(
        agent_id,
        "Invoice Translator",
        "Translates invoices between languages and keeps the amounts in place.",
        tags=["finance", "translation"],
        examples=["Translate this invoice to German."],
        version="1.0.0",
        updated_at="2026-05-08T00:00:00Z",
    ).bind("https", "https://agents.example.net/invoke")


async def test_an_agent_lives_from_registration_to_withdrawal(server: RunningServer) -> None:
    agent = invoice_translator("https://agents.example.net/life")
    async with Client(server.url, server.admin_token) as client:
        receipt = await client.register(agent, ttl_seconds=60)
        assert (receipt.outcome, receipt.dialect, receipt.ttl_seconds) == ("created", "profile", 60)
        assert await client.get(agent.id) == agent
        assert (await client.renew(agent.id, 120)).ttl_seconds == 120
        assert agent in [item async for item in client.list(tags=["finance"], protocol="https")]
        assert agent in [item async for item in client.export()]
        assert (await client.stats()).agents >= 1
        await client.withdraw(agent.id)
        with pytest.raises(errors.NotFound):
            await client.get(agent.id)


async def test_a_task_finds_an_agent_with_its_evidence(server: RunningServer) -> None:
    agent = invoice_translator("https://agents.example.net/found")
    async with Client(server.url, server.admin_token) as client:
        await client.register(agent)
        found = await client.find("translate an invoice", tags=["finance"], limit=5, explain=True)
        hit = next(hit for hit in found.candidates if hit.id == agent.id)
        assert hit.score is not None
        assert 0 < hit.score <= 1
        assert hit.score_components
        assert hit.matched_examples[0].text == "Translate this invoice to German."


async def test_a_document_is_read_in_every_dialect(server: RunningServer) -> None:
    agent = invoice_translator("https://agents.example.net/dialects")
    async with Client(server.url, server.admin_token) as client:
        await client.register(agent)
        for dialect in ("profile", "af", "rtfs", "announce", "adp", "a2a", "ard", "mcp", "oasf"):
            document = await client.document(agent.id, dialect)
            assert document.etag
            assert document.body
        with pytest.raises(errors.InvalidParameter):
            await client.document(agent.id, "esperanto")


async def test_errors_are_the_leaves_that_the_service_raised(server: RunningServer) -> None:
    agent = invoice_translator("https://agents.example.net/errors")
    async with Client(server.url, server.admin_token) as admin:
        token = (await admin.mint_token("mallory", ["discover:read", "discover:write"], 600)).token
        reader = (await admin.mint_token("reader", ["discover:read"], 600)).token
        receipt = await admin.register(agent)
        with pytest.raises(errors.PreconditionFailed):
            await admin.register({**agent, "version": "2.0.0"}, if_match="other")
        with pytest.raises(errors.InvalidDocument) as refused:
            await admin.register({"id": "x", "name": 3, "description": "d", "bindings": []}, dialect="profile")
        assert refused.value.path
        with pytest.raises(errors.UnknownDialect):
            await admin.register({"nothing": "known"})
        with pytest.raises(errors.MalformedJson):
            await admin.register(b'{"a":1,"a":2}')
        with pytest.raises(errors.StaleMetadata):
            await admin.register({**agent, "name": "Older", "updated_at": "2020-01-01T00:00:00Z"})
        with pytest.raises(errors.InvalidCursor):
            _ = [change async for change in admin.watch("never-given")]
        assert (await admin.register(agent, if_match=receipt.etag)).outcome == "unchanged"
    async with Client(server.url, token) as mallory:
        with pytest.raises(errors.OwnerConflict):
            await mallory.register({**agent, "version": "9.9.9"})
    async with Client(server.url, reader) as poor:
        with pytest.raises(errors.MissingScope):
            await poor.register(agent)
    async with Client(server.url, "wrong") as nobody:
        with pytest.raises(errors.Unauthorized):
            await nobody.get(agent.id)


async def test_the_same_key_makes_one_change(server: RunningServer) -> None:
    agent = invoice_translator("https://agents.example.net/idempotent")
    async with Client(server.url, server.admin_token) as client:
        first = await client.register(agent, idempotency_key="one")
        assert await client.register(agent, idempotency_key="one") == first
        with pytest.raises(errors.IdempotencyConflict):
            await client.register({**agent, "name": "Other"}, idempotency_key="one")


async def test_many_documents_are_registered_in_order(server: RunningServer) -> None:
    documents: list[Any] = [invoice_translator(f"https://agents.example.net/many/{number}") for number in range(700)]
    documents.insert(350, b'{"broken":')
    async with Client(server.url, server.admin_token) as client:
        results = [result async for result in client.register_many(documents)]
    assert [result.outcome for result in results].count("created") == 700
    assert results[350].outcome == "failed"
    last = results[-1]
    assert isinstance(last, Receipt)
    assert last.id.endswith("/699")


async def test_changes_are_seen_as_they_happen(server: RunningServer) -> None:
    agent = invoice_translator("https://agents.example.net/watched")
    async with Client(server.url, server.admin_token) as client, asyncio.timeout(120):
        await client.register(agent)
        async for change in client.watch("0"):
            if change.id == agent.id:
                break
        watching = client.watch(change.cursor, include_agent=True)
        await client.register({**agent, "name": "Renamed", "version": "1.1.0", "updated_at": "2026-05-09T00:00:00Z"})
        await client.withdraw(agent.id)
        updated, withdrawn = await anext(watching), await anext(watching)
        assert (updated.type, withdrawn.type) == ("updated", "withdrawn")
        assert updated.agent is not None
        assert updated.agent.name == "Renamed"
        await watching.aclose()


async def test_a_watch_outlives_a_restart_of_the_service(tmp_path: Path) -> None:
    server = start_server(folder=tmp_path)
    port = server.url.rsplit(":", 1)[1]
    async with Client(server.url, server.admin_token) as client, asyncio.timeout(240):
        await client.register(invoice_translator("before"))
        changes = client.watch("0")
        assert (await anext(changes)).id == "before"
        waiting = asyncio.ensure_future(anext(changes))
        stop_server(server)
        again = start_server("--port", port, folder=tmp_path, data=server.data)
        try:
            await client.register(invoice_translator("after"))
            change = await waiting
            assert (change.type, change.id) == ("registered", "after")
            await changes.aclose()
        finally:
            stop_server(again)


def test_the_sync_client_does_all_of_it_too(server: RunningServer) -> None:
    agent = invoice_translator("https://agents.example.net/sync") | {"tags": ["finance", "sync-only"]}
    agent_id = agent["id"]
    with SyncClient(server.url, server.admin_token) as client:
        assert client.register(agent).outcome == "created"
        assert client.get(agent_id) == agent
        assert agent in list(client.list(tags=["finance"]))
        (hit,) = client.find("translate an invoice", tags=["sync-only"]).candidates
        assert hit.id == agent_id
        assert next(change.type for change in client.watch("0") if change.id == agent_id) == "registered"
        assert [result.outcome for result in client.register_many([agent])] == ["unchanged"]
        assert client.health().status == "ready"
        assert client.version()
        client.withdraw(agent_id)


async def test_the_documents_at_a_url_are_shown_and_then_saved(tmp_path: Path) -> None:
    agent = invoice_translator("https://agents.example.net/fetched")
    (tmp_path / "agent.json").write_bytes(dump_json(dict(agent)))
    with website(tmp_path) as site, running_server("--store", "memory", "--allow-cidrs", "127.0.0.1/32") as server:
        async with Client(server.url, server.admin_token) as client:
            (found,) = (looked := await client.fetch(f"{site}/agent.json")).agents
            assert isinstance(found, FetchedAgent)
            assert (found.id, found.outcome, found.receipt) == (agent.id, "found", None)
            with pytest.raises(errors.PreconditionFailed):
                await client.fetch(f"{site}/agent.json", save=True, digest="0" * 64)
            (saved,) = (await client.fetch(f"{site}/agent.json", save=True, digest=looked.digest)).agents
            assert isinstance(saved, FetchedAgent)
            assert saved.receipt is not None
            assert saved.receipt.outcome == "created"
            with pytest.raises(errors.AddressDenied, match="allow_cidrs"):
                await client.fetch("http://10.0.0.1/agent.json")
            with pytest.raises(errors.FetchFailed):
                await client.fetch(f"{site}/nothing.json")


def test_a_domain_is_claimed_listed_and_given_up(server: RunningServer) -> None:
    with SyncClient(server.url, server.admin_token) as client:
        made = client.prove_domain("claimed.example.com", "http")
        assert made.state == "pending"
        assert made in client.list_domains()
        with pytest.raises(errors.InvalidParameter):
            client.prove_domain("com")
        client.remove_domain("claimed.example.com")
        assert made not in client.list_domains()
        with pytest.raises(errors.NotFound):
            client.check_domain("claimed.example.com")
