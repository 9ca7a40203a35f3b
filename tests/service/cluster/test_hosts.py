"""Several servers in the URL of the store: nodes use the one that accepts writes."""

from __future__ import annotations

import socket

import pytest

from support.ports import free_port
from support.postgresql import PostgresqlServer
from waypost.stores.postgresql.database import Database, split_hosts


def test_a_url_is_split_into_one_for_each_host() -> None:
    assert split_hosts("postgresql://u:p%40@a:1,b,[::1]:3/db?sslmode=require") == [
        f"postgresql://u:p%40@{host}/db?sslmode=require" for host in ("a:1", "b", "[::1]:3")
    ]
    for url in ("postgresql://a/db", "postgresql:///db?host=/run/postgresql", "postgresql://"):
        assert split_hosts(url) == [url]


async def test_a_host_that_does_not_answer_keeps_nobody_from_the_next_one(postgresql: PostgresqlServer) -> None:
    url = postgresql.create_database()
    with socket.create_server(("127.0.0.1", 0)) as silent:  # as a machine that is gone: it accepts, and says nothing
        silent_host = f"127.0.0.1:{silent.getsockname()[1]}"
        hosts = f"{silent_host},127.0.0.1:{free_port()},127.0.0.1:{postgresql.port}"
        database = Database(url.replace(f"127.0.0.1:{postgresql.port}", hosts), statement_seconds=20)
        try:
            assert [tuple(row) for row in await database.fetch("SELECT 1")] == [(1,)]
            connection = await database.connect()
            assert await connection.fetchval("SELECT 2") == 2
            await connection.close()
        finally:
            await database.close()


@pytest.mark.parametrize("hosts", ["{gone},{server}", "{server},{gone}"])
async def test_an_answer_tells_more_than_silence(postgresql: PostgresqlServer, hosts: str) -> None:
    server = f"127.0.0.1:{postgresql.port}"
    both = hosts.format(gone=f"127.0.0.1:{free_port()}", server=server)
    with pytest.raises(Exception, match="does not exist"):
        await Database(postgresql.url("nowhere").replace(server, both)).fetch("SELECT 1")
