"""A new dialect is a folder and one row: with the row of `support.toy_dialect`, every part of the product knows the toy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import jsonschema
import pytest

from support.schemas import written_schema
from support.server import RunningServer, clean_environment, running_server
from support.toy_dialect.codec import ToyCodec

TOY = ToyCodec()
ROBOT = TOY.examples()[0]
PROFILE = {
    "id": "https://agents.example.net/echo",
    "name": "Echo",
    "description": "Repeats the message.",
    "bindings": [{"protocol": "https", "endpoint": "https://agents.example.net/echo/invoke"}],
}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
    with running_server(environment=environment, module="support.toy_dialect") as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.url, headers=server.headers) as client:
        yield client


def waypost(server: RunningServer, folder: Path, *arguments: str) -> Any:
    environment = clean_environment({**server.environment(), "PYTHONPATH": os.pathsep.join(sys.path)})
    command = [sys.executable, "-m", "support.toy_dialect", *arguments]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stderr.decode()
    return json.loads(ran.stdout)


def read(client: httpx2.Client, agent_id: str, dialect: str) -> httpx2.Response:
    return client.get(f"/api/v1/agents/{quote(agent_id, safe='')}", params={"as": dialect})


def test_a_toy_is_recognised_when_it_is_registered(client: httpx2.Client) -> None:
    written = client.post("/api/v1/agents", json=ROBOT).json()
    assert (written["dialect"], written["id"]) == ("toy", ROBOT["toy"])
    fragment = client.post("/api/v1/agents", json={"toy": "https://toys.example/x", "label": "X"}).json()
    assert fragment["path"] == "$.dial", "a document that lacks a member is decoded as a toy"
    unknown = client.post("/api/v1/agents", json={"dial": "https://toys.example/x"}).json()
    assert "looks like a toy: add `toy`, `label`" in unknown["message"]


def test_every_agent_is_served_as_a_toy(client: httpx2.Client) -> None:
    client.post("/api/v1/agents", json=PROFILE)
    served = read(client, PROFILE["id"], "toy")
    assert served.headers["content-type"] == TOY.media_type
    assert served.json() == {"toy": PROFILE["id"], "label": "Echo", "dial": "https://agents.example.net/echo/invoke"}
    assert "$.description" in served.headers["waypost-losses"]
    jsonschema.validate(served.json(), written_schema(TOY))


def test_a_toy_is_served_in_every_other_dialect(client: httpx2.Client) -> None:
    client.post("/api/v1/agents", json=ROBOT)
    assert read(client, ROBOT["toy"], "a2a").json()["name"] == "Robot"
    assert read(client, ROBOT["toy"], "toy").json() == ROBOT


def test_its_schema_is_served_and_described(client: httpx2.Client) -> None:
    url = str(client.base_url.join("/schemas/toy.json"))
    assert client.get(url).json() == {**TOY.schema(), "$id": url}
    description = client.get("/openapi.json").json()
    assert "toy" in description["components"]["schemas"]
    assert "toy" in str(description["paths"]["/api/v1/agents/{id}"]["get"]["parameters"])


def test_the_command_reads_and_writes_it(server: RunningServer, tmp_path: Path) -> None:
    (tmp_path / "car.json").write_text(json.dumps({**ROBOT, "toy": "https://toys.example/car", "label": "Car"}))
    assert waypost(server, tmp_path, "register", "car.json", "-o", "json")["dialect"] == "toy"
    assert waypost(server, tmp_path, "get", "https://toys.example/car", "--as", "toy")["label"] == "Car"
