"""Who may announce and who may read: tokens and client certificates (announce.md §9)."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.announce import AGENT_ID, announcement, key
from support.certificates import Authority
from support.mutual_tls import tls, today, with_certificate
from support.raw_http import RawConnection
from support.server import running_server
from support.service import service

OTHER = "00000000-0000-4000-8000-000000000001"


@pytest.mark.req("ANN-60")
async def test_a_certificate_is_full_scope_for_the_agent_that_it_names_and_for_no_other(tmp_path: Path) -> None:
    authority, clock = Authority(tmp_path / "ca"), today()
    shown = authority.client("agent", f"urn:uuid:{AGENT_ID}")
    settings = tls(authority, bind_subject=True)
    async with (
        service(tmp_path / "data", clock=clock, **settings) as bench,
        with_certificate(bench, shown) as agent,
    ):
        await bench.admin().post("/api/v1/allow", json={"rule": "*"})
        mine = announcement(key("mine"), seq=1, at=clock.now())
        other = announcement(key("other"), seq=1, at=clock.now(), agent_id=OTHER)
        assert (await agent.post("/agents", json=other)).status_code == 403
        made = await agent.post("/agents", json=mine)
        assert made.status_code in (200, 201), made.text
        assert (await agent.get("/agents")).status_code == 200
        assert (await agent.get(f"/agents/{AGENT_ID}")).status_code == 200
        assert (await agent.delete(f"/agents/{AGENT_ID}")).status_code == 204


@pytest.mark.req("ANN-60")
async def test_without_a_token_or_a_certificate_nothing_is_announced_or_read(tmp_path: Path) -> None:
    authority, clock = Authority(tmp_path / "ca"), today()
    async with service(tmp_path / "data", clock=clock, **tls(authority)) as bench:
        await bench.admin().post("/api/v1/allow", json={"rule": "*"})
        message = announcement(key("mine"), seq=1, at=clock.now())
        anonymous, reader, writer = bench.anonymous(), bench.as_("r", "discover:read"), bench.as_("w", "discover:write")
        for answer in (
            await anonymous.post("/agents", json=message),
            await anonymous.get("/agents"),
            await anonymous.get(f"/agents/{AGENT_ID}"),
            await anonymous.delete(f"/agents/{AGENT_ID}"),
        ):
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert answer.json()["error"]["code"] == "ErrAuth"
        assert (await reader.post("/agents", json=message)).status_code == 403
        assert (await writer.get("/agents")).status_code == 403
        assert (await writer.post("/agents", json=message)).status_code in (200, 201)
        assert (await reader.get("/agents")).status_code == 200


@pytest.mark.req("ANN-61")
def test_the_listener_serves_discovery_and_nothing_else(tmp_path: Path) -> None:
    """The endpoint serves no files, relays nothing and speaks no other protocol."""
    requests = {
        b"GET /admin.token HTTP/1.1": (401, 404),
        b"GET /../../etc/passwd HTTP/1.1": (400, 404),
        b"GET /%2e%2e/admin.token HTTP/1.1": (400, 404),
        b"GET /static/ HTTP/1.1": (404,),
        b"GET http://127.0.0.1:1/ HTTP/1.1": (200, 400, 404, 421),
        b"CONNECT 127.0.0.1:22 HTTP/1.1": (400, 404, 405),
        b"TRACE / HTTP/1.1": (400, 404, 405),
        b"PROPFIND / HTTP/1.1": (400, 404, 405),
    }
    with running_server(data=tmp_path / "data") as server:
        for line, codes in requests.items():
            with RawConnection(server.url) as connection:
                connection.send(line + b"\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
                answer = connection.answer()
            assert answer.status in codes, (line, answer)
            assert server.admin_token.encode() not in answer.body
            assert b"root:" not in answer.body
